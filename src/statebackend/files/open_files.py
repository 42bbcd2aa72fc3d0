"""Which session files this process has open, and whether another process locks a file.

SQLite's POSIX locks, like the claim's, are lost when the process closes *any* descriptor of the
file, and they do not show within the process that holds them. So this registry records what is open
here, and its mutex is held while one of these files is opened or closed with plain file calls.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, Protocol, Self
from weakref import ReferenceType, WeakSet, ref

from statebackend.errors import SessionForked, StorageBusy, StorageError
from statebackend.files.paths import SessionFiles

# struct flock, as fcntl(2) lays it out: type, whence, start, length, pid.
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi"

FileKey = tuple[int, int]
"""Device and inode of a file."""


def key_of(status: os.stat_result) -> FileKey:
    """Return the key of the file with this stat."""
    return (status.st_dev, status.st_ino)


class WalUser(Protocol):
    """A connection that stays on a session's WAL."""

    def in_use(self) -> bool:
        """Return whether the WAL still has its name."""
        ...

    def hold(self) -> None:
        """Take the locks that keep the WAL; harmless when they are held."""
        ...


class _Registry:
    def __init__(self) -> None:
        self.mutex = RLock()
        self.connections: dict[FileKey, int] = {}
        self.paths: dict[FileKey, Path] = {}  # of the connections
        self.inherited: set[FileKey] = set()
        self.reserved: set[FileKey] = set()
        self.keep_in_child: WeakSet[Any] = WeakSet()
        # A WeakSet per open session would take 1 kB.
        self.wal_users: dict[FileKey, tuple[ReferenceType[WalUser], ...]] = {}

    def on_wal(self, key: FileKey) -> list[WalUser]:
        """Return the connections of this process on the WAL of a file."""
        return [user for each in self.wal_users.get(key, ()) if (user := each()) is not None]

    def enter_child(self) -> None:
        """Drop the parent's entries, and make sure that the child closes no inherited connection.

        A child that closed one would act with locks that it does not have. It could even write the
        parent's old WAL over newer pages. Only the descriptors below the connections are closed: an
        open file description lock that the parent takes, also after the fork, would else outlive
        it in the child.
        """
        import ctypes

        for connection in list(self.keep_in_child):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self.mutex = RLock()  # another thread of the parent may have held it
        self.inherited |= set(self.connections)
        self.connections.clear()
        self.reserved.clear()
        _close_all({*self.inherited, *_shm_keys(self.paths.values())})
        self.paths.clear()
        self.wal_users.clear()
        self.keep_in_child.clear()


def _shm_keys(paths: Iterable[Path]) -> Iterator[FileKey]:
    for path in paths:
        with suppress(OSError):
            yield key_of(Path(f"{path}-shm").stat())


def _close_all(keys: set[FileKey]) -> None:
    for number in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        with suppress(OSError):
            if key_of(os.fstat(number)) in keys:
                os.close(number)


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.enter_child)


def mutex() -> AbstractContextManager[bool]:
    """Return the lock under which :func:`is_untouched` stays true."""
    return _registry.mutex


