"""Turn SQLite's errors into this package's, by result code and never by message text."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from pathlib import Path
from types import TracebackType

from statebackend.errors import (
    SessionDamaged,
    StateBackendError,
    StorageBusy,
    StorageError,
    StorageFull,
)

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_DAMAGE_WHEN_READING = _DAMAGE | {sqlite3.SQLITE_OK, sqlite3.SQLITE_ERROR}


def primary_code(error: BaseException) -> int:
    """Return SQLite's primary result code of *error*, 0 for an error of the driver itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def read_error(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> StateBackendError:
    """Return the typed error for a failed read of a session file.

    The statements are known to be right, so SQLite's generic error ("no such table", "unsupported
    file format") means damage too, as does a text that is not UTF-8 (the driver also decodes
    messages that quote a damaged schema).
    """
    if isinstance(error, UnicodeDecodeError):
        return SessionDamaged(path, ("a text is not UTF-8",))
    if primary_code(error) in _DAMAGE_WHEN_READING:
        return SessionDamaged(path, (str(error),))
    return storage_error(path, error)


def is_undecodable(error: BaseException | None) -> bool:
    """Return whether *error*, or the error it wraps, is about a text that is not UTF-8.

    It is the only OperationalError that the driver raises itself, so without a code of SQLite.
    """
    driver_error = getattr(error, "orig", error)
    return type(driver_error) is sqlite3.OperationalError and not hasattr(
        driver_error, "sqlite_errorcode"
    )


def storage_error(path: Path, error: sqlite3.Error) -> StateBackendError:
    """Return the typed error for what SQLite raised about *path*."""
    code = primary_code(error)
    if code in _DAMAGE:
        return SessionDamaged(path, (str(error),))
    # The shm could not be extended.
    shm_full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE
    if code == sqlite3.SQLITE_FULL or shm_full:
        return StorageFull(path, "no space left; nothing was written, free some space and retry")
    if code == sqlite3.SQLITE_AUTH:
        # The authorizer allows all statements of this package: an interrupt arrived inside it.
        return StorageError(path, "was interrupted (SQLITE_AUTH); nothing was written, try again")
    if code in _BUSY:
        return StorageBusy(path, "is locked by another process; try again")
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if _lacks_descriptors():
        return StorageError(path, f"{_too_many_files()} ({name})")
    return StorageError(path, f"{error} ({name})")


def _lacks_descriptors() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EMFILE
    return False


def _too_many_files() -> str:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"this process has as many open files as it may, {limit}: close sessions, or raise the "
        "limit (ulimit -n, RLIMIT_NOFILE); an open session takes 4"
    )


class os_error:  # noqa: N801 - used like a function; a generator would be slower
    """Turn an OSError inside the block into a storage error."""

    __slots__ = ("_path",)

    def __init__(self, path: str | Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, OSError):
            return
        where = Path(error.filename if isinstance(error.filename, str) else self._path)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(where, "no space left; nothing was written") from error
        if error.errno == errno.EMFILE:
            raise StorageError(where, _too_many_files()) from error
        raise StorageError(where, f"{error.strerror} ({type(error).__name__})") from error
