"""Reading one session by pages, which a :class:`SessionView` and a writing session share."""

from __future__ import annotations

import sqlite3
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar, overload

from sqlalchemy import Connection, func, orm, select

from statebackend.errors import InvalidValue
from statebackend.files import claim, header, open_files, sqlite_locks
from statebackend.files.open_files import OpenFile
from statebackend.reading.held import HeldConnection, typed_errors
from statebackend.repositories import costs, events, meta, plans, producers
from statebackend.repositories.statements import table_of
from statebackend.schema import models
from statebackend.sqlite import engine
from statebackend.sqlite.faults import os_error
from statebackend.values import rows, validation
from statebackend.values.recorded import (
    CostEntry,
    CostTotals,
    Event,
    EventHeader,
    EventKind,
    PlanDecision,
    PlanEntry,
    Producer,
    ProducerCategory,
    ProducerEntry,
    SessionCounts,
    SessionInfo,
    SessionStatus,
)
from statebackend.values.reports import Recovery

_PAGE_ROWS = 2_000
_PAGE_BYTES = 4 * 1024 * 1024
_Row = TypeVar("_Row", CostEntry, PlanEntry)
_T = TypeVar("_T")


class SessionReads:
    """What a view and a session share: reading committed rows, and closing.

    Every read is a short transaction of its own, so that no snapshot is held between two pages and
    none keeps the WAL from being checkpointed. Methods may be called from any thread; one that a
    signal handler calls within another call of the same thread raises :class:`StorageBusy`.

    ``path`` is the session's file, ``session_id`` its id. ``recovery`` is the report if the session
    was found damaged when it was opened, else None.
    """

    def __init__(self, held: HeldConnection) -> None:
        self.path = held.path
        self.session_id = held.session_id
        self.recovery: Recovery | None = None
        self._held = held

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
        self._held.close()

    def __del__(self) -> None:
        if sys.is_finalizing():  # modules are half gone; the kernel and SQLite clean up after us
            return
        held: HeldConnection | None = getattr(self, "_held", None)
        if held is not None and not held.closed and not held.is_forked:
            warnings.warn(
                f"session {self.session_id} was never closed", ResourceWarning, stacklevel=2
            )
            self.close()

    def __reduce__(self) -> str:
        raise TypeError("an open session cannot be copied or pickled; hand on its session_id")

    def _read(self, select_from: Callable[[Connection], _T]) -> _T:
        return self._held.read(select_from)

    @property
    def info(self) -> SessionInfo:
        """Return the session's summary, read now: its row, and the cost summed (SB-22)."""
        live = claim.writer_of(self.path) is not None
        recovery = self.recovery
        # A part of a damaged session is shown from elsewhere; the reports are in its own folder.
        path = self.path if recovery is None else recovery.path
        incomplete = (recovery is not None and recovery.partial) or header.has_lost_rows(str(path))
        return self._read(partial(meta.select_info, live=live, incomplete=incomplete))

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
                before = self._read(partial(events.sequence_before_last, kinds=kinds, count=last))
                after = max(after, before)
        while left > 0:
            page = self._read(
                partial(
                    events.select_page,
                    after_sequence=after,
                    kinds=kinds,
                    limit=min(left, _PAGE_ROWS),
                    limit_bytes=_PAGE_BYTES,
                    payloads=payloads,
                )
            )
            if not page:
                return
            yield from page
            after = page[-1].sequence
            left -= len(page)

    def event(self, event_id: str) -> Event | None:
        """Return the event of this id, None when the session has none."""
        validation.check_text("event_id", event_id)
        return self._read(partial(events.select_by_id, event_id=event_id))

    def counts(self) -> SessionCounts:
        """Return the number of rows per table, and of events per kind."""
        return self._read(_counts)

    def costs(self) -> Iterator[CostEntry]:
        """Return the rows of the ledger in sequence order, lazily."""
        return self._pages(partial(costs.select_page, limit=_PAGE_ROWS))

    def cost_totals(self) -> CostTotals:
        """Return the sums over the ledger, read now."""
        return self._read(costs.select_totals)

    def plan_items(self, decision: PlanDecision | str | None = None) -> Iterator[PlanEntry]:
        """Return the plan items in sequence order, lazily; only those so decided, if given."""
        if decision is not None:
            decision = validation.check_word("decision", PlanDecision, decision)
        return self._pages(partial(plans.select_page, decision=decision, limit=_PAGE_ROWS))

    def _pages(self, select_page: Callable[..., Sequence[_Row]]) -> Iterator[_Row]:
        after = 0
        while True:
            page = self._read(partial(select_page, after_sequence=after))
            if not page:
                return
            yield from page
            after = page[-1].sequence

    def producers(self) -> list[ProducerEntry]:
        """Return every producer that wrote to the session, in order of first sighting."""
        return self._read(producers.select_all)

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
        file = open_files.OpenFile(self.path)  # the connection may outlive the session's own
        try:
            with self._held.exclusive():
                file.open()
            with os_error(self.path):
                connection = engine.connect_for_reading(self.path)
            locks = None
            try:
                with typed_errors(self.path):
                    driver = engine.driver_of(connection)
                    driver.text_factory = rows.text
                    driver.execute("SELECT 1 FROM sqlite_schema").fetchone()
                locks = sqlite_locks.of_reader(self.path, file)
                with orm.Session(connection, autoflush=False) as session:
                    yield session
            finally:
                if not self._held.is_forked:
                    if locks is not None:
                        locks.release()
                    engine.close_reader(connection, self.path)
        finally:
            file.close()

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
        validation.check_amount("poll_interval_s", poll_interval_s)
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
        self._read(lambda connection: engine.driver_of(connection).backup(target))


class SessionView(SessionReads):
    """A session open for reading, also while another process writes it (SB-08).

    Made by :meth:`StateBackend.read`.
    """

    def __init__(self, path: Path, file: OpenFile, connection: Connection) -> None:
        locks = sqlite_locks.of_reader(path, file)

        def release() -> None:
            if locks is not None:
                locks.release()
            engine.close_reader(connection, path)

        super().__init__(HeldConnection(path, file, connection, locks=locks, release=release))


def _kind_words(kinds: Iterable[EventKind | str]) -> frozenset[str]:
    if isinstance(kinds, str):
        raise InvalidValue("kinds", "must be several kinds, such as [EventKind.MESSAGE]")
    return frozenset(validation.check_word("kinds", EventKind, kind).value for kind in kinds)


def _counts(connection: Connection) -> SessionCounts:
    by_kind = events.count_by_kind(connection)
    others = {
        model.__tablename__: connection.scalar(select(func.count()).select_from(table_of(model)))
        or 0
        for model in (models.CostLedger, models.PlanItem, models.Producer)
    }
    return SessionCounts(events=sum(by_kind.values()), by_kind=by_kind, **others)
