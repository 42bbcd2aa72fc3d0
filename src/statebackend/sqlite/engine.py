"""The one SQLAlchemy engine of the process, and connections on one session file.

``settings`` has the pragmas, each with its reason.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, ExceptionContext, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from statebackend.errors import StorageError
from statebackend.files import open_files
from statebackend.files.header import has_wal
from statebackend.files.paths import SessionFiles, sqlite_uri
from statebackend.sqlite import authorizer, checkpoint, settings
from statebackend.sqlite.faults import primary_code, storage_error
from statebackend.sqlite.read_mode import read_mode

_BEGIN = "statebackend_begin"
_READ_MODE = "statebackend_read_mode"
_DRIVER = "statebackend_driver"


_uri: ContextVar[str] = ContextVar("statebackend_uri")


def connect_for_writing(
    path: Path, check: Callable[[sqlite3.Connection], None] | None = None
) -> Connection:
    """Return a new connection on the existing session file *path*, in WAL mode and durable.

    *check* is called with the connection before it can write. Until
    ``authorizer.allow_appends_only`` is called, it may change the schema. Raises what *check*
    raises, :class:`StorageUnsupported`, :class:`StorageBusy` and the other storage errors.
    """
    connection = _connect(path, sqlite_uri(path, "mode=rw"), begin="BEGIN IMMEDIATE")
    with _close_on_error(path, connection):
        driver = driver_of(connection)
        if check is not None:
            driver.execute("PRAGMA query_only = ON")
            try:
                check(driver)
            except StorageError as error:
                cause = error.__cause__
                if cause is not None and primary_code(cause) == sqlite3.SQLITE_CANTOPEN:
                    settings.set_wal(driver, path)  # a clearer error if WAL mode is not possible
                raise
            driver.execute("PRAGMA query_only = OFF")
        settings.set_wal(driver, path)
        settings.check_writable(driver)
        settings.set_synchronous(driver)
        settings.limit_wal(driver)
        settings.set_foreign_keys(driver, path)
    return connection


def connect_for_reading(path: Path) -> Connection:
    """Return a new connection on the session file *path* that cannot write and leaves no trace.

    Raises the storage errors, and :class:`StorageBusy` at the begin or end of a transaction on a
    file that this user may not write and that was changed meanwhile.
    """
    mode = read_mode(path)
    connection = _connect(path, sqlite_uri(path, mode.parameters), begin="BEGIN")
    connection.info[_READ_MODE] = mode
    with _close_on_error(path, connection):
        driver = driver_of(connection)
        driver.execute("PRAGMA query_only = ON")
        driver.set_authorizer(authorizer.authorize_reader)
    return connection


def close_reader(connection: Connection, path: Path) -> None:
    """Close a connection of :func:`connect_for_reading` without checkpointing a dead writer's WAL.

    SQLite checkpoints when the last connection closes, if that may write. The lock file shows which
    WAL this is: a writer that closes removes its lock file, one that dies does not.
    """
    with ExitStack() as stack:
        if has_wal(path) and SessionFiles(path).lock.exists():
            with suppress(sqlite3.Error):
                stack.enter_context(closing(checkpoint.last_connection(path, "mode=ro")))
        close(connection)
    checkpoint.remove_stale_wal(path, may_checkpoint=False)


def read_by_default(connection: Connection) -> None:
    """Begin SQLAlchemy's later transactions on a writing connection with a plain BEGIN.

    Appends send BEGIN IMMEDIATE on the driver connection.
    """
    connection.info[_BEGIN] = "BEGIN"


def connect_in_memory() -> Connection:
    """Return a connection on a new, empty database in memory."""
    return _connect(Path(":memory:"), ":memory:", begin="BEGIN IMMEDIATE")


def close(connection: Connection) -> None:
    """Close a connection of this module; harmless when repeated, also after an interrupt.

    The driver is closed as well: after an interrupt, SQLAlchemy may take an open one for closed.
    """
    connection.close()
    connection.get_execution_options()[_DRIVER].close()


def driver_of(connection: Connection) -> sqlite3.Connection:
    """Return the ``sqlite3`` connection behind SQLAlchemy's."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _connect(path: Path, uri: str, *, begin: str) -> Connection:
    token = _uri.set(uri)
    try:
        connection = _engine.connect()
    except sqlite3.Error as error:
        raise storage_error(path, error) from error
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise storage_error(path, error.orig) from error
        raise
    finally:
        _uri.reset(token)
    connection.info[_BEGIN] = begin
    connection.execution_options(**{_DRIVER: driver_of(connection)})
    open_files.keep_in_child(connection)
    return connection


@contextmanager
def _close_on_error(path: Path, connection: Connection) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        close(connection)
        raise storage_error(path, error) from error
    except BaseException:
        close(connection)
        raise


def _connect_driver() -> sqlite3.Connection:
    # Legacy control with isolation_level=None leaves transactions to us. Python 3.12 and newer need
    # it spelled out: `autocommit=True` would make SQLAlchemy's commit do nothing.
    legacy: dict[str, Any] = {}
    if sys.version_info >= (3, 12):
        legacy["autocommit"] = sqlite3.LEGACY_TRANSACTION_CONTROL
    connection: sqlite3.Connection = sqlite3.connect(
        _uri.get(),
        uri=True,
        timeout=settings.BUSY_TIMEOUT_MS / 1000,  # before the first statement can find it busy
        isolation_level=None,
        check_same_thread=False,  # a handle may move between threads; its lock serialises use
        cached_statements=8,  # those of a batch, or of an append and a read; each takes 2 kB
        **legacy,
    )
    return connection


# NullPool: a connection belongs to one file and one handle, so there is nothing to pool. One engine
# for all files, because the cache of compiled statements belongs to the engine. hide_parameters:
# error messages go into logs and traces and must not quote values.
_engine = create_engine(
    "sqlite://", creator=_connect_driver, poolclass=NullPool, hide_parameters=True
)


@event.listens_for(_engine, "begin")
def _begin(connection: Connection) -> None:
    # A transaction that reads first cannot become a writing one after another commit, so a writer
    # takes the write lock at the start (BEGIN IMMEDIATE).
    driver = driver_of(connection)
    if driver.in_transaction:  # left by an interrupt, unknown to SQLAlchemy
        driver.execute("ROLLBACK")
    driver.execute(connection.info[_BEGIN])


@event.listens_for(_engine, "begin")
@event.listens_for(_engine, "rollback")
def _check_unchanged(connection: Connection) -> None:
    if (mode := connection.info.get(_READ_MODE)) is not None:
        mode.check_unchanged()


@event.listens_for(_engine, "handle_error")
def _survive_interrupts(context: ExceptionContext) -> None:
    # SQLAlchemy drops a connection after a KeyboardInterrupt, which may have cut off a server's
    # reply. Here there is no server, and the handle keeps its one connection.
    if not isinstance(context.original_exception, Exception):
        context.is_disconnect = False


# SQLAlchemy runs some queries on an engine's first connection. On a damaged file they would fail,
# and that connection would never be closed.
close(connect_in_memory())
