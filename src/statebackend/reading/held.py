"""The connection that a view or a session holds: used by one thread at a time, until closed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock, get_ident
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from statebackend.errors import (
    SessionClosed,
    SessionForked,
    StateBackendError,
    StorageBusy,
    StorageError,
)
from statebackend.files.open_files import OpenFile
from statebackend.files.paths import SessionFiles
from statebackend.files.sqlite_locks import SqliteLocks
from statebackend.sqlite import engine
from statebackend.sqlite.faults import is_undecodable, storage_error
from statebackend.values import rows

_T = TypeVar("_T")


class HeldConnection:
    """A connection on the session file *path*, which *release* closes with all that belongs to it.

    *locks* are SQLite's on it, None where there is no WAL.

    ``lock`` is held by the thread that uses the connection, and ``user`` is its number, else 0. A
    second use by that thread, from a signal handler or a finalizer that runs within the first
    one, is refused: it could neither wait nor share the transaction. The lock is reentrant only so
    that such a call finds out instead of waiting for itself.
    """

    def __init__(
        self,
        path: Path,
        file: OpenFile,
        connection: Connection,
        *,
        locks: SqliteLocks | None,
        release: Callable[[], None],
    ) -> None:
        self.path = path
        self.session_id = SessionFiles(path).session_id
        self.connection = connection
        self.driver = engine.driver_of(connection)
        self.lock = RLock()
        self.user = 0
        self.closing = False
        self.closed = False
        self._file = file
        self._locks = locks
        self._release = release
        self._pid = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Tell whether this is a child that inherited the connection."""
        return self._pid != os.getpid()

    def check_usable(self) -> None:
        """Raise :class:`SessionForked` or :class:`SessionClosed`."""
        if self._pid != os.getpid():
            raise SessionForked(self.session_id)
        if self.closing:
            raise SessionClosed(self.session_id)

    def refuse_reentry(self) -> None:
        """Raise :class:`StorageBusy` if this thread is using the connection already."""
        if self.user == get_ident():
            raise StorageBusy(
                self.path,
                "is in use by another call of this thread, which this one interrupted: use the "
                "session after that call has returned, not in a signal handler",
            )

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock; raise :class:`SessionForked`, :class:`SessionClosed`, `StorageBusy`."""
        if self._pid != os.getpid():  # before the lock, which a thread of the parent may hold
            raise SessionForked(self.session_id)
        self.refuse_reentry()
        with self.lock:
            self.user = get_ident()
            try:
                self.check_usable()
                yield
            finally:
                self.user = 0

    def read(self, select: Callable[[Connection], _T]) -> _T:
        """Return what *select* reads, in a short transaction of its own.

        The driver decodes text faster than a function of ours, but fails at one that is not UTF-8:
        then the function decodes, from here on.
        """
        with self.exclusive():
            try:
                return self._select(select)
            except StorageError as error:
                if not is_undecodable(error.__cause__):
                    raise
            self.driver.text_factory = rows.text
            return self._select(select)

    def _select(self, select: Callable[[Connection], _T]) -> _T:
        if self._locks is not None and not self._locks.in_use():
            raise StorageError(
                self.path,
                "its WAL was removed by another program, so that a read would show old rows: close "
                "the session here, and open it again",
            )
        with typed_errors(self.path):
            self.connection.rollback()  # what an interrupted read may have left
            self.connection.begin()  # not by `with`: interrupted at its end, it never lets go
            try:
                return select(self.connection)
            finally:
                self.connection.rollback()

    def close(self) -> None:
        """Close the file; harmless when repeated, and in a child that inherited it.

        Closing again finishes what an interrupt cut off.
        """
        if self._pid != os.getpid():
            self.closed = True  # never the inherited connection itself: see open_files
            return
        self.refuse_reentry()
        with self.lock:
            self.user = get_ident()
            try:
                self.close_locked()
            finally:
                self.user = 0

    def close_locked(self) -> None:
        """Close, for the thread that holds the lock."""
        self.closing = True
        if not self.closed:  # set last, so that closing again finishes what was interrupted
            self._release()
            self._file.close()
            self.closed = True


@contextmanager
def typed_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite and SQLAlchemy raise inside the block into the package's own errors."""
    try:
        yield
    except StateBackendError:
        raise
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise storage_error(path, error.orig) from error
        raise
    except (AssertionError, SQLAlchemyError) as error:
        # An interrupt inside SQLAlchemy's own clean-up trips it over its state, and is hidden.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
    except sqlite3.Error as error:
        raise storage_error(path, error) from error
