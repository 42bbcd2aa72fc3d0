"""The same for asyncio: :class:`AsyncStateBackend`, and the sessions and views that it opens.

Built on a bounded pool of threads, so that no call here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import Future
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    overload,
)

from statebackend.backend import StateBackend
from statebackend.errors import InvalidValue, SessionClosed, SessionForked
from statebackend.reading.view import SessionReads, SessionView
from statebackend.recording.appends import AppendChecks, Appends, CollectedAppends, appended_event
from statebackend.recording.rounds import RoundCommitter
from statebackend.recording.session import Session, checks_of, committer_of
from statebackend.recording.thread_pool import Sequencer, ThreadPool, call_in
from statebackend.repositories.pending import PendingEvent
from statebackend.values import validation
from statebackend.values.recorded import (
    CostEntry,
    Event,
    EventHeader,
    EventKind,
    PlanDecision,
    PlanEntry,
    SessionInfo,
    SessionStatus,
)
from statebackend.values.reports import MigrationResult, Recovery, VerificationResult
from statebackend.values.results import BadSession

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Item = TypeVar("_Item")
_Sync = TypeVar("_Sync", bound=SessionReads)
_Closable = TypeVar("_Closable", bound="AsyncReads[Any]")

# One step of an iteration brings so much from the thread that reads.
_STEP_ROWS = 500
_STEP_BYTES = 1024 * 1024


def _of_backend(
    method: Callable[Concatenate[StateBackend, _P], _T],
) -> Callable[Concatenate[AsyncStateBackend, _P], Coroutine[Any, Any, _T]]:
    @wraps(method)
    async def awaited(self: AsyncStateBackend, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await call_in(self._pool, partial(method, self._sync, *args, **kwargs))

    return awaited


def _of_session(
    method: Callable[Concatenate[SessionReads, _P], _T],
) -> Callable[Concatenate[AsyncReads[Any], _P], Coroutine[Any, Any, _T]]:
    @wraps(method)
    async def awaited(self: AsyncReads[Any], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._read(partial(method, self._sync, *args, **kwargs))

    return awaited


class AsyncStateBackend:
    """The sessions of one folder, as :class:`StateBackend` has them, awaited.

    No call blocks the event loop: everything runs in at most *threads* threads, which all sessions
    of this object share. An idle session has no thread.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        catalogue: bool = True,
        threads: int = 8,
    ) -> None:
        if validation.check_integer("threads", threads) == 0:
            raise InvalidValue("threads", "must be at least 1")
        self._sync = StateBackend(directory, catalogue=catalogue)
        self._pool = ThreadPool(threads, "statebackend", self._sync.directory)

    def __repr__(self) -> str:
        return f"AsyncStateBackend({str(self.directory)!r})"

    @property
    def directory(self) -> Path:
        """Return the folder."""
        return self._sync.directory

    def create(
        self,
        profile: str,
        *,
        parent_session_id: str | None = None,
        depth: int = 0,
        session_id: str | None = None,
        started_at: datetime | None = None,
    ) -> Opening[AsyncSession]:
        """Create a session, as :meth:`StateBackend.create`: to be awaited, or for `async with`."""
        call = partial(
            self._sync.create,
            profile,
            parent_session_id=parent_session_id,
            depth=depth,
            session_id=session_id,
            started_at=started_at,
        )
        return Opening(self._pool, lambda: AsyncSession(call(), self._pool))

    def open(self, session_id: str) -> Opening[AsyncSession]:
        """Open a session, as :meth:`StateBackend.open`: to be awaited, or for `async with`."""
        return Opening(self._pool, lambda: AsyncSession(self._sync.open(session_id), self._pool))

    def read(self, session_id: str, *, check: bool = True) -> Opening[AsyncSessionView]:
        """Open a view, as :meth:`StateBackend.read`: to be awaited, or for `async with`."""
        return Opening(
            self._pool,
            lambda: AsyncSessionView(self._sync.read(session_id, check=check), self._pool),
        )

    @asynccontextmanager
    async def read_partial(self, session_id: str) -> AsyncIterator[AsyncSessionView]:
        """Open what can be saved of a damaged session, as :meth:`StateBackend.read_partial`."""
        saved = self._sync.read_partial(session_id)
        leave = partial(saved.__exit__, None, None, None)
        view = AsyncSessionView(
            await call_in(self._pool, saved.__enter__, lambda _view: leave()), self._pool
        )
        try:
            yield view
        finally:
            await view.close()
            await call_in(self._pool, leave)

    def ids(self) -> AsyncIterator[str]:
        """Return the stem of every session file, newest first, without opening any."""
        return _each(partial(call_in, self._pool), self._sync.ids)

    def scan(self) -> AsyncIterator[SessionInfo | BadSession]:
        """Return every session, newest first, lazily; a bad file is a :class:`BadSession`."""
        return _each(partial(call_in, self._pool), self._sync.scan)

    def verify(
        self, session_ids: Iterable[str] | None = None, *, threads: int = 2
    ) -> AsyncIterator[VerificationResult]:
        """Check these session files (None: all), lazily, as :meth:`StateBackend.verify`."""
        results = self._sync.verify(session_ids, threads=threads)
        return _each(partial(call_in, self._pool), lambda: results)

    def migrate(
        self,
        session_ids: Iterable[str] | None = None,
        *,
        dry_run: bool = False,
        threads: int = 4,
    ) -> AsyncIterator[MigrationResult]:
        """Migrate these session files (None: all), lazily, as :meth:`StateBackend.migrate`."""
        results = self._sync.migrate(session_ids, dry_run=dry_run, threads=threads)
        return _each(partial(call_in, self._pool), lambda: results)

    recover = _of_backend(StateBackend.recover)
    import_transcripts = _of_backend(StateBackend.import_transcripts)
    copy = _of_backend(StateBackend.copy)
    recoveries = _of_backend(StateBackend.recoveries)
    list = _of_backend(StateBackend.list)
    children = _of_backend(StateBackend.children)
    stale = _of_backend(StateBackend.stale)
    reap = _of_backend(StateBackend.reap)
    tree = _of_backend(StateBackend.tree)
    cost = _of_backend(StateBackend.cost)
    cost_by = _of_backend(StateBackend.cost_by)
    plan_rules = _of_backend(StateBackend.plan_rules)
    referenced_producers = _of_backend(StateBackend.referenced_producers)
    search = _of_backend(StateBackend.search)


