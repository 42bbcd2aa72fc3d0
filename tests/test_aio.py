"""The asyncio face: the same answers awaited, shared commits, and cancellation."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from statebackend import (
    AsyncSession,
    AsyncStateBackend,
    DuplicateEvent,
    Event,
    EventKind,
    InvalidTransition,
    InvalidValue,
    SessionClosed,
    SessionDamaged,
    SessionForked,
    SessionLocked,
    SessionNotFound,
    StateBackend,
    configure_telemetry,
    telemetry,
)
from statebackend.testing import damage_page
from tests.crash.samples import MODEL, TOOL, assert_whole, cost, item, litter, session_file
from tests.session_files import full

HANG_S = 60.0


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run *work* in a loop of its own, with asyncio's own warnings on."""
    return asyncio.run(asyncio.wait_for(work, HANG_S))


@pytest.fixture
def aio(backend: StateBackend) -> AsyncStateBackend:
    """Return the asyncio face of the test's folder."""
    return AsyncStateBackend(backend.directory)


def append(session: AsyncSession, event_id: str | None = None, payload: bytes = b"{}") -> Any:
    """Return the append of a message with its cost, to be awaited."""
    return session.append_message(producer=MODEL, payload=payload, cost=cost(), event_id=event_id)


async def stored(session: AsyncSession) -> list[str]:
    """Return the ids of the events, in order."""
    return [event.id async for event in session.events()]


@contextmanager
def held(session: AsyncSession) -> Iterator[None]:
    """Hold the lock of the session below, so that nothing is written in the block."""
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with session._sync._held.lock:
            ready.set()
            done.wait(HANG_S)

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait(HANG_S)
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_session_is_made_written_and_read(aio: AsyncStateBackend, backend: StateBackend) -> None:
    """Every way of appending; what comes back is what the package's other face reads."""

    async def work() -> str:
        async with aio.create("default", depth=1) as session:
            event = await append(session, "one")
            assert isinstance(event, Event)
            assert (event.sequence, event.id) == (1, "one")
            await session.append_prompt(payload=b"p", schema_version="1")
            await session.append_plan(producer=MODEL, payload=b"l", items=[item()])
            await session.append(
                EventKind.TOOL_CALL, producer=TOOL, payload=b"c", schema_version="1"
            )
            async with session.batch() as batch:
                batch.append_message(producer=MODEL, payload=b"m", cost=cost(), event_id="m")
                batch.append_message(producer=MODEL, payload=b"n", cost=cost(), event_id="n")
            assert [event.sequence for event in batch.events] == [5, 6]
            await session.set_status("completed")
            assert (await session.info).status == "completed"
            return session.session_id

    session_id = run(work())
    assert_whole(session_file(backend, session_id))

    async def read() -> None:
        async with aio.read(session_id) as view:
            with backend.read(session_id) as other:
                assert [event async for event in view.events()] == list(other.events())
                assert [one async for one in view.events(2, ["message"], payloads=False)] == list(
                    other.events(2, ["message"], payloads=False)
                )
                assert [one async for one in view.events(last=2)] == list(other.events(last=2))
                assert [one async for one in view.costs()] == list(other.costs())
                assert [one async for one in view.plan_items("allow")] == list(other.plan_items())
                assert [one async for one in view.follow()] == list(other.events())
                assert await view.counts() == other.counts()
                assert await view.cost_totals() == other.cost_totals()
                assert await view.producers() == other.producers()
                assert await view.missing_producers([MODEL]) == other.missing_producers([MODEL])
                assert await view.open_tool_calls(lambda event: event.id) != []
                assert await view.event("one") == other.event("one")
                assert (await view.info).profile == other.info.profile
                assert (view.path, view.session_id) == (other.path, other.session_id)

    run(read())
    assert litter(backend) == set()


