"""The sole-writer claim (SB-05), and which session files this process has open.

The claim is a POSIX record lock on ``.locks/<session_id>.lock``. The kernel drops it with its
holder, also at kill -9 and also when a forked child lives on; the text in the file only names the
holder. Such a lock, like SQLite's own, is lost when the process closes *any* descriptor of the
file, and is invisible within the process. Hence the registry below: it knows what is held and
open here, and everything that opens or closes one of those files by itself holds its mutex.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import Any, Protocol, Self
from weakref import WeakSet, WeakValueDictionary

from statebackend import timestamps
from statebackend.errors import (
    SessionForked,
    SessionLocked,
    StorageBusy,
    StorageError,
    StorageUnsupported,
)
from statebackend.paths import SUFFIX, lock_path, private_directory

_FileKey = tuple[int, int]
_ClaimKey = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has a session open for writing.

    ``host`` and ``since`` are None while the holder has not written them yet.
    """

    pid: int
    host: str | None
    since: datetime | None


class _Descriptor:
    """A file descriptor that is closed once, also when an interrupt takes this object away."""

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        """Close it; no interrupt comes between the mark and the deed."""
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()


class Claim:
    """The right to write one session, held until :meth:`release` or the process's end.

    One that gets lost, as by an interrupt between taking it and storing it, is released as well.
    """

    holder = Holder(0, None, None)  # nobody, for one whose making was interrupted

    def __init__(self, key: _ClaimKey, path: Path, file: _Descriptor, holder: Holder) -> None:
        self._key = key
        self._path = path
        self._file = file
        self._written_ns = os.fstat(file.number).st_mtime_ns
        self.holder = holder

    def keep(self) -> bool:
        """Take the lock anew, if this process lost it by closing the file; tell if it may go on.

        Not if another process has it, or has had it meanwhile: that wrote into the lock file, or
        took it away.
        """
        try:
            fcntl.lockf(self._file.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(self._file.number)
        except (OSError, ValueError):  # closed meanwhile, by a signal handler
            return False
        return found.st_nlink > 0 and found.st_mtime_ns == self._written_ns

    def other(self) -> Holder | None:
        """Return the other process that has the claim by now, None when none has."""
        with _registry.mutex:
            return _holder_of(self._path)

    def release(self) -> None:
        """Give the claim back and remove its lock file; harmless when repeated, or in a child.

        What an interrupt cut off is done when it is repeated.
        """
        with _registry.mutex:
            if self.holder.pid != os.getpid():
                return
            registered = _registry.claims.get(self._key, self) is self
            if self._file.number >= 0:
                if not registered:
                    # Lost, and taken anew by now: closing this file would drop that lock.
                    _registry.lost.append(self._file)
                    return
                # Unlinked while still locked: who opens the old file later finds it has no name. A
                # file that another process has by now is not ours to take away.
                if self.keep():
                    with suppress(OSError):
                        self._path.unlink()
                self._file.close()
            if registered:
                _registry.claims.pop(self._key, None)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.release()


class OnLog(Protocol):
    """Whoever has a connection on a session's log for longer."""

    def in_use(self) -> bool:
        """Tell if the log still has its name."""
        ...


class _Registry:
    def __init__(self) -> None:
        self.mutex = RLock()
        self.claims: WeakValueDictionary[_ClaimKey, Claim] = WeakValueDictionary()
        self.lost: list[_Descriptor] = []
        self.open_files: dict[_FileKey, int] = {}
        self.inherited: set[_FileKey] = set()
        self.kept_off: set[_FileKey] = set()
        self.keep_in_child: WeakSet[Any] = WeakSet()
        self.watched: dict[_FileKey, list[int]] = {}
        self.on_log: dict[_FileKey, WeakSet[OnLog]] = {}

    def enter_child(self) -> None:
        """Forget what belongs to the parent, and make sure that nothing of it is ever closed.

        A child that closed an inherited connection would act with locks that it does not have; it
        could even write the parent's old log over newer pages.
        """
        import ctypes

        for connection in list(self.keep_in_child):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self.mutex = RLock()  # another thread of the parent may have held it
        self.claims.clear()
        self.inherited |= set(self.open_files)
        self.open_files.clear()
        self.kept_off.clear()
        for descriptors in self.watched.values():
            for descriptor in descriptors:  # drops no lock of the parent, and keeps none for it
                os.close(descriptor)
        self.watched.clear()
        self.on_log.clear()
        self.keep_in_child.clear()


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.enter_child)


def acquire(path: Path) -> Claim:
    """Take the claim on the session file *path*, which need not exist yet.

    Raises :class:`SessionLocked` with the holder, and :class:`StorageUnsupported` where the file
    system has no locks.
    """
    lock = lock_path(path)
    private_directory(lock.parent)
    if lock.parent.is_symlink():
        raise StorageUnsupported(
            lock.parent, "is a symbolic link; the locks must lie in the folder"
        )
    with _registry.mutex:
        key = _claim_key(lock)
        if (held := _registry.claims.get(key)) is not None:
            raise _locked(path, held.holder)
        file = _lock(path, lock)
        try:
            holder = Holder(os.getpid(), os.uname().nodename, timestamps.now())
            _write(file.number, holder)
            claim = _registry.claims[key] = Claim(key, lock, file, holder)
        except BaseException:  # a full disk; the lock would be held for the life of the process
            with suppress(OSError):
                lock.unlink()
            file.close()
            raise
        return claim


