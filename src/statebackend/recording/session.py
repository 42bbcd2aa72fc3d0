"""One session open for writing: :class:`Session`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from copy import copy
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, orm
from sqlalchemy.exc import DBAPIError

from statebackend import telemetry
from statebackend.errors import (
    DuplicateEvent,
    InvalidTransition,
    InvalidValue,
    OutcomeUnknown,
    SessionForked,
    SessionLocked,
    SessionUnreadable,
    StateBackendError,
    StorageError,
)
from statebackend.files.claim import Claim
from statebackend.files.open_files import OpenFile
from statebackend.files.sqlite_locks import SqliteLocks
from statebackend.reading.view import typed_errors
from statebackend.recording.appends import Appends
from statebackend.recording.batch import Batch, appended
from statebackend.recording.commit_queue import Unit
from statebackend.recording.group_commit import Writer
from statebackend.repositories import costs, events, meta, plans
from statebackend.repositories.pending import PendingEvent
from statebackend.sqlite import checkpoint, engine
from statebackend.sqlite.faults import primary_code, storage_error
from statebackend.values import timestamps, validation
from statebackend.values.recorded import Cost, Event, PlanItem, SessionStatus


class Session(Writer, Appends[Event]):
    """A session open for writing, by this handle alone (SB-05). It reads as a view does.

    Made by :meth:`StateBackend.create` and :meth:`StateBackend.open`. An append that returned is
    durable: it survives a crash of the process and a loss of power. Reads see what is committed.
    """

    def __init__(
        self,
        path: Path,
        file: OpenFile,
        connection: Connection,
        *,
        held: Claim,
        locks: SqliteLocks,
    ) -> None:
        self._claim = held
        self._locks = locks
        self._view_connection: Connection | None = None
        super().__init__(path, file, connection)
        self._path_bytes, self._identity = os.fsencode(path), file.key
        self._row_limit_bytes = self._driver.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
        self._checked = set()
        self._status = meta.select_status(self._driver)

    def _reader(self) -> Connection:
        # A second connection, so that reading never waits in the middle of a write of this
        # handle, and never sees what is not committed.
        if self._view_connection is None:
            self._view_connection = engine.connect_for_reading(self.path)
        return self._view_connection

    def _close(self) -> None:
        try:
            self._locks.give_back()
            if self._view_connection is not None:
                engine.close(self._view_connection)
            engine.close(self._connection)
        finally:
            self._claim.release()
        checkpoint.remove_stale_wal(self.path, fold=True)

    def _take(self, pending: PendingEvent) -> Event:
        (sequence,) = self._write((pending,))
        return appended(pending, sequence)

    def batch(self) -> Batch:
        """Collect appends and write them in one transaction when the block ends: all or none.

        Use it with ``with``. Nothing is written if the block raises. A batch is for one thread;
        ``batch.events`` has the events with their sequences afterwards.
        """
        self._check_appendable()
        return Batch(self.session_id, self._row_limit_bytes, self._checked, self._write)

    def set_status(self, status: SessionStatus | str, *, ended_at: datetime | None = None) -> None:
        """Change the status, durable on return (SB-21).

        From running to any other, which sets ``ended_at`` (now when None); from completed or
        cancelled back to running, which clears it. Anything else is :class:`InvalidTransition`.
        """
        target = validation.check_word("status", SessionStatus, status)
        if ended_at is not None:
            if target is SessionStatus.RUNNING:
                raise InvalidValue("ended_at", "a running session has no end")
            ended_at = timestamps.normalize("ended_at", ended_at)
        with self._locked(), typed_errors(self.path):
            beneath = self._settle()
            try:
                self._change_status(target, ended_at)
            finally:
                if beneath:
                    self._begin_anew()

    def _change_status(self, target: SessionStatus, ended_at: datetime | None) -> None:
        self._connection.rollback()  # what a change left that failed or was interrupted
        self._check_transition(target)
        self._check_place()
        self._check_locks()
        try:
            self._update_status(target, ended_at)
        except BaseException:
            if not self._closed:  # an interrupt may have come after the commit
                self._connection.rollback()
                self._roll_back()  # SQLAlchemy may have lost track of the transaction
                self._status = meta.select_status(self._driver)
            raise
        self._status = target

    def _update_status(self, target: SessionStatus, ended_at: datetime | None) -> None:
        with orm.Session(self._connection) as session:
            row = meta.get(session, self.session_id)
            row.status = target
            row.ended_at = (
                None
                if target is SessionStatus.RUNNING
                else timestamps.to_text(ended_at or timestamps.now())
            )
            session.flush()
            try:
                session.commit()
            except DBAPIError as error:
                if isinstance(error.orig, sqlite3.Error):
                    raise self._commit_error(error.orig) from error
                raise
            if (lost := self._lost_commit()) is not None:
                raise lost

    def _check_transition(self, target: SessionStatus) -> None:
        if target not in _TRANSITIONS.get(self._status, ()):
            raise InvalidTransition(
                self.session_id, self._status, f"is {self._status} and cannot become {target}"
            )

    def _check_appendable(self) -> None:
        self._check_usable()
        if self._status != SessionStatus.RUNNING:
            raise InvalidTransition(
                self.session_id,
                self._status,
                f"is {self._status}, so nothing can be appended; "
                + ("set it to running first" if self._status in _TRANSITIONS else "it is final"),
            )

    def _check_before_append(self) -> None:
        if self._closing or self._status != _RUNNING:
            self._check_appendable()
        self._check_place()
        self._check_locks()

    def _check_place(self) -> None:
        """Refuse to write into a file which nobody will find."""
        try:
            found = os.stat(self._path_bytes)  # noqa: PTH116 - a third of a Path's time
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._identity:
            raise SessionUnreadable(self.path, "was moved, removed or replaced while it was open")

    def _check_locks(self) -> None:
        """Refuse to write where this process has lost its locks, and another has made use of that.

        Locks that were lost, and that nobody took, are taken anew.
        """
        claimed, whole = self._claim.keep(), self._locks.backed or self._locks.keep()
        if claimed and whole:
            return
        self._check_usable()  # a signal handler may have closed it meanwhile
        other = None if claimed else self._claim.other()
        self.close()
        if other is not None:
            raise SessionLocked(self.session_id, other.pid, other.host, other.since)
        what = "took its log away" if claimed else "could write it meanwhile"
        raise StorageError(self.path, f"another program {what}: {_LOST}")

    def _lost_commit(self) -> StateBackendError | None:
        """Return the error if what was just committed went into a log that nobody will find."""
        if self._locks.in_use() or self._closing:
            return None
        self.close()
        return OutcomeUnknown(
            self.path,
            "another program took the log away during the commit, and whether it was kept is "
            f"unknown; append again with the same event id: {_LOST}",
        )

    def _write(self, pending: Sequence[PendingEvent]) -> Sequence[int]:
        """Write all of *pending* in one transaction, alone or with others, return the sequences."""
        if self._pid != os.getpid():
            raise SessionForked(self.session_id)
        unit = Unit(pending)
        if telemetry.is_off():
            self._write_units((unit,))
            if unit.error is None and unit.sequences is not None:
                return unit.sequences
            return self._answer(unit)
        with telemetry.span("statebackend.append", session_id=self.session_id, events=len(pending)):
            self._write_units((unit,))
            return self._answer(unit)

    def _commit_error(self, error: sqlite3.Error) -> StateBackendError:
        """Undo what a failed commit left, and say what is known of its outcome (SB-19)."""
        undone = self._driver.in_transaction or primary_code(error) == sqlite3.SQLITE_FULL
        self._roll_back()
        if undone:
            return storage_error(self.path, error)
        self.close()
        return OutcomeUnknown(
            self.path,
            f"the commit failed ({error}), and whether it was kept is unknown; the session is "
            "closed: open it and append again with the same event id",
        )

    def _answer(self, unit: Unit) -> Sequence[int]:
        """Return the sequences of a unit that is done, or raise what befell it."""
        error = unit.error
        if error is None:
            assert unit.sequences is not None
            return unit.sequences
        if isinstance(error, sqlite3.Error):
            raise self._append_error(unit, error) from error
        if isinstance(error, StateBackendError):
            raise copy(error) from error.__cause__  # each thread has an object of its own
        raise error

    def _append_error(self, unit: Unit, error: sqlite3.Error) -> StateBackendError:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
            for one in unit.pending:
                stored = self._stored(one.id)
                if stored is not None:
                    return DuplicateEvent(
                        self.session_id, one.id, stored[0].sequence, _same(stored, one)
                    )
        return storage_error(self.path, error)

    def _stored(self, event_id: str) -> _Stored | None:
        def select(connection: Connection) -> _Stored | None:
            event = events.select_by_id(connection, event_id)
            if event is None:
                return None
            cost = costs.select_of_event(connection, event.sequence)
            items = plans.select_of_event(connection, event.sequence)
            return (event, cost, items)

        return self._read(select)


_RUNNING = SessionStatus.RUNNING  # a member of an enumeration is slow to look up on Python 3.11
_LOST = (
    "this process had lost its locks, as a process does that opens and closes the session's files "
    "by itself; the session is closed, so open it again"
)
_TRANSITIONS: dict[str, frozenset[SessionStatus]] = {
    SessionStatus.RUNNING: frozenset(SessionStatus) - {SessionStatus.RUNNING},
    SessionStatus.COMPLETED: frozenset({SessionStatus.RUNNING}),
    SessionStatus.CANCELLED: frozenset({SessionStatus.RUNNING}),
}

_Stored = tuple[Event, Cost | None, tuple[PlanItem, ...]]


def _same(stored: _Stored, pending: PendingEvent) -> bool:
    event, cost, items = stored
    return (
        not (pending.timestamp_given and event.timestamp != pending.timestamp)
        and (event.kind, event.producer, event.schema_version, event.payload)
        == (pending.kind, pending.producer, pending.schema_version, pending.payload)
        and (cost, items) == (pending.cost, pending.items)
    )