def test_a_folder_is_looked_at(aio: AsyncStateBackend, backend: StateBackend) -> None:
    """What goes over all sessions gives the same answers."""
    parent = full(backend)
    with backend.create("default", parent_session_id=parent):
        pass

    async def work() -> None:
        assert [one async for one in aio.ids()] == list(backend.ids())
        assert [one async for one in aio.scan()] == list(backend.scan())
        assert await aio.list(limit=1) == backend.list(limit=1)
        assert await aio.children(parent) == backend.children(parent)
        assert await aio.stale() == backend.stale()
        assert await aio.tree() == backend.tree()
        assert await aio.cost(parent, tree=True) == backend.cost(parent, tree=True)
        assert await aio.cost_by("model") == backend.cost_by("model")
        assert await aio.plan_rules() == backend.plan_rules()
        assert await aio.referenced_producers() == backend.referenced_producers()
        assert await aio.recoveries() == []
        copy = await aio.copy(parent, backend.directory.parent / "copy.sqlite")
        assert copy.is_file()

    run(work())
    assert aio.directory == backend.directory
    assert str(aio.directory) in repr(aio)


def test_what_is_left_of_a_damaged_session_is_read(
    aio: AsyncStateBackend, backend: StateBackend
) -> None:
    """The same as the other face saves, in a folder that is gone afterwards."""
    session_id = full(backend)
    path = session_file(backend, session_id)
    content = bytearray(path.read_bytes())
    content[-4096:] = bytes(4096)
    path.write_bytes(content)

    async def work() -> None:
        with pytest.raises(SessionDamaged):
            await aio.read(session_id)
        async with aio.read_partial(session_id) as view:
            assert view.recovery is not None
            with backend.read_partial(session_id) as other:
                assert [event async for event in view.events()] == list(other.events())
            saved = view.path
        assert not saved.exists()

    run(work())


def test_opening_can_be_awaited(aio: AsyncStateBackend) -> None:
    """Closing is then the caller's; it is harmless when repeated, also at the same time."""

    async def work() -> None:
        session = await aio.create("default")
        with pytest.raises(SessionLocked):
            await aio.open(session.session_id)
        await append(session)
        await asyncio.gather(session.close(), session.close())
        await session.close()
        async with await aio.open(session.session_id) as again:
            assert await stored(again) != []
        view = await aio.read(session.session_id, check=False)
        await view.close()
        await view.close()
        with pytest.raises(SessionNotFound):
            await aio.open("01ARZ3NDEKTSV4RRFFQ69G5FAV")

    run(work())


def test_what_is_closed_is_refused(aio: AsyncStateBackend) -> None:
    """By the typed error, in every method; and what is open cannot be pickled."""

    async def work() -> None:
        async with aio.create("default") as session:
            with pytest.raises(TypeError):
                session.__reduce__()
        for use in (append(session), session.counts(), session.info, session.set_status("failed")):
            with pytest.raises(SessionClosed):
                await use
        with pytest.raises(SessionClosed):
            session.batch()
        with pytest.raises(SessionClosed):
            await stored(session)

    run(work())


def test_what_is_invalid_is_refused(aio: AsyncStateBackend) -> None:
    """Naming the field, at the call or when it is awaited; nothing is written."""

    async def work() -> None:
        async with aio.create("default") as session:
            with pytest.raises(InvalidValue):
                await append(session, "")
            with pytest.raises(InvalidValue):
                session.events(kinds=["no kind"])
            with pytest.raises(InvalidValue):
                session.follow(poll_interval_s=-1)
            with pytest.raises(InvalidValue):
                await session.event("")
            with pytest.raises(TypeError), session.batch():  # type: ignore[attr-defined]
                pass
            with pytest.raises(ZeroDivisionError):
                async with session.batch() as batch:
                    batch.append_prompt(payload=b"", schema_version="1")
                    raise ZeroDivisionError
            assert await stored(session) == []
            await session.set_status("completed")
            with pytest.raises(InvalidTransition):
                await append(session)
            with pytest.raises(InvalidTransition):
                session.batch()

    run(work())


def test_tasks_share_commits(aio: AsyncStateBackend) -> None:
    """64 tasks, one transaction for what one round of the loop appends, in order."""

    async def work() -> None:
        async with aio.create("default") as session:
            statements: list[str] = []
            session._sync._held.driver.set_trace_callback(statements.append)
            events = await asyncio.gather(*(append(session, str(number)) for number in range(64)))
            assert [event.sequence for event in events] == list(range(1, 65))
            assert statements.count("COMMIT") == 1
            assert await stored(session) == [str(number) for number in range(64)]

    run(work())


