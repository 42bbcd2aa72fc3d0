"""One open session: a :class:`SessionView` reads, a :class:`Session` also writes."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Literal, Self, TypeVar, overload

from sqlalchemy import Connection, func, orm, select
from sqlalchemy.exc import DBAPIError

from statebackend import claim, engine, models, telemetry, timestamps, validation
from statebackend.appending import Appends
from statebackend.claim import Claim, FileKey
from statebackend.errors import (
    DuplicateEvent,
    InvalidTransition,
    InvalidValue,
    OutcomeUnknown,
    SessionClosed,
    SessionForked,
    StateBackendError,
)
from statebackend.faults import primary_code, storage_error
from statebackend.paths import SUFFIX
from statebackend.repositories import costs, events, meta, plans, producers
from statebackend.repositories.pending import PendingEvent
from statebackend.repositories.statements import table_of
from statebackend.values import (
    Cost,
    CostEntry,
    CostTotals,
    Event,
    EventHeader,
    EventKind,
    PlanDecision,
    PlanEntry,
    PlanItem,
    Producer,
    ProducerCategory,
    ProducerEntry,
    SessionCounts,
    SessionInfo,
    SessionStatus,
)

_PAGE_ROWS = 2_000
_PAGE_BYTES = 4 * 1024 * 1024
_Row = TypeVar("_Row", CostEntry, PlanEntry)


class _Handle(ABC):
    """What a view and a session share: a life in one process, and reading committed rows.

    Every read is a short transaction of its own, so that no snapshot is held between two pages and
    none keeps the log from being folded in. Methods may be called from any thread.
    """

    def __init__(self, path: Path, file: FileKey, connection: Connection) -> None:
        self.path = path
        self.session_id = path.name.removesuffix(SUFFIX)
        self._lock = RLock()
        self._pid = os.getpid()
        self._file = file
        self._connection = connection
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; harmless when repeated. The status stays as it is."""
        if self._pid != os.getpid():
            self._closed = True  # never the inherited connection itself: see claim.enter_child
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                try:
                    self._close()
                finally:
                    claim.file_closed(self._file)

    def __del__(self) -> None:
        if sys.is_finalizing():  # modules are half gone; the kernel and SQLite clean up after us
            return
        if not getattr(self, "_closed", True) and self._pid == os.getpid():
            warnings.warn(
                f"session {self.session_id} was never closed", ResourceWarning, stacklevel=2
            )
            self.close()

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _reader(self) -> Connection: ...

    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            raise SessionForked(self.session_id)
        if self._closed:
            raise SessionClosed(self.session_id)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._pid != os.getpid():  # before the lock, which a thread of the parent may hold
            raise SessionForked(self.session_id)
        with self._lock:
            self._check_usable()
            yield

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._locked(), _typed_errors(self.path):
            connection = self._reader()
            connection.rollback()  # what an interrupt of the last reading may have left
            connection.begin()  # not by `with`: interrupted at its end, it never lets go
            try:
                yield connection
            finally:
                connection.rollback()

    @property
    def info(self) -> SessionInfo:
        """Return the session's summary, read now: its row, and the cost summed (SB-22)."""
        live = claim.writer_of(self.path) is not None
        with self._reading() as connection:
            return meta.select_info(connection, live=live)

    @overload
    def events(
        self,
        after_sequence: int = 0,
        kinds: Iterable[EventKind | str] | None = None,
        limit: int | None = None,
        last: int | None = None,
        payloads: Literal[True] = True,
    ) -> Iterator[Event]: ...

    @overload
    def events(
        self,
        after_sequence: int = 0,
        kinds: Iterable[EventKind | str] | None = None,
        limit: int | None = None,
        last: int | None = None,
        *,
        payloads: Literal[False],
    ) -> Iterator[EventHeader]: ...

    def events(
        self,
        after_sequence: int = 0,
        kinds: Iterable[EventKind | str] | None = None,
        limit: int | None = None,
        last: int | None = None,
        payloads: bool = True,
    ) -> Iterator[EventHeader]:
        """Return the committed events in sequence order, lazily, by pages.

        Those after *after_sequence*, of these *kinds* (None: all), at most *limit*, or of those
        the *last* so many. Events appended while iterating are seen. Without *payloads*, headers
        come, and large payloads are not read.
        """
        validation.check_integer("after_sequence", after_sequence)
        words = None if kinds is None else _kind_words(kinds)
        for field, value in (("limit", limit), ("last", last)):
            if value is not None:
                validation.check_integer(field, value)
        return self._events(after_sequence, words, limit, last, payloads)

    def _events(
        self,
        after: int,
        kinds: Collection[str] | None,
        limit: int | None,
        last: int | None,
        payloads: bool,
    ) -> Iterator[EventHeader]:
        left = validation.MAX_INTEGER if limit is None else limit
        if last is not None:
            left = min(left, last)
            if last:
                with self._reading() as connection:
                    after = max(after, events.sequence_before_last(connection, kinds, last))
        while left > 0:
            with self._reading() as connection:
                page = events.select_page(
                    connection,
                    after_sequence=after,
                    kinds=kinds,
                    limit=min(left, _PAGE_ROWS),
                    limit_bytes=_PAGE_BYTES,
                    payloads=payloads,
                )
            if not page:
                return
            yield from page
            after = page[-1].sequence
            left -= len(page)

    def event(self, event_id: str) -> Event | None:
        """Return the event of this id, None when the session has none."""
        validation.check_text("event_id", event_id)
        with self._reading() as connection:
            return events.select_by_id(connection, event_id)

    def counts(self) -> SessionCounts:
        """Return the number of rows per table, and of events per kind."""
        with self._reading() as connection:
            by_kind = events.count_by_kind(connection)
            others = {
                model.__tablename__: connection.scalar(
                    select(func.count()).select_from(table_of(model))
                )
                or 0
                for model in (models.CostLedger, models.PlanItem, models.Producer)
            }
        return SessionCounts(events=sum(by_kind.values()), by_kind=by_kind, **others)

    def costs(self) -> Iterator[CostEntry]:
        """Return the rows of the ledger in sequence order, lazily."""
        return self._pages(
            lambda connection, after: costs.select_page(
                connection, after_sequence=after, limit=_PAGE_ROWS
            )
        )

    def cost_totals(self) -> CostTotals:
        """Return the sums over the ledger, read now."""
        with self._reading() as connection:
            return costs.select_totals(connection)

    def plan_items(self, decision: PlanDecision | str | None = None) -> Iterator[PlanEntry]:
        """Return the plan items in sequence order, lazily; only those so decided, if given."""
        if decision is not None:
            decision = validation.check_word("decision", PlanDecision, decision)
        return self._pages(
            lambda connection, after: plans.select_page(
                connection, after_sequence=after, decision=decision, limit=_PAGE_ROWS
            )
        )

    def _pages(self, select_page: Callable[[Connection, int], Sequence[_Row]]) -> Iterator[_Row]:
        after = 0
        while True:
            with self._reading() as connection:
                page = select_page(connection, after)
            if not page:
                return
            yield from page
            after = page[-1].sequence

    def producers(self) -> list[ProducerEntry]:
        """Return every producer that wrote to the session, in order of first sighting."""
        with self._reading() as connection:
            return producers.select_all(connection)

    def missing_producers(self, installed: Iterable[Producer]) -> list[ProducerEntry]:
        """Return the producers that are not *installed*, read from ``producers`` alone (SB-25).

        The reserved kernel producer is never missing.
        """
        have = set(installed)
        return [
            entry
            for entry in self.producers()
            if entry.producer.category != ProducerCategory.KERNEL and entry.producer not in have
        ]

    def open_tool_calls(self, call_id: Callable[[Event], str | None]) -> list[Event]:
        """Return the tool calls without a result, in sequence order.

        *call_id* reads the call's id from an event, since payloads are opaque here. A call for
        which it returns None cannot be matched with a result, so it counts as open.
        """
        unmatched: list[Event] = []
        waiting: dict[str, list[Event]] = {}
        for event in self.events(kinds=(EventKind.TOOL_CALL, EventKind.TOOL_RESULT)):
            key = call_id(event)
            if event.kind == EventKind.TOOL_CALL:
                (unmatched if key is None else waiting.setdefault(key, [])).append(event)
            elif key is not None and waiting.get(key):
                waiting[key].pop(0)
        still_open = [event for calls in waiting.values() for event in calls]
        return sorted(unmatched + still_open, key=lambda event: event.sequence)

    @contextmanager
    def orm(self) -> Iterator[orm.Session]:
        """Give a read-only ``sqlalchemy.orm.Session`` over ``statebackend.models``.

        It has a connection of its own. Its transaction holds a snapshot, so end it (commit,
        rollback) or leave the block before long. Writing through it fails.
        """
        with self._locked():
            file = claim.file_opened(self.path)  # it may outlive the handle's own connection
        try:
            connection = engine.connect_for_reading(self.path)
            try:
                with orm.Session(connection, autoflush=False) as session:
                    yield session
            finally:
                if self._pid == os.getpid():
                    engine.close_reader(connection, self.path)
        finally:
            if self._pid == os.getpid():
                claim.file_closed(file)

    def follow(
        self,
        after_sequence: int = 0,
        kinds: Iterable[EventKind | str] | None = None,
        poll_interval_s: float = 0.2,
    ) -> Iterator[Event]:
        """Return the events like :meth:`events`, and go on with those that a writer appends.

        Ends when the session is not running any more, or has no living writer.
        """
        kinds = None if kinds is None else tuple(kinds)
        self.events(after_sequence, kinds)  # refuses what is invalid now, not at the first event
        return self._follow(after_sequence, kinds, poll_interval_s)

    def _follow(
        self, after: int, kinds: tuple[EventKind | str, ...] | None, poll_interval_s: float
    ) -> Iterator[Event]:
        while True:
            # Asked before reading, so that what came before the end is still read.
            info = self.info
            for event in self.events(after, kinds):
                after = event.sequence
                yield event
            if info.status != SessionStatus.RUNNING or not info.live:
                return
            time.sleep(poll_interval_s)

    def backup_to(self, target: sqlite3.Connection) -> None:
        """Copy the whole file, as of one moment, into another SQLite database."""
        with self._reading() as connection:
            engine.driver_of(connection).backup(target)


