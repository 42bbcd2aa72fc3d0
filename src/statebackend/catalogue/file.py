"""The catalogue's file: where it lies, how it is opened, and when it is made anew.

It can be deleted at any time. One that is damaged, of another schema or of another folder is
replaced, by a file that is whole when it gets the name. Removing a database that others have open
is safe here: they go on with the old one, which SQLite notices when it closes it.
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
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from statebackend.catalogue import schema
from statebackend.catalogue.schema import APPLICATION_ID, NUMBER
from statebackend.catalogue.soundness import Unsound
from statebackend.errors import StorageBusy, StorageError
from statebackend.files.paths import cache_directory, make_private_directory, sqlite_uri
from statebackend.sqlite.faults import os_error, primary_code, storage_error

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
Action = Callable[[sqlite3.Connection], _T]
Progress = Callable[[int, int], object]
"""Called with how much of how much is done."""

_BUSY_TIMEOUT_S = 5.0
_PAGE_BYTES = 4096
_BUILDING_TIMEOUT_S = 5.0
# What is not about the file. The statements are known to be right, so all else is damage of it:
# zeroed sectors make tables lack, break constraints, and give values that are of no use.
_ELSEWHERE = {
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS),
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN),
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_NOMEM),
}
_OF_VALUES = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
_ERRORS = (sqlite3.Error, Unsound, *_OF_VALUES)


class _Unfit(Exception):
    """The file is none that can be used, because of its text."""


class _Raised(BaseException):
    """Holds what the caller's own code raised, which says nothing of the file."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def shielded(progress: Progress | None) -> Progress | None:
    """Return *progress* so that what it raises comes out of :func:`using` as it is."""
    if progress is None:
        return None

    def report(done: int, total: int) -> None:
        try:
            progress(done, total)
        except Exception as error:  # noqa: BLE001 - foreign code
            raise _Raised(error) from None

    return report


def catalogue_path(directory: Path) -> Path:
    """Return the file of the catalogue of the sessions folder *directory*, an absolute path."""
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()
    return cache_directory() / f"catalogue-{digest[:16]}.sqlite"


def using(directory: Path, action: Action[_T]) -> _T:
    """Return what *action* returns, given a connection to the catalogue of *directory*.

    The connection is in autocommit mode. A file that is missing or cannot be used is made anew, and
    one that turns out to be damaged during *action*, too, which is then called once more. Raises
    :class:`StorageError` when there can be none: nothing may be written, the disk is full, others
    keep it busy.
    """
    path = catalogue_path(directory)
    with _typed_errors(path):
        try:
            with closing(_opened(path, directory)) as driver:
                return action(driver)
        except _ERRORS as error:
            if not is_damage(error):
                raise
            _log.warning("%s: the catalogue is damaged (%s); it is made anew", path, told(error))
        make_anew(directory)
        with closing(_connected(path, directory)) as driver:
            return action(driver)


def make_anew(directory: Path) -> None:
    """Put an empty catalogue in the place of the one of *directory*, whatever that is."""
    path = catalogue_path(directory)
    with _typed_errors(path), _alone(path, directory):
        _build(path, directory)


def _opened(path: Path, directory: Path) -> sqlite3.Connection:
    """Return a connection to a catalogue that can be used, making it if need be."""
    with suppress(_Unfit, FileNotFoundError):
        return _connected(path, directory)
    with _alone(path, directory):
        try:  # another process may have made it meanwhile
            return _connected(path, directory)
        except FileNotFoundError:
            _log.debug("%s: there is no catalogue yet; it is made", path)
        except _Unfit as error:
            _log.warning("%s: the catalogue %s; it is made anew", path, error)
        _build(path, directory)
        return _connected(path, directory)


