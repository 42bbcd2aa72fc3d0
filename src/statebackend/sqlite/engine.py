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


_wanted: ContextVar[str] = ContextVar("statebackend_wanted_uri")


def connect_for_writing(
    path: Path, check: Callable[[sqlite3.Connection], None] | None = None
) -> Connection:
    """Return a new connection on the existing session file *path*, WAL, durable, checked.

    Until ``authorizer.allow_appends_only`` is called on it, it may change the schema. *check* gets
    the connection before that, while it cannot write. Raises what *check* raises,
    :class:`StorageUnsupported`, :class:`StorageBusy` and the other storage errors.
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
                    settings.set_wal(driver, path)  # says so where it is WAL that is not possible
                raise
            driver.execute("PRAGMA query_only = OFF")
        settings.set_wal(driver, path)
        settings.check_writable(driver)
        settings.set_synchronous(driver)
        settings.limit_wal(driver)
        settings.set_foreign_keys(driver, path)
    return connection


def connect_for_reading(path: Path) -> Connection:
    """Return a new connection on the session file *path* that cannot write, and leaves no trace.

    Raises the storage errors, and :class:`StorageBusy` at the begin or end of a transaction on a
    file that this user may not write and that was changed meanwhile.
    """
    mode = read_mode(path)
    connection = _connect(path, sqlite_uri(path, mode.parameters), begin="BEGIN")
    connection.info[_READ_MODE] = mode
    with _closed_on_error(path, connection):
        driver = driver_of(connection)
        driver.execute("PRAGMA query_only = ON")
        driver.set_authorizer(authorizer.authorize_reader)
    return connection


def close_reader(connection: Connection, path: Path) -> None:
    """Close a connection of :func:`connect_for_reading`, leaving the log of a dead writer alone.

    The last connection folds the log in as it closes, if it may write. A writer that closed has
    taken its lock file away, and wants that; one that died has not.
    """
    with ExitStack() as stack:
        if has_wal(path) and SessionFiles(path).lock.exists():
            with suppress(sqlite3.Error):
                stack.enter_context(closing(checkpoint.last_connection(path, "mode=ro")))
        close(connection)
    checkpoint.remove_stale_wal(path, may_checkpoint=False)


def read_by_default(connection: Connection) -> None:
    """Let transactions of SQLAlchemy's on a writing connection be reads from here on.

    Appends begin theirs on the driver connection, with BEGIN IMMEDIATE.
    """
    connection.info[_BEGIN] = "BEGIN"


def connect_in_memory() -> Connection:
    """Return a connection on a new, empty database that is never written to a disk."""
    return _connect(Path(":memory:"), ":memory:", begin="BEGIN IMMEDIATE")


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
    open_files.keep_in_child(connection)
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
        timeout=settings.BUSY_TIMEOUT_MS / 1000,  # set before anything can find the file busy
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


@event.listens_for(_engine, "begin")
@event.listens_for(_engine, "rollback")
def _check_unchanged(connection: Connection) -> None:
    if (mode := connection.info.get(_READ_MODE)) is not None:
        mode.check_unchanged()


@event.listens_for(_engine, "handle_error")
def _survive_interrupts(context: ExceptionContext) -> None:
    # SQLAlchemy gives a connection up on which a KeyboardInterrupt arrived, since that may have cut
    # a conversation with a server short. Here there is no server, and the connection is the handle.
    if not isinstance(context.original_exception, Exception):
        context.is_disconnect = False


# SQLAlchemy puts some questions to an engine's first connection. A damaged file could not answer
# them, and that connection would never be closed.
close(connect_in_memory())
