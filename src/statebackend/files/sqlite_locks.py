"""SQLite's own locks on an open session, which a program can lose for it.

The kernel drops all POSIX locks that a process has on a file when the process closes *any*
descriptor of it, as a host program does that reads or copies the session by itself. Another
process then takes itself for the last one, folds the log in and deletes it, and what is written
here later goes into a log without a name.

Locks of an open file, not of the process, survive that. Where the system has them (Linux), they
back SQLite's own as long as the session is open. Elsewhere SQLite's are taken anew before every
commit, which is harmless for a lock that one has.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

from statebackend.files import open_files
from statebackend.files.open_files import OpenFile
from statebackend.files.record_locks import locked_by

# What a connection in WAL mode holds, shared, as long as it is open: start and length in bytes. It
# is the same in every version of SQLite: its "shared" range of the file, and byte 128 of -shm.
_SHARED = (0x40000002, 510)
_INDEX_IN_USE = (128, 1)
_READ = fcntl.LOCK_SH | fcntl.LOCK_NB


class SqliteLocks:
    """The locks of one connection that has read its file already.

    Nothing takes them away while they are ``backed``.
    """

    def __init__(self, path: Path, file: OpenFile) -> None:
        self._file = file
        self._log_text = f"{path}-wal"
        self._given_back = False
        self._database = file.watch(path)
        self._index = file.watch(Path(f"{path}-shm"))
        with open_files.mutex():
            file.enter_wal(self)
            self.backed = _back(self._database, _SHARED) and _back(self._index, _INDEX_IN_USE)

    def keep(self) -> bool:
        """Take anew what was lost; tell if nobody has taken the log away, or is about to.

        To be asked before every commit, unless the locks are ``backed``.
        """
        try:
            fcntl.lockf(self._database, _READ, _SHARED[1], _SHARED[0])
            fcntl.lockf(self._index, _READ, _INDEX_IN_USE[1], _INDEX_IN_USE[0])
        except OSError:
            return False
        return self.in_use()

    def in_use(self) -> bool:
        """Tell if the log and its index still have a name.

        SQLite takes them away together, another hand maybe one of them.
        """
        try:
            if os.fstat(self._index).st_nlink == 0:
                return False
        except OSError:  # closed meanwhile, by a signal handler
            return False
        # Not by a stat: on Linux, each write behind one has to note its time, which takes 50 µs.
        return os.access(self._log_text, os.F_OK)

    def give_back(self) -> None:
        """Let SQLite, as it closes, find out whether it is the last one.

        A lock of the open file is in the way of SQLite's own in this process, too. If the log was
        taken away, that is left so: no connection here is to fold its old log in. It ends with the
        last connection.
        """
        with open_files.mutex():
            if self._given_back:  # the descriptors may be closed by now
                return
            kept = self.keep()
            if self._file.leave_wal(self):  # the descriptors are shared
                if not kept:
                    _back(self._database, _SHARED)
                elif self.backed:
                    _set(self._database, fcntl.F_UNLCK, _SHARED)
                    _set(self._index, fcntl.F_UNLCK, _INDEX_IN_USE)
            self.backed = False
            self._given_back = True


def of_reader(path: Path, file: OpenFile) -> SqliteLocks | None:
    """Return the locks of a reading connection; None where it is on a copy, or cannot be helped."""
    with suppress(OSError):
        return SqliteLocks(path, file)
    return None


def is_read_elsewhere(path: Path) -> bool:
    """Tell whether another process has a connection on *path* in use, or is just closing one.

    Plain file calls: only while this process has no connection on it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        return locked_by(descriptor, *_SHARED) is not None
    finally:
        os.close(descriptor)


def _back(descriptor: int, span: tuple[int, int]) -> bool:
    """Take a shared lock of the open file; tell if there is such a thing."""
    return _set(descriptor, fcntl.F_RDLCK, span)


def _set(descriptor: int, kind: int, span: tuple[int, int]) -> bool:
    if hasattr(fcntl, "F_OFD_SETLK"):
        request = struct.pack("hhqqi4x", kind, os.SEEK_SET, *span, 0)
        with suppress(OSError):  # a file system without; another process folds its log in just now
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
            return True
    return False