def test_each_task_gets_its_own_error(aio: AsyncStateBackend) -> None:
    """A duplicate fails alone, and tells where the event is and whether it is the same."""

    async def work() -> None:
        async with aio.create("default") as session:
            one, same, other, two = _any(
                await asyncio.gather(
                    append(session, "one"),
                    append(session, "one"),
                    append(session, "one", b"other"),
                    append(session, "two"),
                    return_exceptions=True,
                )
            )
            assert (one.sequence, two.sequence) == (1, 2)
            for error, is_same in ((same, True), (other, False)):
                assert isinstance(error, DuplicateEvent)
                assert (error.sequence, error.same_content) == (1, is_same)

    run(work())


def _any(value: Any) -> Any:
    return value


def test_closing_waits_for_what_was_taken(aio: AsyncStateBackend) -> None:
    """Appends that began before it are written; those after it are refused."""

    async def work() -> None:
        session = await aio.create("default")
        tasks = [asyncio.create_task(append(session, str(number))) for number in range(5)]
        await asyncio.sleep(0)
        await session.close()
        assert [(await task).sequence for task in tasks] == [1, 2, 3, 4, 5]
        async with aio.open(session.session_id) as again:
            assert len(await stored(again)) == 5

    run(work())


def test_a_status_comes_after_what_was_appended_before(aio: AsyncStateBackend) -> None:
    """In the order of the calls, without awaiting in between."""

    async def work() -> None:
        async with aio.create("default") as session:
            tasks = [asyncio.create_task(append(session)), asyncio.create_task(append(session))]
            await asyncio.sleep(0)
            await session.set_status("completed")
            assert [(await task).sequence for task in tasks] == [1, 2]

    run(work())


def test_the_loop_goes_on_while_the_file_is_held(aio: AsyncStateBackend) -> None:
    """Nothing blocks it: not an append, a read, a status, a batch, or closing."""

    async def work() -> None:
        session = await aio.create("default")
        async with session.batch() as batch:
            with held(session):
                batch.append_prompt(payload=b"", schema_version="1")
                tasks = [
                    asyncio.create_task(use)
                    for use in (append(session), session.counts(), session.set_status("completed"))
                ]
                for _ in range(20):
                    await asyncio.sleep(0.001)
                assert not any(task.done() for task in tasks)
            await asyncio.gather(*tasks)
            await session.set_status("running")
        with held(session):
            closing = asyncio.create_task(session.close())
            await asyncio.sleep(0.001)
            assert not closing.done()
        await closing

    run(work())


# ── Cancellation ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "count", [pytest.param(60, id="short"), pytest.param(2000, id="long", marks=pytest.mark.slow)]
)
def test_cancelled_appends_are_whole_or_absent_and_can_be_retried(
    aio: AsyncStateBackend, backend: StateBackend, count: int
) -> None:
    """At random moments, beside others; the retry tells which, and each event is there once."""
    chance = random.Random(8)
    outcomes = set()

    async def cancelled(session: AsyncSession, name: str) -> None:
        task = asyncio.create_task(append(session, name))
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        await asyncio.sleep(chance.choice((0, chance.random() * 0.003)))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        try:
            await append(session, name)
            outcomes.add("absent" if task.cancelled() else "?")
        except DuplicateEvent as error:
            assert error.same_content  # noqa: PT017 - there need not be one
            outcomes.add("whole")

    async def work() -> str:
        async with aio.create("default") as session:
            for place in range(0, count, 20):
                await asyncio.gather(
                    *(cancelled(session, str(place + number)) for number in range(20))
                )
            assert sorted(await stored(session)) == sorted(map(str, range(count)))
            return session.session_id

    assert_whole(session_file(backend, run(work())))
    assert "?" not in outcomes
    assert outcomes == {"absent", "whole"}


def test_an_append_cancelled_before_its_turn_is_not_written(aio: AsyncStateBackend) -> None:
    """It leaves the line at once, and is not written behind its task's back."""

    async def work() -> None:
        async with aio.create("default") as session:
            with held(session):
                first = asyncio.create_task(append(session, "first"))
                await asyncio.sleep(0.05)
                second = asyncio.create_task(append(session, "second"))
                await asyncio.sleep(0.05)
                first.cancel()
                second.cancel()
                await asyncio.gather(first, second, return_exceptions=True)
            await append(session, "third")
            assert await stored(session) == ["first", "third"]

    run(work())


