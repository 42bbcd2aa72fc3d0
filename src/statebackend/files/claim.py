"""The sole-writer claim (SB-05): a POSIX record lock on ``.locks/<session_id>.lock``.

The kernel drops the lock with its holder, also at kill -9 and also when a forked child lives on.
The text in the lock file only names the holder. Such a lock is lost when the process closes *any*
descriptor of the file, and it does not show within the process, so the claims of this process are
kept in a table here.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from weakref import WeakValueDictionary

from statebackend.errors import SessionLocked, StorageUnsupported
from statebackend.files import open_files
from statebackend.files.paths import SessionFiles, make_private_directory
from statebackend.values import timestamps

_ClaimKey = tuple[int, int, str]
"""Device and inode of the folder of locks, and the lock file's name."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has a session open for writing.

    ``host`` and ``since`` are None while the holder has not written them yet.
    """

    pid: int
    host: str | None
    since: datetime | None


class _Descriptor:
    """A file descriptor that is closed once, at the latest with this object."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        """Close it. Marked closed before the call, so that an interrupt cannot close it twice."""
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()


class Claim:
    """The right to write one session, held until :meth:`release` or the process's end.

    Garbage collection releases it too, as after an interrupt between taking it and storing it.
    """

    holder = Holder(0, None, None)  # nobody, for an object whose construction was interrupted

    def __init__(self, key: _ClaimKey, path: Path, file: _Descriptor, holder: Holder) -> None:
        self._key = key
        self._path = path
        self._file = file
        self._written_ns = os.fstat(file.number).st_mtime_ns
        self.holder = holder

    def keep(self) -> bool:
        """Take the lock again if this process lost it; return whether this is still the holder.

        Not if another process holds the lock, or has held it: it has written or removed the file.
        """
        try:
            fcntl.lockf(self._file.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(self._file.number)
        except (OSError, ValueError):  # a signal handler closed it
            return False
        return status.st_nlink > 0 and status.st_mtime_ns == self._written_ns

    def other(self) -> Holder | None:
        """Return the other process that has the claim now, None when none has."""
        with open_files.mutex():
            return _find_holder(self._path)

    def release(self) -> None:
        """Release the claim and remove its lock file; harmless when repeated, or in a child.

        A repeated call does what an interrupt cut off.
        """
        with open_files.mutex():
            if self.holder.pid != os.getpid():
                return
            registered = _claims.get(self._key, self) is self
            if self._file.number >= 0:
                if not registered:
                    # This process holds a newer claim: closing this file would drop its lock.
                    _lost.append(self._file)
                    return
                # Unlinked while locked, so that a process with the old file open sees that it has
                # no name. A file that another process has claimed stays.
                if self.keep():
                    with suppress(OSError):
                        self._path.unlink()
                self._file.close()
            if registered:
                _claims.pop(self._key, None)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.release()


_claims: WeakValueDictionary[_ClaimKey, Claim] = WeakValueDictionary()
_lost: list[_Descriptor] = []
os.register_at_fork(after_in_child=_claims.clear)


def acquire(path: Path) -> Claim:
    """Take the claim on the session file *path*, which need not exist yet.

    Raises :class:`SessionLocked` with the holder, and :class:`StorageUnsupported` where the file
    system has no locks.
    """
    lock = SessionFiles(path).lock
    make_private_directory(lock.parent)
    if lock.parent.is_symlink():
        raise StorageUnsupported(
            lock.parent, "is a symbolic link; the locks must lie in the folder"
        )
    with open_files.mutex():
        key = _claim_key(lock)
        if (held := _claims.get(key)) is not None:
            raise _locked_error(path, held.holder)
        file = _lock(path, lock)
        try:
            holder = Holder(os.getpid(), os.uname().nodename, timestamps.now())
            _write(file.number, holder)
            claim = _claims[key] = Claim(key, lock, file, holder)
        except BaseException:  # a full disk
            with suppress(OSError):
                lock.unlink()
            file.close()
            raise
        return claim


def writer_of(path: Path) -> Holder | None:
    """Return who has the session file *path* open for writing, in any process of this machine."""
    lock = SessionFiles(path).lock
    with open_files.mutex():
        try:
            if (held := _claims.get(_claim_key(lock))) is not None:
                return held.holder
        except OSError:
            return None
        return _find_holder(lock)


def _find_holder(lock: Path) -> Holder | None:
    """Return the other process that holds *lock*; not to be called while this process holds it."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _read_holder(descriptor)
    finally:
        os.close(descriptor)


def refuse_if_held_here(path: Path) -> None:
    """Raise :class:`SessionLocked` if this process itself writes the session."""
    with open_files.mutex(), suppress(FileNotFoundError):
        if (held := _claims.get(_claim_key(SessionFiles(path).lock))) is not None:
            raise _locked_error(path, held.holder)


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
            raise StorageUnsupported(lock, "is not a regular file, so it cannot be a lock")
        try:
            with suppress(OSError):  # another user's file, or a file system without modes
                os.fchmod(descriptor, 0o600)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _has_name(descriptor, lock):
                return file
        except (BlockingIOError, PermissionError):
            if (holder := _read_holder(descriptor)) is not None:
                file.close()
                raise _locked_error(path, holder) from None
        except OSError as error:
            file.close()
            raise StorageUnsupported(
                lock, f"the file system has no record locks ({error.strerror})"
            ) from error
        # The holder released it between two calls, and the file has no name any more: try again.
        file.close()


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _write(descriptor: int, holder: Holder) -> None:
    import json  # late: most processes only read and take no claim

    assert holder.since is not None
    text = json.dumps(
        {"pid": holder.pid, "host": holder.host, "since": timestamps.to_text(holder.since)}
    )
    if os.fstat(descriptor).st_size:  # after truncating to 0, ext4 would flush at the close
        os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode() + b"\n", 0)


def _read_holder(descriptor: int) -> Holder | None:
    pid = open_files.locked_by(descriptor)
    if pid is None:
        return None
    holder = _parse(descriptor)
    if holder is None or (pid > 0 and holder.pid != pid and holder.host == os.uname().nodename):
        return Holder(pid, None, None)  # the text is still that of the holder before
    return holder


def _parse(descriptor: int) -> Holder | None:
    import json

    try:
        text = json.loads(os.pread(descriptor, 4096, 0))
        since = timestamps.from_text(text["since"])
        return Holder(
            int(text["pid"]), str(text["host"]), since if isinstance(since, datetime) else None
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None  # the file may hold anything


def _locked_error(path: Path, holder: Holder) -> SessionLocked:
    return SessionLocked(SessionFiles(path).session_id, holder.pid, holder.host, holder.since)
