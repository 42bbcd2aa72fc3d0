"""The same for asyncio: :class:`AsyncStateBackend`, and the sessions and views that it opens.

Built on threads, so that no call here blocks the event loop: each handle has one thread for writing
and one for reading, which start with their first use and end with it. What the tasks of one round
of the loop append is written in one transaction.
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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
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
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    overload,
)

from statebackend import telemetry
from statebackend.backend import StateBackend
from statebackend.errors import SessionClosed, SessionForked, StateBackendError, StorageError
from statebackend.files.paths import SUFFIX
from statebackend.reading.view import Handle, SessionView
from statebackend.recording.appends import Appends
from statebackend.recording.batch import Batch, appended
from statebackend.recording.commit_queue import Unit
from statebackend.recording.session import Session
from statebackend.repositories.pending import PendingEvent
from statebackend.values.recorded import (
    CostEntry,
    Event,
    EventHeader,
    EventKind,
    PlanDecision,
    PlanEntry,
    Producer,
    SessionInfo,
    SessionStatus,
)
from statebackend.values.reports import Recovery
from statebackend.values.results import BadSession

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Item = TypeVar("_Item")
_Sync = TypeVar("_Sync", bound=Handle)
_Closable = TypeVar("_Closable", bound="AsyncHandle[Any]")

# One step of an iteration brings so much from the thread that reads.
_STEP_ROWS = 500
_STEP_BYTES = 1024 * 1024
_THREADS = 4


class _Threads(ThreadPoolExecutor):
    """At most so many threads for what lies at *place*, each started with its first work."""

    def __init__(self, count: int, name: str, place: Path) -> None:
        super().__init__(count, name)
        self._place = place
        self._ended = False

    def start(self, call: Callable[[], _T]) -> Future[_T]:
        """Let a thread call; raise :class:`StorageError` if none can be started.

        The executor keeps what it could start no thread for, and would call it with the next that
        it can: it is cancelled here, so that it is never called.
        """
        done: Future[_T] = Future()
        try:
            self.submit(_work, done, call)
        except RuntimeError as error:
            if done.cancel():
                if self._ended:
                    raise SessionClosed(self._place.name.removesuffix(SUFFIX)) from None
                problem = f"{error}; raise the limit of processes, or close what is open"
                raise StorageError(self._place, problem) from error
        return done

    def end(self) -> None:
        """Let the threads go once all is done that was started."""
        self._ended = True
        self.shutdown(wait=False)


def _work(done: Future[_T], call: Callable[[], _T]) -> None:
    if done.set_running_or_notify_cancel():
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            done.set_exception(error)


async def _in_thread(
    threads: _Threads,
    call: Callable[[], _T],
    on_lost: Callable[[_T], object] | None = None,
) -> _T:
    """Return what *call* returns in a thread, with the telemetry and the context of this task.

    A cancelled task does not wait; *call* goes on, and *on_lost* gets its result in a thread.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[_T] = loop.create_future()
    context = copy_context()

    def work() -> None:
        try:
            result = context.run(call)
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            _post(loop, partial(_fail, waiter, error))
            return
        if not _post(loop, partial(deliver, result)) and on_lost is not None:
            on_lost(result)

    def deliver(result: _T) -> None:
        if not waiter.done():
            waiter.set_result(result)
        elif on_lost is not None:
            try:
                threads.start(partial(on_lost, result))
            except StateBackendError:  # no thread any more: then here
                on_lost(result)

    threads.start(work)
    return await waiter