class Opening(Generic[_Closable]):
    """A session that is being opened: ``await`` it, or use it with ``async with``.

    If the task is cancelled meanwhile, what was opened is closed again.
    """

    def __init__(self, pool: ThreadPool, call: Callable[[], _Closable]) -> None:
        self._pool = pool
        self._call = call
        self._opened: _Closable | None = None

    def __await__(self) -> Generator[Any, Any, _Closable]:
        return call_in(self._pool, self._call, _close_abandoned).__await__()

    async def __aenter__(self) -> _Closable:
        self._opened = await self
        return self._opened

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._opened is not None
        await self._opened.close()


def _close_abandoned(opened: AsyncReads[Any]) -> None:
    opened._sync.close()


class AsyncReads(Generic[_Sync]):
    """What a view and a session share, as :class:`statebackend.view.Handle` has it, awaited."""

    def __init__(self, sync: _Sync, pool: ThreadPool) -> None:
        self._sync = sync
        self._sequencer = Sequencer(pool)
        self._pid = os.getpid()
        self._mutex = Lock()
        self._closing: Future[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __reduce__(self) -> str:
        raise TypeError("an open session cannot be copied or pickled; hand on its session_id")

    @property
    def session_id(self) -> str:
        """Return the session's id."""
        return self._sync.session_id

    @property
    def path(self) -> Path:
        """Return the session's file."""
        return self._sync.path

    @property
    def recovery(self) -> Recovery | None:
        """Return what was recovered when the session was opened, None when it was sound."""
        return self._sync.recovery

    @property
    def info(self) -> Coroutine[Any, Any, SessionInfo]:
        """Return the session's summary, to be awaited: its row, and the cost summed (SB-22)."""
        return self._read(lambda: self._sync.info)

    @overload
    def events(
        self,
        after_sequence: int = 0,
        kinds: Iterable[EventKind | str] | None = None,
        limit: int | None = None,
        last: int | None = None,
        payloads: Literal[True] = True,
    ) -> AsyncIterator[Event]: ...

    @overload
    def events(
        self,
        after_sequence: int = 0,
        kinds: Iterable[EventKind | str] | None = None,
        limit: int | None = None,
        last: int | None = None,
        *,
        payloads: Literal[False],
    ) -> AsyncIterator[EventHeader]: ...

    def events(
        self,
        after_sequence: int = 0,
        kinds: Iterable[EventKind | str] | None = None,
        limit: int | None = None,
        last: int | None = None,
        payloads: bool = True,
    ) -> AsyncIterator[EventHeader]:
        """Return the committed events in sequence order, lazily, as :meth:`SessionReads.events`."""
        found: Iterator[EventHeader]
        if payloads:
            found = self._sync.events(after_sequence, kinds, limit, last)
        else:
            found = self._sync.events(after_sequence, kinds, limit, last, payloads=False)
        return _each(self._read, lambda: found)

    def costs(self) -> AsyncIterator[CostEntry]:
        """Return the rows of the ledger in sequence order, lazily."""
        return _each(self._read, self._sync.costs)

    def plan_items(self, decision: PlanDecision | str | None = None) -> AsyncIterator[PlanEntry]:
        """Return the plan items in sequence order, lazily; only those so decided, if given."""
        found = self._sync.plan_items(decision)
        return _each(self._read, lambda: found)

    def follow(
        self,
        after_sequence: int = 0,
        kinds: Iterable[EventKind | str] | None = None,
        poll_interval_s: float = 0.2,
    ) -> AsyncIterator[Event]:
        """Return the events like :meth:`events`, and go on with those that a writer appends.

        Ends when the session is not running any more, or has no living writer.
        """
        kinds = None if kinds is None else tuple(kinds)
        self._sync.follow(after_sequence, kinds, poll_interval_s)  # refuses what is invalid
        return self._follow(after_sequence, kinds, poll_interval_s)

    async def _follow(
        self, after: int, kinds: tuple[EventKind | str, ...] | None, poll_interval_s: float
    ) -> AsyncIterator[Event]:
        while True:
            # Asked before reading, so that what came before the end is still read.
            info = await self.info
            async for event in self.events(after, kinds):
                after = event.sequence
                yield event
            if info.status != SessionStatus.RUNNING or not info.live:
                return
            await asyncio.sleep(poll_interval_s)

    event = _of_session(SessionReads.event)
    counts = _of_session(SessionReads.counts)
    cost_totals = _of_session(SessionReads.cost_totals)
    producers = _of_session(SessionReads.producers)
    missing_producers = _of_session(SessionReads.missing_producers)
    open_tool_calls = _of_session(SessionReads.open_tool_calls)

    async def close(self) -> None:
        """Close the file after the calls before; harmless when repeated.

        Goes on, in its thread, when the task is cancelled.
        """
        if self._pid != os.getpid():
            self._sync.close()
            return
        with self._mutex:
            if self._closing is None:
                self._closing = self._start_closing()
        await asyncio.shield(asyncio.wrap_future(self._closing))

    def _start_closing(self) -> Future[None]:
        return self._sequencer.start(self._sync.close)

    def _check_usable(self) -> None:
        if self._pid != os.getpid():  # the child has none of the threads
            raise SessionForked(self.session_id)
        if self._closing is not None:
            raise SessionClosed(self.session_id)

    async def _read(self, call: Callable[[], _T]) -> _T:
        self._check_usable()
        return await call_in(self._sequencer, call)


class AsyncSessionView(AsyncReads[SessionView]):
    """A session open for reading, also while another process writes it (SB-08).

    Made by :meth:`AsyncStateBackend.read`.
    """


class AsyncSession(AsyncReads[Session], Appends[Coroutine[Any, Any, Event]]):
    """A session open for writing; it reads as a view does.

    Made by :meth:`AsyncStateBackend.create` and :meth:`AsyncStateBackend.open`. What the tasks of
    one round of the event loop append is committed together. An append whose task was cancelled is
    whole or absent: appended again with the same event id, it is written, or a
    :class:`DuplicateEvent` says that it was.
    """

    def __init__(self, sync: Session, pool: ThreadPool) -> None:
        AsyncReads.__init__(self, sync, pool)
        self._committer = committer_of(sync)
        rounds = self._rounds = RoundCommitter(sync.session_id, self._committer, self._sequencer)

        async def commit(pending: PendingEvent) -> Event:
            (sequence,) = await rounds.append((pending,))
            return appended_event(pending, sequence)

        Appends.__init__(self, checks_of(sync), commit)

    def batch(self) -> AsyncBatch:
        """Collect appends, and commit them in one transaction when the block ends: all or none.

        For an ``async with`` block; the appends within it are not awaited. ``batch.events`` has the
        events with their sequences afterwards. Raises as :meth:`Session.batch`.
        """
        self._check_usable()
        self._committer.check_appendable()
        return AsyncBatch(self.session_id, self._checks, self._rounds.append)

    async def set_status(
        self, status: SessionStatus | str, *, ended_at: datetime | None = None
    ) -> None:
        """Change the status, after what was appended before, as :meth:`Session.set_status`."""
        self._check_usable()
        self._rounds.start_pending()
        await call_in(self._sequencer, lambda: self._sync.set_status(status, ended_at=ended_at))

    def _start_closing(self) -> Future[None]:
        self._rounds.close()
        return super()._start_closing()


class AsyncBatch(CollectedAppends):
    """Appends that are collected, to be committed in one transaction at the end of the block.

    Made by :meth:`AsyncSession.batch`, for ``async with``. Each append returns its event id.
    """

    def __init__(
        self,
        session_id: str,
        checks: AppendChecks,
        commit: Callable[[Sequence[PendingEvent]], Coroutine[Any, Any, Sequence[int]]],
    ) -> None:
        super().__init__(session_id, checks)
        self._commit = commit

    async def __aenter__(self) -> Self:
        self._collected.is_open = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._collected.is_open = False
        if exc_type is None and self._collected.pending:
            self._sequences = await self._commit(list(self._collected.pending.values()))


class _Read(Protocol):
    def __call__(self, call: Callable[[], _T], /) -> Coroutine[Any, Any, _T]: ...


async def _each(
    read: _Read,
    start: Callable[[], Iterator[_Item]],
) -> AsyncIterator[_Item]:
    """Return what an iterator gives, some at a time from the thread that *read* uses."""
    iterator = await read(start)
    while True:
        items = await read(partial(_some, iterator))
        if not items:
            return
        for item in items:
            yield item


def _some(iterator: Iterator[_Item]) -> list[_Item]:
    items: list[_Item] = []
    size = 0
    for item in iterator:
        items.append(item)
        size += len(getattr(item, "payload", b""))
        if len(items) == _STEP_ROWS or size >= _STEP_BYTES:
            break
    return items