def test_a_cancelled_opening_leaves_the_session_free(aio: AsyncStateBackend) -> None:
    """Whatever was opened for a task that does not wait any more is closed."""

    async def work() -> None:
        async with aio.create("default") as session:
            pass
        for pause in (0.0, 0.0005, 0.002, 0.005):
            task = asyncio.ensure_future(_opened(aio, session.session_id))
            await asyncio.sleep(pause)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await (await task).close()
            await _until_free(aio, session.session_id)

    run(work())


async def _opened(aio: AsyncStateBackend, session_id: str) -> AsyncSession:
    return await aio.open(session_id)


async def _until_free(aio: AsyncStateBackend, session_id: str) -> None:
    until = time.monotonic() + HANG_S
    while True:
        try:
            await (await aio.open(session_id)).close()
        except SessionLocked:
            assert time.monotonic() < until
            await asyncio.sleep(0.01)
        else:
            return


def test_a_cancelled_close_goes_on(aio: AsyncStateBackend) -> None:
    """Closing again waits for its end."""

    async def work() -> None:
        session = await aio.create("default")
        with held(session):
            closing = asyncio.create_task(session.close())
            await asyncio.sleep(0.01)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        await session.close()
        async with aio.open(session.session_id):
            pass

    run(work())


def test_a_loop_that_ends_early_leaves_a_session_that_another_can_use(
    aio: AsyncStateBackend,
) -> None:
    """A session is of no loop: tasks of the next one append to it and close it."""

    async def begin() -> AsyncSession:
        session = await aio.create("default")
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)  # type: ignore[union-attr]
        with suppress(asyncio.CancelledError):
            await append(session, "perhaps")
        return session

    async def end(session: AsyncSession) -> None:
        async with session:
            with suppress(DuplicateEvent):
                await append(session, "perhaps")
            assert await stored(session) == ["perhaps"]

    run(end(run(begin())))


def test_an_append_does_not_wait_for_a_loop_that_was_stopped(aio: AsyncStateBackend) -> None:
    """Ctrl-C took its loop away within the round in which another task had appended."""
    stopped = asyncio.new_event_loop()
    session = stopped.run_until_complete(_opened_new(aio))
    first = stopped.create_task(append(session, "first"))
    stopped.call_soon(stopped.stop)
    stopped.run_forever()

    async def second() -> list[str]:
        await append(session, "second")
        return await stored(session)

    assert run(second()) == ["first", "second"]
    assert stopped.run_until_complete(first).id == "first"
    stopped.run_until_complete(session.close())
    stopped.close()


async def _opened_new(aio: AsyncStateBackend) -> AsyncSession:
    return await aio.create("default")


def test_an_append_after_the_close_has_begun_is_refused(aio: AsyncStateBackend) -> None:
    """It would be in a round that nobody commits."""

    async def work() -> None:
        session = await aio.create("default")
        with held(session):
            closing = asyncio.ensure_future(session.close())
            await asyncio.sleep(0)
            with pytest.raises(SessionClosed):
                await append(session)
        await closing

    run(work())


