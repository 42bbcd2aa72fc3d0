"""The catalogue's file: where it is, how it is opened, and when it is rebuilt.

It can be deleted at any time. One that is damaged, of another schema or of another folder is
replaced by a file that is complete when it gets the name. Removing a database that others have open
is safe here: they continue with the old one, which SQLite notices when it closes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from statebackend.catalogue import schema
from statebackend.catalogue.schema import APPLICATION_ID, NUMBER, CatalogueDamaged
from statebackend.errors import StateBackendError, StorageBusy, StorageError
from statebackend.files.paths import cache_directory, make_private_directory, sqlite_uri
from statebackend.sqlite.faults import os_error, primary_code, storage_error

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
Action = Callable[[sqlite3.Connection], _T]
Progress = Callable[[int, int], object]
"""Called with how much is done, and of how much."""

_BUSY_TIMEOUT_S = 5.0
_PAGE_BYTES = 4096
_BUILDING_TIMEOUT_S = 5.0
# Errors of SQLite that say nothing of the file. The statements are known to be right, so any other
# is damage: zeroed sectors make tables disappear and break constraints.
_NOT_DAMAGE = {
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS),
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN),
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_NOMEM),
}


class _Unusable(Exception):
    """The file cannot be used as the catalogue, for the reason in its text."""


def catalogue_path(directory: Path) -> Path:
    """Return the file of the catalogue of the sessions folder *directory*, an absolute path."""
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()
    return cache_directory() / f"catalogue-{digest[:16]}.sqlite"


def use(directory: Path, action: Action[_T]) -> _T:
    """Return what *action* returns, given a connection to the catalogue of *directory*.

    The connection is in autocommit mode. A file that is missing or cannot be used is rebuilt, as is
    one that proves damaged during *action*, which is then called again. Raises
    :class:`StorageError` when there can be no catalogue: the cache folder cannot be written, the
    disk is full, other processes keep the catalogue busy.
    """
    path = catalogue_path(directory)
    try:
        try:
            return _run(path, directory, action)
        except (sqlite3.Error, CatalogueDamaged) as error:
            if not is_damage(error):
                raise
            _log.warning("%s: the catalogue is damaged (%s); rebuilding it", path, describe(error))
        rebuild(directory)
        return _run(path, directory, action)
    except (sqlite3.Error, CatalogueDamaged) as error:
        raise _storage_error(path, error) from error


def _run(path: Path, directory: Path, action: Action[_T]) -> _T:
    with _typed_errors(path):
        driver = _open(path, directory)
    with closing(driver):
        return action(driver)


def rebuild(directory: Path) -> None:
    """Replace the catalogue of *directory* by an empty one."""
    path = catalogue_path(directory)
    with _typed_errors(path), _lock_building(path, directory):
        _build(path, directory)


def _open(path: Path, directory: Path) -> sqlite3.Connection:
    """Connect to a catalogue that can be used, creating it if necessary."""
    with suppress(_Unusable, FileNotFoundError):
        return _connect(path, directory)
    with _lock_building(path, directory):
        try:  # another process may have built it
            return _connect(path, directory)
        except FileNotFoundError:
            _log.debug("%s: there is no catalogue yet; creating it", path)
        except _Unusable as error:
            _log.warning("%s: the catalogue %s; rebuilding it", path, error)
        _build(path, directory)
        return _connect(path, directory)


def _connect(path: Path, directory: Path) -> sqlite3.Connection:
    """Connect to an existing file. Raises :class:`_Unusable`, also for one that is damaged."""
    refuse_irregular(path)
    status = os.lstat(path)  # FileNotFoundError, for which SQLite has no error code of its own
    if stat.S_ISLNK(status.st_mode):
        raise _Unusable("is a symbolic link")
    if status.st_size % _PAGE_BYTES:
        raise _Unusable("is truncated")
    driver = sqlite3.connect(
        sqlite_uri(path, "mode=rw"), uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None
    )
    with ExitStack() as stack:
        stack.callback(driver.close)
        try:
            _check_identity(driver, directory)
            driver.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            raise _Unusable(f"is damaged ({describe(error)})") from error
        stack.pop_all()
    return driver


def _check_identity(driver: sqlite3.Connection, directory: Path) -> None:
    (application,) = driver.execute("PRAGMA application_id").fetchone()
    (number,) = driver.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise _Unusable("is the file of another application")
    if number != NUMBER:
        raise _Unusable(f"has schema {number}, this program's is {NUMBER}")
    if driver.execute("SELECT directory FROM folder").fetchall() != [(os.fsencode(directory),)]:
        raise _Unusable("belongs to another folder")


def refuse_irregular(path: Path) -> None:
    """Raise :class:`StorageError` if a folder, a pipe or the like is where a file belongs."""
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise StorageError(
                path,
                "is where the cache belongs but is not a regular file; remove it, or set "
                "XDG_CACHE_HOME to another folder",
            )


def _build(path: Path, directory: Path) -> None:
    """Build an empty catalogue under another name, and rename it to *path* in place of the old."""
    building = path.with_name(f"{path.name}.building")
    refuse_irregular(building)
    refuse_irregular(path)
    _remove(building)
    os.close(os.open(building, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    built = False
    try:
        with closing(sqlite3.connect(building, isolation_level=None)) as driver:
            driver.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            driver.execute("PRAGMA journal_mode = WAL")
            schema.create(driver, directory)
        # The file first: without it a WAL means nothing to SQLite, while a file without its WAL
        # would show an older state.
        _remove(path)
        building.rename(path)
        built = True
    finally:
        if not built:  # it would take room on a full disk
            with suppress(OSError):
                _remove(building)


def _remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{ending}")  # noqa: PTH108 - not paths of their own


@contextmanager
def _lock_building(path: Path, directory: Path) -> Iterator[None]:
    """Create the cache folder, and keep other processes from building in it during the block."""
    try:
        make_private_directory(path.parent)
        if directory.exists() and path.parent.samefile(directory):
            raise StorageError(
                path, "would be among the sessions; set XDG_CACHE_HOME to another folder"
            )
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise StorageError(
            path.parent,
            f"the cache folder cannot be created ({error.strerror}); set XDG_CACHE_HOME to a "
            "folder that can be written",
        ) from error
    try:
        deadline = time.monotonic() + _BUILDING_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StorageBusy(
                        path, "is being built by another process; try again"
                    ) from None
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def is_damage(error: Exception) -> bool:
    """Return whether *error*, raised while the catalogue was used, means that it is damaged."""
    return isinstance(error, CatalogueDamaged) or (
        isinstance(error, sqlite3.Error) and primary_code(error) not in _NOT_DAMAGE
    )


def describe(error: Exception) -> str:
    """Return what a message may say of an error: those that Python's driver raises quote values."""
    by_sqlite = hasattr(error, "sqlite_errorcode") or isinstance(error, CatalogueDamaged)
    return str(error) if by_sqlite else type(error).__name__


def _storage_error(path: Path, error: sqlite3.Error | CatalogueDamaged) -> StateBackendError:
    if isinstance(error, CatalogueDamaged) or is_damage(error):
        return StorageError(path, f"the catalogue is damaged ({describe(error)})")
    return storage_error(path, error)


@contextmanager
def _typed_errors(path: Path) -> Iterator[None]:
    try:
        with os_error(path):
            yield
    except _Unusable as error:
        raise StorageError(path, f"the catalogue {error}") from error
    except sqlite3.Error as error:
        raise _storage_error(path, error) from error
