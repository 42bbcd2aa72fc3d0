"""SQLite's own locks on an open session, which a program can lose for it.

The kernel drops all POSIX locks that a process has on a file when the process closes *any*
descriptor of it, as a host program does that reads or copies the session by itself. Another
process then takes itself for the last one, folds the log in and deletes it, and what is written
here later goes into a log without a name. Taking a lock that one has is harmless, so they are taken
anew before every commit.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

from statebackend.claim import OpenFile

# What a connection in WAL mode holds, shared, as long as it is open: start and length in bytes. It
# is the same in every version of SQLite: its "shared" range of the file, and byte 128 of -shm.
_SHARED = (0x40000002, 510)
_INDEX_IN_USE = (128, 1)
_READ = fcntl.LOCK_SH | fcntl.LOCK_NB


class SqliteLocks:
    """The locks of one writing connection that has read its file already."""

    def __init__(self, path: Path, file: OpenFile) -> None:
        self._database = file.watch(path)
        self._index = file.watch(Path(f"{path}-shm"))

    def keep(self) -> bool:
        """Take anew what was lost; tell if nobody has taken the log away, or is about to."""
        try:
            fcntl.lockf(self._database, _READ, _SHARED[1], _SHARED[0])
            fcntl.lockf(self._index, _READ, _INDEX_IN_USE[1], _INDEX_IN_USE[0])
        except OSError:
            return False
        return self.in_use()

    def in_use(self) -> bool:
        """Tell if the log still has its name; it goes together with its index."""
        try:
            return os.fstat(self._index).st_nlink > 0
        except OSError:  # closed meanwhile, by a signal handler
            return False

    def leave(self) -> None:
        """Let no connection of this process fold its old log in as it closes.

        A lock of the open file, not of the process, is in the way of SQLite's own here. It ends
        with the last connection. Only Linux has such locks.
        """
        if hasattr(fcntl, "F_OFD_SETLK"):
            request = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, *_SHARED, 0)
            with suppress(OSError):  # another process folds its log in just now: so will not we
                fcntl.fcntl(self._database, fcntl.F_OFD_SETLK, request)