def test_a_question_beside_a_close_is_refused(
    aio: AsyncStateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread is gone by the time that it is asked for."""

    async def work() -> None:
        session = await aio.create("default")
        await session.close()
        monkeypatch.setattr(session, "_check_usable", lambda: None)
        with pytest.raises(SessionClosed):
            await session.counts()

    run(work())


# ── Around it ────────────────────────────────────────────────────────────────────────────────


def test_the_folder_is_checked_migrated_recovered_and_filled(
    aio: AsyncStateBackend, root: Path
) -> None:
    """What the synchronous methods do is awaited, and their results come lazily."""

    async def work() -> None:
        report = await aio.import_transcripts([root / "src/statebackend/samples/claude_code"])
        assert report.files
        ids = {session_id async for session_id in aio.ids()}
        assert ids
        assert {result.session_id async for result in aio.verify()} == ids
        outcomes = {result.outcome async for result in aio.migrate(dry_run=True)}
        assert outcomes == {"current"}
        damaged = ids.pop()
        damage_page(aio.directory / f"{damaged}.sqlite")
        recovery = await aio.recover(damaged)
        assert recovery is not None
        assert recovery.session_id == damaged

    run(work())


def test_following_a_live_session(aio: AsyncStateBackend) -> None:
    """A task gets the events that another appends, and then an end."""

    async def work() -> None:
        async with aio.create("default") as session:
            view = await aio.read(session.session_id)

            async def follow() -> list[str]:
                return [event.id async for event in view.follow(poll_interval_s=0.001)]

            following = asyncio.create_task(follow())
            for number in range(10):
                await append(session, str(number))
                await asyncio.sleep(0.001)
            await session.set_status("completed")
            assert await following == [str(number) for number in range(10)]
            await view.close()

    run(work())


def test_iterating_has_the_memory_of_a_step(
    aio: AsyncStateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many events, and large ones, come in several steps, all of them and in order."""
    from statebackend import aio as module

    async def work() -> None:
        async with aio.create("default") as session:
            async with session.batch() as batch:
                for number in range(1200):
                    batch.append_prompt(payload=b"x" * (number % 7), schema_version="1")
            assert [event.sequence async for event in session.events()] == list(range(1, 1201))
            monkeypatch.setattr(module, "_STEP_BYTES", 10)
            assert [event.sequence async for event in session.events(limit=50)] == list(
                range(1, 51)
            )

    run(work())


def test_spans_are_those_of_the_task(aio: AsyncStateBackend) -> None:
    """One around each append, and one around the write; none where telemetry is off in the task."""
    spans: list[str] = []

    class Noting:
        """A driver that notes names."""

        @contextmanager
        def span(self, name: str, **attributes: telemetry.Attribute) -> Iterator[None]:
            """Note it."""
            spans.append(name)
            yield

    async def work() -> None:
        async with aio.create("default") as session:
            await append(session)
            with telemetry.disabled():
                await append(session)
                await aio.list()

    configure_telemetry(Noting())
    try:
        run(work())
    finally:
        configure_telemetry(None)
    assert spans == ["statebackend.create", "statebackend.append", "statebackend.commit"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("use", ["append", "counts", "close"])
def test_a_forked_child_is_refused(aio: AsyncStateBackend, use: str) -> None:
    """It has none of the threads, so it does not wait for them; closing is harmless."""
    uses: dict[str, Callable[[AsyncSession], Coroutine[Any, Any, Any]]] = {
        "append": append,
        "counts": lambda session: session.counts(),
        "close": lambda session: session.close(),
    }

    async def work() -> tuple[int, str]:
        async with aio.create("default") as session:
            await append(session)
            child = os.fork()
            if not child:
                signal.alarm(int(HANG_S))
                code = 1
                try:
                    await uses[use](session)
                    code = 2
                except SessionForked:
                    code = 3
                finally:
                    os._exit(code)
            _pid, status = os.waitpid(child, 0)  # noqa: ASYNC222 - nothing else runs here
            return os.waitstatus_to_exitcode(status), (await append(session)).id

    assert run(work())[0] == (2 if use == "close" else 3)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_uses_the_folder_with_threads_of_its_own(aio: AsyncStateBackend) -> None:
    """Those of the parent were not forked with it."""

    async def listed() -> int:
        return len(await aio.list())

    assert run(listed()) == 0
    child = os.fork()
    if not child:
        signal.alarm(int(HANG_S))
        os._exit(run(listed()) + 4)
    _pid, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 4


def test_threads_end_with_their_session(aio: AsyncStateBackend, tmp_path: Path) -> None:
    """Nothing is left running, and nothing is kept anywhere but in the objects."""
    before = threading.active_count()

    async def work() -> None:
        backend = AsyncStateBackend(tmp_path / "other")
        async with backend.create("default") as session:
            await append(session)
            await session.counts()
        del backend

    run(work())
    until = time.monotonic() + HANG_S
    while threading.active_count() > before:
        assert time.monotonic() < until
        time.sleep(0.01)
