"""SQLite's own locks on an open session, which the host program can make SQLite lose.

The kernel drops all POSIX locks that a process has on a file when the process closes *any*
descriptor of it, as a host program does that reads or copies the session with plain file calls.
Another process then takes itself for the last connection, checkpoints the WAL and deletes it, and
what is written here later goes into a WAL without a name.

Open file description locks (Linux) survive that. They are put on SQLite's own descriptors beside
SQLite's locks, so a session needs no descriptors of its own for them. After every commit the WAL
must still have its name, on every system.
"""

from __future__ import annotations

import fcntl
import os
import resource
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from statebackend.files import open_files
from statebackend.files.open_files import FileKey, OpenFile, key_of

# What a connection in WAL mode holds, shared, while it is open: start and length in bytes. They
# are the same in every version of SQLite: the "shared" range of the file, and byte 128 of the shm.
_SHARED = (0x40000002, 510)
_SHM_IN_USE = (128, 1)


class SqliteLocks:
    """The locks of one connection that has read its file already."""

    __slots__ = ("__weakref__", "_database", "_file", "_released", "_shm", "_wal_name")

    def __init__(self, path: Path, file: OpenFile) -> None:
        self._file = file
        self._wal_name = f"{path}-wal"
        self._released = False
        self._database = _Descriptor(path)
        self._shm = _Descriptor(f"{path}-shm")
        with open_files.mutex():
            file.enter_wal(self)
            self.hold()

    def hold(self) -> None:
        """Take the open file description locks; harmless when they are held."""
        self._database.lock(fcntl.F_RDLCK, _SHARED)
        self._shm.lock(fcntl.F_RDLCK, _SHM_IN_USE)

    def in_use(self) -> bool:
        """Return whether the WAL and its shm still have a name.

        SQLite removes both together, another program perhaps one of them.
        """
        # Not by a stat: on Linux, each write behind one has to record its time, which takes 50 µs.
        return self._shm.has_name() and os.access(self._wal_name, os.F_OK)

    def release(self) -> None:
        """Leave the WAL, before SQLite closes the connection.

        SQLite then finds out whether it is the last one on the file; the locks here would be in its
        way. If the WAL was removed they stay, so that SQLite does not checkpoint the old WAL over
        newer pages. They end when SQLite closes the descriptors.
        """
        with open_files.mutex():
            if self._released:
                return
            if self.in_use():
                self._database.lock(fcntl.F_UNLCK, _SHARED)
                self._shm.lock(fcntl.F_UNLCK, _SHM_IN_USE)
            else:  # perhaps not possible at the open, since another process was closing
                self._database.lock(fcntl.F_RDLCK, _SHARED)
            for other in self._file.leave_wal(self):  # which may have the same descriptors
                other.hold()
            self._released = True


class _Descriptor:
    """A descriptor that SQLite has open on a file. It is SQLite's to close."""

    __slots__ = ("_key", "_number")

    def __init__(self, path: str | Path) -> None:
        self._key = key_of(os.lstat(path))
        self._number = next((n for n in _open_descriptors() if _key_of(n) == self._key), -1)
        if self._number < 0:
            raise FileNotFoundError(f"no descriptor is open on {path}")

    def has_name(self) -> bool:
        """Return whether the file has not been unlinked; false if the descriptor was closed."""
        try:
            status = os.fstat(self._number)
        except OSError:
            return False
        return status.st_nlink > 0 and status.st_ino == self._key[1]

    def lock(self, kind: int, span: tuple[int, int]) -> None:
        """Set an open file description lock, where the system has them."""
        if sys.platform == "linux" and _key_of(self._number) == self._key:
            request = struct.pack("hhqqi4x", kind, os.SEEK_SET, *span, 0)
            with suppress(OSError):  # a file system without them; another process closes just now
                fcntl.fcntl(self._number, fcntl.F_OFD_SETLK, request)


def _key_of(descriptor: int) -> FileKey | None:
    with suppress(OSError):
        return key_of(os.fstat(descriptor))
    return None


def _open_descriptors() -> Iterator[int]:
    """Return the descriptors of this process, the newest first.

    The kernel gives the lowest free number, so the newest are just below the next one.
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
    """Return whether another process has a connection on *path* in use, or is just closing one.

    It opens the file directly, so call it only while this process has no connection on it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        return open_files.locked_by(descriptor, *_SHARED) is not None
    finally:
        os.close(descriptor)