def writer_of(path: Path) -> Holder | None:
    """Return who has the session file *path* open for writing, in any process of this machine."""
    lock = lock_path(path)
    with _registry.mutex:
        try:
            if (held := _registry.claims.get(_claim_key(lock))) is not None:
                return held.holder
        except OSError:
            return None
        return _holder_of(lock)


def _holder_of(lock: Path) -> Holder | None:
    """Ask for another process that holds *lock*, by a descriptor; not while this process does."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _holder(descriptor)
    finally:
        os.close(descriptor)


def refuse_if_held_here(path: Path) -> None:
    """Raise :class:`SessionLocked` if this process itself writes the session."""
    with _registry.mutex, suppress(FileNotFoundError):
        if (held := _registry.claims.get(_claim_key(lock_path(path)))) is not None:
            raise _locked(path, held.holder)


@contextmanager
def untouched(path: Path) -> Iterator[bool]:
    """Tell whether this process has no connection on *path*, and keep it so inside the block.

    Only then may the file be opened and closed by itself, or with ``immutable=1``. Raises
    :class:`SessionForked` if a connection on it was inherited.
    """
    with _registry.mutex:
        try:
            found = path.stat()
        except OSError:
            yield True
            return
        yield is_untouched(path.name.removesuffix(SUFFIX), found)


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Tell whether this process has no connection on *path*, and let none be made in the block.

    For what takes its time; other files can be opened and closed meanwhile, which :func:`untouched`
    makes wait.
    """
    kept_off = None
    try:
        with untouched(path) as free:
            found = path.stat()
            key = (found.st_dev, found.st_ino)
            if key in _registry.kept_off:
                raise StorageBusy(path, "is being read or recovered by another thread; try again")
            if free:
                kept_off = key
                _registry.kept_off.add(key)
        yield free
    finally:
        if kept_off is not None:
            with _registry.mutex:
                _registry.kept_off.discard(kept_off)


@contextmanager
def only_here(path: Path) -> Iterator[bool]:
    """Tell whether no connection but one that was just closed is noted on *path*, and keep it so.

    The file may then be opened and closed by itself, as in :func:`untouched`.
    """
    with _registry.mutex:
        try:
            found = path.stat()
        except OSError:
            yield False
            return
        yield _registry.open_files.get((found.st_dev, found.st_ino), 0) <= 1


def mutex() -> AbstractContextManager[bool]:
    """Return the lock under which :func:`is_untouched` stays true."""
    return _registry.mutex


def is_untouched(stem: str, found: os.stat_result) -> bool:
    """Tell, while :func:`mutex` is held, that no connection is on the file *stem*, stat *found*.

    A scan asks this for every file, so it costs no further stat and no generator.
    """
    key = (found.st_dev, found.st_ino)
    if key in _registry.inherited:
        raise SessionForked(stem)
    return key not in _registry.open_files and key not in _registry.kept_off


def touched() -> frozenset[_FileKey]:
    """Return the files that this process has a connection on, keeps others off, or inherited."""
    with _registry.mutex:
        return frozenset({*_registry.open_files, *_registry.kept_off, *_registry.inherited})


class OpenFile:
    """Notes that this process has a connection on *path*, from :meth:`open` until :meth:`close`.

    An interrupt at any moment leaves it noted or not, and closing is right either way. ``key`` is
    the file's device and inode while it is noted, else None.
    """

    key: _FileKey | None = None
    _pid = 0  # of no process, for one whose making was interrupted

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Note it, before the connection is made."""
        try:
            with untouched(self._path):
                found = self._path.stat()
                key = (found.st_dev, found.st_ino)
                if key in _registry.kept_off:
                    raise StorageBusy(self._path, "is being recovered by another thread; try again")
                _refuse_if_log_is_gone(self._path, key)
                count = _registry.open_files.get(key, 0)
                _registry.open_files[key] = count + 1
                self.key = key  # no call in between, so no signal handler either
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Note that the connection is gone; harmless when repeated, or in a child."""
        if self._pid != os.getpid():
            return
        with _registry.mutex:
            if (key := self.key) is None:
                return
            left = _registry.open_files[key] - 1
            _registry.open_files[key] = left
            self.key = None
            if left == 0:
                del _registry.open_files[key]
                watched = _registry.watched.get(key, [])
                while watched:  # what an interrupt leaves serves the next handle
                    os.close(watched.pop())
                _registry.watched.pop(key, None)

    def __del__(self) -> None:
        if not sys.is_finalizing():  # for one whose closing was interrupted
            self.close()

    def enter_log(self, user: OnLog) -> None:
        """Note that *user* is on the log, until :meth:`leave_log` or its end."""
        with _registry.mutex:
            assert self.key is not None
            _registry.on_log.setdefault(self.key, WeakSet()).add(user)

    def leave_log(self, user: OnLog) -> bool:
        """Note that *user* lets the log go; tell whether nobody here is on it any more."""
        with _registry.mutex:
            if self.key is None or (users := _registry.on_log.get(self.key)) is None:
                return True
            users.discard(user)
            if not users:
                del _registry.on_log[self.key]
            return not users

    def watch(self, path: Path) -> int:
        """Return a descriptor of *path*, this file or one beside it, open as long as SQLite's.

        Closed earlier, it would take SQLite's locks away. One that an earlier handle left, while
        another connection is open still, serves again. Raises OSError.
        """
        with _registry.mutex:
            assert self.key is not None
            watched = _registry.watched.setdefault(self.key, [])
            found = path.lstat()
            for descriptor in watched:
                if os.path.samestat(os.fstat(descriptor), found):
                    return descriptor
            if not _registry.on_log.get(self.key):  # else a log that went, with its locks
                for descriptor in [one for one in watched if os.fstat(one).st_nlink == 0]:
                    watched.remove(descriptor)
                    os.close(descriptor)
            watched.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
            return watched[-1]


