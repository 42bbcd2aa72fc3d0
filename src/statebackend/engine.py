"""The one engine of the process, and the connections that it gives for one session file.

Each setting is a small function that says why; a connection that SQLite did not set up as asked
is refused.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from sqlalchemy import Connection, ExceptionContext, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from statebackend import claim, models, private_copy
from statebackend.errors import StorageError, StorageUnsupported
from statebackend.faults import primary_code, storage_error
from statebackend.header import has_log
from statebackend.locks import is_read_elsewhere
from statebackend.paths import lock_path, sqlite_uri, wal_path

BUSY_TIMEOUT_MS = 5_000
FOLD_TIMEOUT_MS = 500
LOG_KEPT_BYTES = 8 * 1024 * 1024
"""To so much a log that has been folded in is cut; one of SQLite's own folds is half of it."""
_BEGIN = "statebackend_begin"
_DRIVER = "statebackend_driver"
_TIDYING_ATTEMPTS = 20
APPEND_ONLY_TABLES = tuple(
    table.name for table in models.Base.metadata.sorted_tables if table.name != "session_meta"
)


_wanted: ContextVar[str] = ContextVar("statebackend_wanted_uri")


def connect_for_writing(
    path: Path, check: Callable[[sqlite3.Connection], None] | None = None
) -> Connection:
    """Return a new connection on the existing session file *path*, WAL, durable, checked.

    Until :func:`guard` is called on it, it may change the schema. *check* is given it before that,
    while it cannot write. Raises what that raises, :class:`StorageUnsupported`,
    :class:`StorageBusy` and the other storage errors.
    """
    connection = _connect(path, sqlite_uri(path, "mode=rw"), begin="BEGIN IMMEDIATE")
    with _closed_on_error(path, connection):
        driver = driver_of(connection)
        if check is not None:
            driver.execute("PRAGMA query_only = ON")
            try:
                check(driver)
            except StorageError as error:
                cause = error.__cause__
                if cause is not None and primary_code(cause) == sqlite3.SQLITE_CANTOPEN:
                    _write_ahead(driver, path)  # says so where it is WAL that is not possible
                raise
            driver.execute("PRAGMA query_only = OFF")
        _write_ahead(driver, path)
        _writable(driver)
        _durable(driver)
        _short_log(driver)
        _references(driver, path)
    return connection


def connect_for_reading(path: Path) -> Connection:
    """Return a new connection on the session file *path* that cannot write, and leaves no trace.

    On a file without a log, a read-only connection would leave `-wal` and `-shm` behind; one that
    may write takes them away again when it closes. Beside a log, only a read-only one is sure not
    to fold a dead writer's log into the file. In a folder that takes no files, it is on a copy.
    """
    if private_copy.is_needed(path):
        with private_copy.made(path) as copy:
            return _reading(path, sqlite_uri(copy, private_copy.URI_MODE))
    mode = "mode=ro" if has_log(path) else "mode=rw"
    return _reading(path, sqlite_uri(path, mode))


def _reading(path: Path, uri: str) -> Connection:
    connection = _connect(path, uri, begin="BEGIN")
    with _closed_on_error(path, connection):
        driver = driver_of(connection)
        driver.execute("PRAGMA query_only = ON")
        driver.set_authorizer(_authorize_reader)
    return connection


def close_reader(connection: Connection, path: Path) -> None:
    """Close a connection of :func:`connect_for_reading`, leaving the log of a dead writer alone.

    The last connection folds the log in as it closes, if it may write. A writer that closed has
    taken its lock file away, and wants that; one that died has not.
    """
    with ExitStack() as stack:
        if has_log(path) and lock_path(path).exists():
            with suppress(sqlite3.Error):
                stack.enter_context(closing(_come_last(path, "mode=ro")))
        close(connection)
    take_log_away(path, fold=False)


def take_log_away(path: Path, *, fold: bool) -> None:
    """Do what the last connection does as it closes, where two of them closed at once.

    Each then took the other for the last one, and left the log behind: an empty one, or, of a
    writer, who may *fold* it. It is left to whoever is on the file still, and who is not any more
    asks after letting go; so one of them does it.
    """
    for _ in range(_TIDYING_ATTEMPTS):
        if not wal_path(path).exists() or lock_path(path).exists():
            return
        if not fold and has_log(path):
            return
        with claim.only_here(path) as only:
            if not only or is_read_elsewhere(path):
                return
            with suppress(sqlite3.Error):
                _come_last(path, "mode=rw").close()


def _come_last(path: Path, mode: str) -> sqlite3.Connection:
    last = sqlite3.connect(sqlite_uri(path, mode), uri=True)
    last.execute("SELECT 1 FROM sqlite_schema").fetchone()  # only now is it on the log
    return last


