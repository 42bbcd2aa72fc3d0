"""SQLite's own locks on an open session, which a program can lose for it.

The kernel drops all POSIX locks that a process has on a file when the process closes *any*
descriptor of it, as a host program does that reads or copies the session with plain file calls.
Another process then takes itself for the only one on the file, checkpoints the WAL and deletes it,
and what is written here later goes into a WAL without a name.

So the locks are taken again before every commit, which changes nothing for a lock that is still
held, and the WAL must have its name before and after. This uses SQLite's own descriptors: a session
needs none beside them.
"""

from __future__ import annotations

import fcntl
import os
import resource
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from statebackend.files import open_files
from statebackend.files.open_files import OpenFile
from statebackend.files.record_locks import locked_by

# What a connection in WAL mode holds, shared, while it is open: start and length in bytes. They
# are the same in every version of SQLite: the "shared" range of the file, and byte 128 of the shm.
_SHARED = (0x40000002, 510)
_SHM_IN_USE = (128, 1)
_READ = fcntl.LOCK_SH | fcntl.LOCK_NB


class SqliteLocks:
    """The locks of one connection that has read its file already."""

    def __init__(self, path: Path, file: OpenFile) -> None:
        self._file = file
        self._wal_name = f"{path}-wal"
        self._released = False
        self._database = _Descriptor(path)
        self._shm = _Descriptor(f"{path}-shm")
        file.enter_wal(self)

    def keep(self) -> bool:
        """Take the locks that were lost; tell whether the WAL still has its name.

        To be asked before every commit. False also where another process is removing the WAL.
        """
        try:
            fcntl.lockf(self._database.number(), _READ, _SHARED[1], _SHARED[0])
            fcntl.lockf(self._shm.number(), _READ, _SHM_IN_USE[1], _SHM_IN_USE[0])
        except OSError:
            return False
        return self.in_use()

    def in_use(self) -> bool:
        """Tell whether the WAL and its shm still have a name.

        SQLite removes both together, another program perhaps one of them.
        """
        try:
            if os.fstat(self._shm.number()).st_nlink == 0:
                return False
        except OSError:  # closed
            return False
        # Not by a stat: on Linux, each write behind one has to record its time, which takes 50 µs.
        return os.access(self._wal_name, os.F_OK)

    def release(self) -> None:
        """Leave the WAL, before SQLite closes the connection.

        If the WAL was removed, SQLite must not take this connection for the last one and checkpoint
        the old WAL over newer pages. Where the system has locks of an open file, one on SQLite's
        own descriptor prevents that. It ends when SQLite closes the descriptor.
        """
        with open_files.mutex():
            if self._released:
                return
            kept = self.keep()
            if self._file.leave_wal(self) and not kept:
                _hold_against_checkpoint(self._database)
            self._released = True


class _Descriptor:
    """A descriptor that SQLite has open on a file."""

    def __init__(self, path: str | Path) -> None:
        self._stat = os.lstat(path)
        self._number = -1
        self.number()

    def number(self) -> int:
        """Return the descriptor, another one if that was closed. Raises OSError if there is none.

        It must not be closed here: that would drop SQLite's locks.
        """
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._number), self._stat):
                return self._number
        for number in _open_descriptors():
            with suppress(OSError):
                if os.path.samestat(os.fstat(number), self._stat):
                    self._number = number
                    return number
        raise FileNotFoundError(f"no descriptor is open on inode {self._stat.st_ino}")


def _open_descriptors() -> Iterator[int]:
    """Return the descriptors of this process, those first that were opened last.

    The kernel gives the lowest free number, so the youngest are just below the next one.
    """
    try:
        following = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.close(following)
    except OSError:  # none is free
        following = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield from range(following - 1, -1, -1)
    yield from (int(entry.name) for entry in Path("/dev/fd").iterdir())


def of_reader(path: Path, file: OpenFile) -> SqliteLocks | None:
    """Return the locks of a reading connection; None where it has neither WAL nor shm."""
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


def _hold_against_checkpoint(database: _Descriptor) -> None:
    if hasattr(fcntl, "F_OFD_SETLK"):
        request = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, *_SHARED, 0)
        with suppress(OSError):  # a file system without them; another process has the file now
            fcntl.fcntl(database.number(), fcntl.F_OFD_SETLK, request)