def refuse_if_log_is_gone(path: Path) -> None:
    """Raise :class:`StorageError` if the log that connections here are on has no name any more.

    SQLite would put the next one on the same index, which nobody else sees.
    """
    with _registry.mutex, suppress(FileNotFoundError):
        found = path.stat()
        _refuse_if_log_is_gone(path, (found.st_dev, found.st_ino))


def _refuse_if_log_is_gone(path: Path, key: _FileKey) -> None:
    if not all(user.in_use() for user in _registry.on_log.get(key, ())):
        raise StorageError(
            path,
            "another program took its log away while this process had it open: close the "
            "views and sessions of it here, and open it again",
        )


def keep_in_child(connection: object) -> None:
    """Make sure that a forked child never closes *connection*, not even at its exit."""
    _registry.keep_in_child.add(connection)


def _claim_key(lock: Path) -> _ClaimKey:
    folder = lock.parent.stat()
    return (folder.st_dev, folder.st_ino, lock.name)


def _lock(path: Path, lock: Path) -> _Descriptor:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        file = _Descriptor(os.open(lock, flags, 0o600))
        descriptor = file.number
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise StorageUnsupported(lock, "is not a plain file, so it cannot be a lock")
        try:
            with suppress(OSError):  # another user's file, or a file system without modes
                os.fchmod(descriptor, 0o600)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _has_name(descriptor, lock):
                return file
        except (BlockingIOError, PermissionError):
            if (holder := _holder(descriptor)) is not None:
                file.close()
                raise _locked(path, holder) from None
        except OSError as error:
            file.close()
            raise StorageUnsupported(
                lock, f"the file system has no record locks ({error.strerror})"
            ) from error
        # The holder left between two calls: its file has no name any more, so try a new one.
        file.close()


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _write(descriptor: int, holder: Holder) -> None:
    import json  # late: most processes only read, and meet no lock

    assert holder.since is not None
    text = json.dumps(
        {"pid": holder.pid, "host": holder.host, "since": timestamps.to_text(holder.since)}
    )
    if os.fstat(descriptor).st_size:  # ext4 writes out, at its close, what was cut to nothing
        os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode() + b"\n", 0)


# struct flock, as fcntl(2) lays it out: type, whence, start, length, pid.
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi"


def locked_by(descriptor: int, start: int = 0, length: int = 0) -> int | None:
    """Return the process with a lock on so many bytes (0: to the end), -1 if it has no number.

    None when no other process has one. Asking takes no lock, so it never disturbs a writer.
    """
    darwin = sys.platform == "darwin"
    span = (start, length, 0)
    fields = (*span, fcntl.F_WRLCK, 0) if darwin else (fcntl.F_WRLCK, 0, *span)
    answer = struct.unpack(
        _FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, *fields))
    )
    kind, pid = (answer[3], answer[2]) if darwin else (answer[0], answer[4])
    return None if kind == fcntl.F_UNLCK else pid


def _holder(descriptor: int) -> Holder | None:
    pid = locked_by(descriptor)
    if pid is None:
        return None
    written = _read(descriptor)
    if written is None or (pid > 0 and written.pid != pid and written.host == os.uname().nodename):
        return Holder(pid, None, None)  # the text is still its predecessor's
    return written


def _read(descriptor: int) -> Holder | None:
    import json

    try:
        text = json.loads(os.pread(descriptor, 4096, 0))
        since = timestamps.from_text(text["since"])
        return Holder(
            int(text["pid"]), str(text["host"]), since if isinstance(since, datetime) else None
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None  # anybody may have written anything into it


def _locked(path: Path, holder: Holder) -> SessionLocked:
    return SessionLocked(path.name.removesuffix(SUFFIX), holder.pid, holder.host, holder.since)