def connect_in_memory() -> Connection:
    """Return a connection on a new, empty database that is never written to a disk."""
    return _connect(Path(":memory:"), ":memory:", begin="BEGIN IMMEDIATE")


def guard(connection: Connection) -> None:
    """Leave a writing connection only what a sole writer does (SB-10).

    It may insert into the append-only tables and update ``session_meta``. UPDATE, DELETE and
    REPLACE elsewhere, DDL, ATTACH and every pragma that could switch this off fail.
    """
    driver = driver_of(connection)
    _forbid_replace(driver)
    driver.set_authorizer(_authorize_writer)


def fold_log(driver: sqlite3.Connection) -> bool:
    """Fold the whole log in, and let the next commit begin it anew; tell whether that was possible.

    For the writer's connection, between transactions. It waits a moment for readers that are in a
    page; a snapshot that is held longer makes it impossible, as does an error of the system.
    """
    try:
        driver.execute(f"PRAGMA busy_timeout = {FOLD_TIMEOUT_MS}")
        (busy, _frames, _folded) = driver.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    except sqlite3.Error:
        return False  # nothing is lost by it: the log has everything, and SQLite's folds go on
    else:
        return not busy
    finally:
        driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


def close(connection: Connection) -> None:
    """Close a connection of this module; harmless when repeated, also after an interrupt.

    SQLAlchemy takes one for closed whose closing was interrupted before it began.
    """
    connection.close()
    connection.get_execution_options()[_DRIVER].close()