class SessionView(_Handle):
    """A session open for reading, also while another process writes it (SB-08).

    Made by :meth:`StateBackend.read`.
    """

    def _reader(self) -> Connection:
        return self._connection

    def _close(self) -> None:
        engine.close_reader(self._connection, self.path)


class Session(_Handle, Appends[Event]):
    """A session open for writing, by this handle alone (SB-05). It reads as a view does.

    Made by :meth:`StateBackend.create` and :meth:`StateBackend.open`. An append that returned is
    durable: it survives a crash of the process and a loss of power. Reads see what is committed.
    """

    def __init__(self, path: Path, file: FileKey, connection: Connection, held: Claim) -> None:
        super().__init__(path, file, connection)
        self._claim = held
        self._driver = engine.driver_of(connection)
        self._view_connection: Connection | None = None
        self._row_limit_bytes = self._driver.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
        self._checked = set()
        self._known_producers: set[Producer] = set()
        self._status = meta.select_status(self._driver)

    def _reader(self) -> Connection:
        # A second connection, so that reading never waits in the middle of a write of this
        # handle, and never sees what is not committed.
        if self._view_connection is None:
            self._view_connection = engine.connect_for_reading(self.path)
        return self._view_connection

    def _close(self) -> None:
        try:
            if self._view_connection is not None:
                self._view_connection.close()
            self._connection.close()
        finally:
            self._claim.release()

    def _take(self, pending: PendingEvent) -> Event:
        (sequence,) = self._write((pending,))
        return _appended(pending, sequence)

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Collect appends and write them in one transaction when the block ends: all or none.

        Nothing is written if the block raises. A batch is for one thread; ``batch.events`` has the
        events with their sequences afterwards.
        """
        self._check_appendable()
        batch = Batch(self.session_id, self._row_limit_bytes, self._checked)
        try:
            yield batch
        except BaseException:
            batch._finished = True  # what is appended from now on would never be written
            raise
        batch._finish(self._write)

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
        with self._locked(), _typed_errors(self.path):
            self._connection.rollback()  # what a change left that failed or was interrupted
            self._roll_back()  # what an interrupt of the last append may have left
            self._check_transition(target)
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
                raise self._commit_error(error.orig) from error

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
                f"is {self._status}, so nothing can be appended; set it to running first",
            )

    def _write(self, pending: Sequence[PendingEvent]) -> Sequence[int]:
        """Write all of *pending* in one transaction and return their sequences."""
        if self._pid != os.getpid():
            raise SessionForked(self.session_id)
        with self._lock, telemetry.current().span("statebackend.append", events=len(pending)):
            self._check_appendable()
            try:
                self._roll_back()  # what an interrupt of the last append may have left
                self._driver.execute("BEGIN IMMEDIATE")
                sequences = self._insert(pending)
            except sqlite3.Error as error:
                self._roll_back()
                raise self._append_error(pending, error) from error
            except BaseException:
                self._roll_back()
                raise
            self._commit()
            self._known_producers.update(one.producer for one in pending)
            return sequences

    def _insert(self, pending: Sequence[PendingEvent]) -> Sequence[int]:
        sequences: Sequence[int]
        if len(pending) == 1:
            sequences = (events.insert(self._driver, pending[0]),)
        else:
            sequences = events.insert_many(self._driver, pending)
        known = self._known_producers
        costed, planned = [], []
        for one, sequence in zip(pending, sequences, strict=True):
            if one.producer not in known:
                producers.insert_if_new(self._driver, one.producer, sequence)
            if one.cost is not None:
                costed.append((sequence, one.cost))
            if one.items:
                planned.append((sequence, one.items))
        if costed:
            costs.insert(self._driver, costed)
        if planned:
            plans.insert(self._driver, planned)
        return sequences

    def _commit(self) -> None:
        try:
            self._driver.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._commit_error(error) from error
        except BaseException:
            self._roll_back()
            raise

    def _commit_error(self, error: BaseException | None) -> BaseException:
        """Undo what a failed commit left, and say what is known of its outcome (SB-19)."""
        if not isinstance(error, sqlite3.Error):
            return error or AssertionError("a commit failed without an error")
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

    def _roll_back(self) -> None:
        # SQLite rolls back by itself after some errors, a full disk among them.
        if self._driver.in_transaction:
            self._driver.execute("ROLLBACK")

    def _append_error(
        self, pending: Sequence[PendingEvent], error: sqlite3.Error
    ) -> StateBackendError:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
            for one in pending:
                stored = self._stored(one.id)
                if stored is not None:
                    return DuplicateEvent(
                        self.session_id, one.id, stored[0].sequence, _same(stored, one)
                    )
        return storage_error(self.path, error)

    def _stored(self, event_id: str) -> _Stored | None:
        with self._reading() as connection:
            event = events.select_by_id(connection, event_id)
            if event is None:
                return None
            cost = costs.select_of_event(connection, event.sequence)
            items = plans.select_of_event(connection, event.sequence)
            return (event, cost, items)


class Batch(Appends[str]):
    """Appends that are collected, to be written in one transaction. Each returns its event id.

    Made by :meth:`Session.batch`.
    """

    def __init__(
        self,
        session_id: str,
        row_limit_bytes: int,
        checked: set[tuple[EventKind, Producer]],
    ) -> None:
        self._session_id = session_id
        self._row_limit_bytes = row_limit_bytes
        self._checked = checked
        self._pending: dict[str, PendingEvent] = {}
        self._sequences: Sequence[int] | None = None
        self._finished = False

    def _take(self, pending: PendingEvent) -> str:
        if self._finished:
            raise InvalidValue("batch", "has ended; begin another one")
        earlier = self._pending.get(pending.id)
        if earlier is not None:
            raise DuplicateEvent(
                self._session_id, pending.id, None, _content(earlier) == _content(pending)
            )
        self._pending[pending.id] = pending
        return pending.id

    @property
    def events(self) -> tuple[Event, ...]:
        """Return what was written, in order; empty while the block has not ended."""
        if self._sequences is None:
            return ()
        return tuple(map(_appended, self._pending.values(), self._sequences))

    def _finish(self, write: Callable[[Sequence[PendingEvent]], Sequence[int]]) -> None:
        self._finished = True
        if self._pending:
            self._sequences = write(list(self._pending.values()))


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


def _content(pending: PendingEvent) -> tuple[object, ...]:
    return (
        pending.timestamp if pending.timestamp_given else None,
        pending.kind,
        pending.producer,
        pending.schema_version,
        pending.payload,
        pending.cost,
        pending.items,
    )


def _appended(pending: PendingEvent, sequence: int) -> Event:
    return Event(
        sequence,
        pending.id,
        pending.timestamp,
        pending.kind,
        pending.producer,
        pending.schema_version,
        pending.payload,
    )


def _kind_words(kinds: Iterable[EventKind | str]) -> frozenset[str]:
    if isinstance(kinds, str):
        raise InvalidValue("kinds", "must be several kinds, such as [EventKind.MESSAGE]")
    return frozenset(validation.check_word("kinds", EventKind, kind).value for kind in kinds)


@contextmanager
def _typed_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except StateBackendError:
        raise
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise storage_error(path, error.orig) from error
        raise
    except sqlite3.Error as error:
        raise storage_error(path, error) from error