def _fail(waiter: asyncio.Future[Any], error: BaseException) -> None:
    if not waiter.done():
        waiter.set_exception(error)


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> bool:
    """Let the loop call back; return false when it is closed, and so nobody waits any more."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        return False
    return True


def _of_backend(
    method: Callable[Concatenate[StateBackend, _P], _T],
) -> Callable[Concatenate[AsyncStateBackend, _P], Coroutine[Any, Any, _T]]:
    @wraps(method)
    async def awaited(self: AsyncStateBackend, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await _in_thread(self._threads, partial(method, self._sync, *args, **kwargs))

    return awaited


def _of_handle(
    method: Callable[Concatenate[Handle, _P], _T],
) -> Callable[Concatenate[AsyncHandle[Any], _P], Coroutine[Any, Any, _T]]:
    @wraps(method)
    async def awaited(self: AsyncHandle[Any], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._read(partial(method, self._sync, *args, **kwargs))

    return awaited


class AsyncStateBackend:
    """The sessions of one folder, as :class:`StateBackend` has them, awaited."""

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._sync = StateBackend(directory)
        self._pid = os.getpid()
        self._pool = _Threads(_THREADS, "statebackend", self._sync.directory)

    @property
    def _threads(self) -> _Threads:
        if self._pid != os.getpid():  # a forked child has none of them, but believes that it has
            self._pid = os.getpid()
            self._pool = _Threads(_THREADS, "statebackend", self._sync.directory)
        return self._pool

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
        return Opening(self._threads, lambda: AsyncSession(call()))

    def open(self, session_id: str) -> Opening[AsyncSession]:
        """Open a session, as :meth:`StateBackend.open`: to be awaited, or for `async with`."""
        return Opening(self._threads, lambda: AsyncSession(self._sync.open(session_id)))

    def read(self, session_id: str, *, check: bool = True) -> Opening[AsyncSessionView]:
        """Open a view, as :meth:`StateBackend.read`: to be awaited, or for `async with`."""
        return Opening(
            self._threads, lambda: AsyncSessionView(self._sync.read(session_id, check=check))
        )

    @asynccontextmanager
    async def read_partial(self, session_id: str) -> AsyncIterator[AsyncSessionView]:
        """Open what can be saved of a damaged session, as :meth:`StateBackend.read_partial`."""
        saved = self._sync.read_partial(session_id)
        leave = partial(saved.__exit__, None, None, None)
        view = AsyncSessionView(
            await _in_thread(self._threads, saved.__enter__, lambda _view: leave())
        )
        try:
            yield view
        finally:
            await view.close()
            await _in_thread(self._threads, leave)

    def ids(self) -> AsyncIterator[str]:
        """Return the stem of every session file, newest first, without opening any."""
        return _each(partial(_in_thread, self._threads), self._sync.ids)

    def scan(self) -> AsyncIterator[SessionInfo | BadSession]:
        """Return every session, newest first, lazily; a bad file is a :class:`BadSession`."""
        return _each(partial(_in_thread, self._threads), self._sync.scan)

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

    def __init__(self, threads: _Threads, call: Callable[[], _Closable]) -> None:
        self._threads = threads
        self._call = call
        self._opened: _Closable | None = None

    def __await__(self) -> Generator[Any, Any, _Closable]:
        return _in_thread(self._threads, self._call, _close_lost).__await__()

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


def _close_lost(opened: AsyncHandle[Any]) -> None:
    opened._sync.close()


class AsyncHandle(Generic[_Sync]):
    """What a view and a session share, as :class:`statebackend.view.Handle` has it, awaited."""

    def __init__(self, sync: _Sync) -> None:
        self._sync = sync
        self._readers = _Threads(1, f"statebackend-read-{sync.session_id}", sync.path)
        self._guard = Lock()
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
        """Return the committed events in sequence order, lazily, as :meth:`Handle.events`."""
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

    event = _of_handle(Handle.event)
    counts = _of_handle(Handle.counts)
    cost_totals = _of_handle(Handle.cost_totals)
    producers = _of_handle(Handle.producers)
    missing_producers = _of_handle(Handle.missing_producers)
    open_tool_calls = _of_handle(Handle.open_tool_calls)

    async def close(self) -> None:
        """Close the file when all that was taken is written; harmless when repeated.

        Goes on, in its thread, when the task is cancelled.
        """
        if self._sync._pid != os.getpid():
            self._sync.close()
            return
        with self._guard:
            if self._closing is None:
                self._closing = self._close()
        await asyncio.shield(asyncio.wrap_future(self._closing))

    def _close(self) -> Future[None]:
        """Begin to close; hold the guard."""
        closing = self._readers.start(self._sync.close)
        self._readers.end()
        return closing

    def _check_usable(self) -> None:
        if self._sync._pid != os.getpid():  # the child has none of these threads
            raise SessionForked(self.session_id)
        if self._closing is not None:
            raise SessionClosed(self.session_id)

    async def _read(self, call: Callable[[], _T]) -> _T:
        self._check_usable()
        return await _in_thread(self._readers, call)


class AsyncSessionView(AsyncHandle[SessionView]):
    """A session open for reading, also while another process writes it (SB-08).

    Made by :meth:`AsyncStateBackend.read`.
    """


class AsyncSession(AsyncHandle[Session], Appends[Coroutine[Any, Any, Event]]):
    """A session open for writing; it reads as a view does.

    Made by :meth:`AsyncStateBackend.create` and :meth:`AsyncStateBackend.open`. An append whose
    task was cancelled is whole or absent: appended again with the same event id, it is written, or
    a :class:`DuplicateEvent` tells that it had been.
    """

    def __init__(self, sync: Session) -> None:
        super().__init__(sync)
        self._row_limit_bytes = sync._row_limit_bytes
        self._checked = sync._checked
        self._writers = _Threads(1, f"statebackend-write-{sync.session_id}", sync.path)
        self._open: _Round | None = None

    def batch(self) -> AsyncBatch:
        """Collect appends, to be written in one transaction when the block ends: all or none.

        Use it with ``async with``; the appends within it are not awaited. ``batch.events`` has the
        events with their sequences afterwards.
        """
        self._check_usable()
        self._sync._check_appendable()
        return AsyncBatch(self, self._row_limit_bytes, self._checked)

    async def set_status(
        self, status: SessionStatus | str, *, ended_at: datetime | None = None
    ) -> None:
        """Change the status, after what was appended before, as :meth:`Session.set_status`."""
        self._check_usable()
        with self._guard:
            self._end_round()
        await _in_thread(self._writers, lambda: self._sync.set_status(status, ended_at=ended_at))

    async def _take(self, pending: PendingEvent) -> Event:
        if telemetry.is_off():  # as in `_write`, without a coroutine in between
            entry = self._enter((pending,))
            try:
                (sequence,) = await entry.waiter
            except asyncio.CancelledError:
                self._withdraw(entry)
                raise
        else:
            (sequence,) = await self._write((pending,))
        return appended(pending, sequence)

    async def _write(self, pending: Sequence[PendingEvent]) -> Sequence[int]:
        self._check_usable()
        with telemetry.span("statebackend.append", session_id=self.session_id, events=len(pending)):
            entry = self._enter(pending)
            try:
                return await entry.waiter
            except asyncio.CancelledError:
                self._withdraw(entry)
                raise

    def _enter(self, pending: Sequence[PendingEvent]) -> _Entry:
        """Let *pending* be written with what else is appended in this round of the loop."""
        self._check_usable()
        loop = asyncio.get_running_loop()
        with self._guard:
            if self._closing is not None:  # meanwhile, by a thread of another loop
                raise SessionClosed(self.session_id)
            taking = self._open
            if taking is not None and taking.loop is not loop:
                self._end_round()  # that loop may be busy for long, or never run again
                taking = None
            if taking is None:
                self._open = taking = _Round(loop)
                # What runs in this round of the loop can still join.
                loop.call_soon(self._submit, taking)
            entry = _Entry(pending, loop.create_future(), taking)
            taking.entries.append(entry)
        return entry

    def _withdraw(self, entry: _Entry) -> None:
        """Take out what a cancelled task has appended, if it is not being written yet."""
        with self._guard:
            if not entry.taking.begun:
                entry.taking.entries.remove(entry)

    def _submit(self, taking: _Round) -> None:
        """Let the thread write a round, unless it was ended before."""
        with self._guard:
            if self._open is taking:
                self._end_round()

    def _end_round(self) -> None:
        """Let the thread write the round that is open, if one is; hold the guard."""
        taking, self._open = self._open, None
        if taking is None:
            return
        try:
            self._writers.start(partial(taking.context.run, self._write_round, taking))
        except StateBackendError as error:
            taking.begun = True
            for entry in taking.entries:
                entry.error = error
            _post(taking.loop, partial(_tell, taking.entries))

    def _write_round(self, taking: _Round) -> None:
        with self._guard:
            taking.begun = True
        entries = taking.entries
        try:
            self._sync._write_units([entry.unit for entry in entries])
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            for entry in entries:
                if not entry.unit.done:
                    entry.error = error
        for entry in entries:
            unit = entry.unit
            if entry.error is None and unit.error is None and unit.sequences is not None:
                entry.sequences = unit.sequences
            else:
                self._read_answer(entry)
        _post(taking.loop, partial(_tell, entries))

    def _read_answer(self, entry: _Entry) -> None:
        # In the thread, since telling what a duplicate is of reads from the file.
        if entry.error is None:
            try:
                entry.sequences = self._sync._answer(entry.unit)
            except Exception as error:  # noqa: BLE001 - raised again where it is awaited
                entry.error = error

    def _close(self) -> Future[None]:
        self._end_round()
        closing = self._writers.start(self._sync.close)
        self._writers.end()
        self._readers.end()
        return closing


class AsyncBatch(Batch):
    """Appends that are collected, to be written in one transaction at the end of the block.

    Made by :meth:`AsyncSession.batch`, for ``async with``. Each append returns its event id.
    """

    def __init__(
        self,
        session: AsyncSession,
        row_limit_bytes: int,
        checked: set[tuple[EventKind, Producer]],
    ) -> None:
        super().__init__(session.session_id, row_limit_bytes, checked, _refuse)
        self._session = session

    def __enter__(self) -> NoReturn:
        raise TypeError("a batch of an AsyncSession is for `async with`")

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open = False
        if exc_type is None and self._pending:
            self._sequences = await self._session._write(list(self._pending.values()))


def _refuse(_pending: Sequence[PendingEvent]) -> NoReturn:
    raise AssertionError("never entered, so never left")


class _Entry:
    """One append, or batch, and the future that its task waits for."""

    __slots__ = ("error", "sequences", "taking", "unit", "waiter")

    def __init__(
        self,
        pending: Sequence[PendingEvent],
        waiter: asyncio.Future[Sequence[int]],
        taking: _Round,
    ) -> None:
        self.unit = Unit(pending)
        self.waiter = waiter
        self.taking = taking
        self.sequences: Sequence[int] = ()
        self.error: BaseException | None = None


class _Round:
    """What is written together: what was appended in one round of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.entries: list[_Entry] = []
        self.context = copy_context()  # its span is within that of the first append
        self.begun = False


def _tell(entries: Sequence[_Entry]) -> None:
    for entry in entries:
        if entry.waiter.done():
            continue
        if entry.error is None:
            entry.waiter.set_result(entry.sequences)
        else:
            entry.waiter.set_exception(entry.error)


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