def driver_of(connection: Connection) -> sqlite3.Connection:
    """Return the ``sqlite3`` connection below SQLAlchemy's."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _connect(path: Path, uri: str, *, begin: str) -> Connection:
    token = _wanted.set(uri)
    try:
        connection = _engine.connect()
    except sqlite3.Error as error:
        raise storage_error(path, error) from error
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise storage_error(path, error.orig) from error
        raise
    finally:
        _wanted.reset(token)
    connection.info[_BEGIN] = begin
    connection.execution_options(**{_DRIVER: driver_of(connection)})
    claim.keep_in_child(connection)
    return connection


@contextmanager
def _closed_on_error(path: Path, connection: Connection) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        close(connection)
        raise storage_error(path, error) from error
    except BaseException:
        close(connection)
        raise


def _create() -> sqlite3.Connection:
    # The legacy control is what leaves transactions to us: on Python 3.12 and newer it must be
    # said, and `autocommit=True` there would make SQLAlchemy's commit do nothing.
    legacy: dict[str, Any] = {}
    if sys.version_info >= (3, 12):
        legacy["autocommit"] = sqlite3.LEGACY_TRANSACTION_CONTROL
    connection: sqlite3.Connection = sqlite3.connect(
        _wanted.get(),
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,  # set before anything can find the file busy
        isolation_level=None,
        check_same_thread=False,  # a handle may move between threads; its lock serialises use
        cached_statements=256,
        **legacy,
    )
    return connection


# NullPool: a connection belongs to one file and one handle, so there is nothing to share. One
# engine for all, because the cache of compiled statements lives on it.
# Messages of its errors go into logs and traces, so they quote no values.
_engine = create_engine("sqlite://", creator=_create, poolclass=NullPool, hide_parameters=True)


@event.listens_for(_engine, "begin")
def _begin(connection: Connection) -> None:
    # A transaction that reads first and writes later cannot be upgraded once somebody else has
    # committed, so a writing one takes the write lock at its start.
    driver = driver_of(connection)
    if driver.in_transaction:  # left by an interrupt, where SQLAlchemy does not know of it
        driver.execute("ROLLBACK")
    driver.execute(connection.info[_BEGIN])


@event.listens_for(_engine, "handle_error")
def _survive_interrupts(context: ExceptionContext) -> None:
    # SQLAlchemy gives a connection up on which a KeyboardInterrupt arrived, since that may have cut
    # a conversation with a server short. Here there is no server, and the connection is the handle.
    if not isinstance(context.original_exception, Exception):
        context.is_disconnect = False


def _write_ahead(driver: sqlite3.Connection, path: Path) -> None:
    """WAL, so that readers and the writer do not wait for each other (SB-07)."""
    try:
        (mode,) = driver.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError as error:
        # A file that says WAL already, where its log and index cannot be had.
        if primary_code(error) != sqlite3.SQLITE_CANTOPEN or not _takes_files(path.parent):
            raise
        mode = str(error)
    if mode != "wal":
        raise StorageUnsupported(
            path,
            f"SQLite's WAL mode is not possible on this file system (it answered {mode!r}); "
            "keep sessions on a local disk",
        )


def _writable(driver: sqlite3.Connection) -> None:
    """Refuse a file or log that SQLite, refused to open it for writing, opened for reading.

    It does so without a word, and every later write would fail.
    """
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        driver.execute("UPDATE session_meta SET status = status WHERE 0")  # BEGIN would not tell
    except sqlite3.OperationalError as error:
        # Somebody else writes, so one can; or there is no table yet, and a migration makes it.
        if primary_code(error) not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_ERROR}:
            raise
    finally:
        driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


def _takes_files(folder: Path) -> bool:
    """Tell whether a file can be made here: neither rights, room nor descriptors are lacking."""
    try:
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _durable(driver: sqlite3.Connection) -> None:
    """FULL, since in WAL mode NORMAL may lose the last commits at a power loss."""
    driver.execute("PRAGMA synchronous = FULL")


def _short_log(driver: sqlite3.Connection) -> None:
    """Give the room of a long log back, once it is folded in and begun anew."""
    driver.execute(f"PRAGMA journal_size_limit = {LOG_KEPT_BYTES}")


def _references(driver: sqlite3.Connection, path: Path) -> None:
    """Let SQLite enforce the references of the schema, which it does not by default."""
    driver.execute("PRAGMA foreign_keys = ON")
    if driver.execute("PRAGMA foreign_keys").fetchone() != (1,):
        raise StorageUnsupported(path, "this SQLite library cannot enforce foreign keys")


_APPEND_ONLY = "".join(
    (
        "PRAGMA recursive_triggers = ON; BEGIN;",
        *(
            f"CREATE TEMP TRIGGER {table}_is_append_only BEFORE DELETE ON main.{table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END;"
            for table in APPEND_ONLY_TABLES
        ),
        "COMMIT",
    )
)


def _forbid_replace(driver: sqlite3.Connection) -> None:
    """Abort INSERT OR REPLACE, whose deletes no authorizer is asked about (SB-10).

    The triggers are TEMP ones: they live in the connection, not in the file. Deletes by REPLACE
    fire triggers only while ``recursive_triggers`` is on.
    """
    driver.executescript(_APPEND_ONLY)


_ALWAYS_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_TRANSACTION,
    sqlite3.SQLITE_SAVEPOINT,
}
# Pragmas that only tell; those in the second set change something when given a value.
_TELLING_PRAGMAS = {
    "collation_list",
    "compile_options",
    "data_version",
    "database_list",
    "foreign_key_check",
    "foreign_key_list",
    "freelist_count",
    "function_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "page_count",
    "pragma_list",
    "quick_check",
    "table_info",
    "table_list",
    "table_xinfo",
}
_TELLING_WITHOUT_VALUE = {
    "auto_vacuum",
    "busy_timeout",
    "cache_size",
    "encoding",
    "foreign_keys",
    "journal_mode",
    "max_page_count",
    "page_size",
    "query_only",
    "read_uncommitted",
    "recursive_triggers",
    "schema_version",
    "synchronous",
    "user_version",
    "wal_autocheckpoint",
}


# What the writer needs to fold its log in.
_WRITERS_PRAGMAS = {("wal_checkpoint", "RESTART")} | {
    ("busy_timeout", str(timeout_ms)) for timeout_ms in (BUSY_TIMEOUT_MS, FOLD_TIMEOUT_MS)
}


# Cached, so that asking again runs no Python: an interrupt that arrives in Python code here is
# swallowed by the driver and taken for a refusal.
@lru_cache(maxsize=4096)
def _authorize_reader(action: int, one: str | None, two: str | None, *_rest: str | None) -> int:
    if action in _ALWAYS_ALLOWED or (action == sqlite3.SQLITE_PRAGMA and _tells(one, two)):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


@lru_cache(maxsize=4096)
def _authorize_writer(
    action: int, one: str | None, two: str | None, database: str | None, trigger: str | None
) -> int:
    """Allow what a sole writer does: insert into the logs, update ``session_meta``; and reading."""
    if action == sqlite3.SQLITE_INSERT and database == "main" and one in APPEND_ONLY_TABLES:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_UPDATE and database == "main" and one == "session_meta":
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and (one, two) in _WRITERS_PRAGMAS:
        return sqlite3.SQLITE_OK
    return _authorize_reader(action, one, two, database, trigger)


def _tells(pragma: str | None, value: str | None) -> bool:
    return pragma in _TELLING_PRAGMAS or (pragma in _TELLING_WITHOUT_VALUE and value is None)


# SQLAlchemy puts some questions to an engine's first connection. A damaged file could not answer
# them, and that connection would never be closed.
close(connect_in_memory())