@contextmanager
def untouched(path: Path) -> Iterator[bool]:
    """Give whether this process has no connection on *path*; none is made during the block.

    Only then may the file be opened and closed with plain file calls, or with ``immutable=1``.
    Raises :class:`SessionForked` if a connection on it was inherited.
    """
    with _registry.mutex:
        try:
            status = path.stat()
        except OSError:
            yield True
            return
        yield is_untouched(SessionFiles(path).session_id, status)


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Give the same as :func:`untouched` for long work, during which other files can be opened."""
    reserved = None
    try:
        with untouched(path) as free:
            key = key_of(path.stat())
            if key in _registry.reserved:
                raise StorageBusy(path, "is being read or recovered by another thread; try again")
            if free:
                reserved = key
                _registry.reserved.add(key)
        yield free
    finally:
        if reserved is not None:
            with _registry.mutex:
                _registry.reserved.discard(reserved)


@contextmanager
def only_here(path: Path) -> Iterator[bool]:
    """Give whether this process has at most one connection on *path*, which was just closed.

    The file may then be opened and closed with plain file calls, as in :func:`untouched`.
    """
    with _registry.mutex:
        try:
            key = key_of(path.stat())
        except OSError:
            yield False
            return
        yield _registry.connections.get(key, 0) <= 1


def is_untouched(session_id: str, status: os.stat_result) -> bool:
    """Return whether no connection here is on the file with this stat; :func:`mutex` is held.

    A scan asks this for every file, so it costs no second stat and no generator.
    """
    key = key_of(status)
    if key in _registry.inherited:
        raise SessionForked(session_id)
    return key not in _registry.connections and key not in _registry.reserved


def touched() -> frozenset[FileKey]:
    """Return the files that this process has a connection on, reserves, or inherited."""
    with _registry.mutex:
        return frozenset({*_registry.connections, *_registry.reserved, *_registry.inherited})


class OpenFile:
    """Records that this process has a connection on *path*, from :meth:`open` until :meth:`close`.

    An interrupt at any moment leaves it recorded or not, and closing is right either way. ``key``
    is None while the file is not recorded.
    """

    key: FileKey | None = None
    _pid = 0  # of no process, for an object whose construction was interrupted

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Record the file, before the connection is made."""
        try:
            with untouched(self._path):
                key = key_of(self._path.stat())
                if key in _registry.reserved:
                    raise StorageBusy(self._path, "is being recovered by another thread; try again")
                _refuse_if_wal_is_gone(self._path, key)
                _registry.paths[key] = self._path
                count = _registry.connections.get(key, 0)
                _registry.connections[key] = count + 1
                self.key = key  # no call in between, so no signal handler either
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Record that the connection is gone; harmless when repeated, or in a child."""
        if self._pid != os.getpid():
            return
        with _registry.mutex:
            if (key := self.key) is None:
                return
            remaining = _registry.connections[key] - 1
            _registry.connections[key] = remaining
            self.key = None
            if remaining == 0:
                del _registry.connections[key]  # without a call since the count, as above
                _registry.paths.pop(key, None)

    def __del__(self) -> None:
        if not sys.is_finalizing():  # for one whose closing was interrupted
            self.close()

    def enter_wal(self, user: WalUser) -> None:
        """Record that *user* is on the WAL, until :meth:`leave_wal` or its end."""
        with _registry.mutex:
            assert self.key is not None
            _registry.wal_users[self.key] = (*_registry.wal_users.get(self.key, ()), ref(user))

    def leave_wal(self, user: WalUser) -> list[WalUser]:
        """Record that *user* leaves the WAL; return those of this process that stay on it."""
        with _registry.mutex:
            if self.key is None:
                return []
            others = [each for each in _registry.on_wal(self.key) if each is not user]
            if others:
                _registry.wal_users[self.key] = tuple(map(ref, others))
            else:
                _registry.wal_users.pop(self.key, None)
            return others


def refuse_if_wal_is_gone(path: Path) -> None:
    """Raise :class:`StorageError` if the WAL that connections here are on has no name any more.

    SQLite would put the next connection on the same shm, which nobody else sees.
    """
    with _registry.mutex, suppress(FileNotFoundError):
        _refuse_if_wal_is_gone(path, key_of(path.stat()))


def _refuse_if_wal_is_gone(path: Path, key: FileKey) -> None:
    if not all(user.in_use() for user in _registry.on_wal(key)):
        raise StorageError(
            path,
            "another program removed its WAL while this process had it open: close the "
            "views and sessions of it here, and open it again",
        )


def keep_in_child(connection: object) -> None:
    """Make sure that a forked child never closes *connection*, not even at its exit."""
    _registry.keep_in_child.add(connection)


def locked_by(descriptor: int, start: int = 0, length: int = 0) -> int | None:
    """Return the pid of another process with a lock on *length* bytes from *start*, None if none.

    A *length* of 0 means to the end of the file. The kernel answers -1 for a lock that belongs to
    an open file and not to a process. Asking takes no lock, so it never disturbs a writer.
    """
    darwin = sys.platform == "darwin"
    span = (start, length, 0)
    fields = (*span, fcntl.F_WRLCK, 0) if darwin else (fcntl.F_WRLCK, 0, *span)
    answer = struct.unpack(
        _FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, *fields))
    )
    kind, pid = (answer[3], answer[2]) if darwin else (answer[0], answer[4])
    return None if kind == fcntl.F_UNLCK else pid