def _connected(path: Path, directory: Path) -> sqlite3.Connection:
    """Connect to an existing file. Raises :class:`_Unfit`, also for one that is damaged."""
    refuse_irregular(path)
    found = os.lstat(path)  # FileNotFoundError, which SQLite does not tell from others
    if stat.S_ISLNK(found.st_mode):
        raise _Unfit("is a link")
    if found.st_size % _PAGE_BYTES:
        raise _Unfit("was cut")
    driver = sqlite3.connect(
        sqlite_uri(path, "mode=rw"), uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None
    )
    fit = False
    try:
        _check(driver, directory)
        driver.execute("PRAGMA synchronous = NORMAL")
        fit = True
    except _ERRORS as error:
        if not is_damage(error):
            raise
        raise _Unfit(f"is damaged ({told(error)})") from error
    finally:
        if not fit:
            driver.close()
    return driver


def _check(driver: sqlite3.Connection, directory: Path) -> None:
    (application,) = driver.execute("PRAGMA application_id").fetchone()
    (number,) = driver.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise _Unfit("is a file of something else")
    if number != NUMBER:
        raise _Unfit(f"has schema {number}, this program's is {NUMBER}")
    if driver.execute("SELECT directory FROM folder").fetchall() != [(os.fsencode(directory),)]:
        raise _Unfit("is of another folder")


def refuse_irregular(path: Path) -> None:
    """Raise :class:`StorageError` if a folder, a pipe or the like is where a file belongs."""
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise StorageError(
                path,
                "is no plain file, and the cache's place; take it away, or set XDG_CACHE_HOME to "
                "another folder",
            )


def _build(path: Path, directory: Path) -> None:
    """Make an empty catalogue under another name, remove what is at *path*, and put it there."""
    building = path.with_name(f"{path.name}.building")
    refuse_irregular(building)
    refuse_irregular(path)
    _remove(building)
    os.close(os.open(building, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    done = False
    try:
        with closing(sqlite3.connect(building, isolation_level=None)) as driver:
            driver.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            driver.execute("PRAGMA journal_mode = WAL")
            schema.make(driver, directory)
        # The file first: without it a log is nothing to SQLite, while a log alone that is missing
        # would show an older state.
        _remove(path)
        building.rename(path)
        done = True
    finally:
        if not done:  # on a full disk, it is in everybody's way
            with suppress(OSError):
                _remove(building)


def _remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{ending}")  # noqa: PTH108 - these are no paths of their own


@contextmanager
def _alone(path: Path, directory: Path) -> Iterator[None]:
    """Make the cache folder, and keep others from building in it inside the block."""
    try:
        make_private_directory(path.parent)
        if directory.exists() and path.parent.samefile(directory):
            raise StorageError(path, "would lie among the sessions; set XDG_CACHE_HOME elsewhere")
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise StorageError(
            path.parent,
            f"the cache folder cannot be made ({error.strerror}); set XDG_CACHE_HOME to a folder "
            "that can be written",
        ) from error
    try:
        end = time.monotonic() + _BUILDING_TIMEOUT_S
        while not _locked(descriptor):
            if time.monotonic() > end:
                raise StorageBusy(path, "is being made by another process; try again")
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_damage(error: Exception) -> bool:
    """Tell whether *error*, met while the catalogue was used, means that it is damaged."""
    return isinstance(error, _ERRORS) and primary_code(error) not in _ELSEWHERE


def told(error: Exception) -> str:
    """Return what may be said of an error: the driver's and Python's own quote the values."""
    by_sqlite = hasattr(error, "sqlite_errorcode") or isinstance(error, Unsound)
    return str(error) if by_sqlite else type(error).__name__


@contextmanager
def _typed_errors(path: Path) -> Iterator[None]:
    try:
        with os_error(path):
            yield
    except _Unfit as error:
        raise StorageError(path, f"the catalogue {error}") from error
    except sqlite3.Error as error:
        if is_damage(error):
            raise StorageError(path, f"the catalogue is damaged ({told(error)})") from error
        raise storage_error(path, error) from error
    except Unsound as error:
        raise StorageError(path, f"the catalogue is damaged ({error})") from error
    except _Raised as raised:
        raise raised.error from None
