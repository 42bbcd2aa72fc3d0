"""One session, many threads and tasks: no gap, commit order, no crash."""

from __future__ import annotations

import asyncio
import faulthandler
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from statebackend import (
    DuplicateEvent,
    Event,
    InvalidTransition,
    Session,
    SessionClosed,
    SessionLocked,
    SessionStatus,
    StateBackend,
)
from tests.crash.samples import MODEL, append, assert_whole, cost, item, litter, session_file

pytestmark = pytest.mark.conformance("SB-06")

THREADS = 16


@pytest.fixture
def session(backend: StateBackend) -> Iterator[Session]:
    """Return an open session; afterwards its file is whole."""
    faulthandler.enable()  # a crash of the interpreter names the place
    session = backend.create("default")
    yield session
    session.close()
    assert_whole(session_file(backend, session.session_id))


def at_once(*works: Callable[[], object]) -> list[object]:
    """Do all *works* in threads that start together, and return what they returned."""
    barrier = threading.Barrier(len(works))

    def start(work: Callable[[], object]) -> object:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(start, work) for work in works]]


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Do *work* again and again in two other threads, while the block runs."""
    done = threading.Event()

    def repeat() -> None:
        while not done.is_set():
            work()

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(repeat) for _ in range(2)]
        try:
            yield
        finally:
            done.set()
        for future in futures:
            future.result()


def until_closed(work: Callable[[], object]) -> Callable[[], None]:
    """Return work that must end with SessionClosed."""

    def ends() -> None:
        with pytest.raises(SessionClosed):
            work()

    return ends


def appends(session: Session, number: int, count: int = 15) -> Callable[[], list[Event]]:
    """Return work: append so many messages, each naming its thread and its place."""
    return lambda: [append(session, payload=f"{number}:{place}".encode()) for place in range(count)]


def assert_gapless(session: Session, returned: list[Event]) -> None:
    """Assert that exactly these events are there, each under the number it was given."""
    stored = list(session.events())
    assert [event.sequence for event in stored] == list(range(1, len(stored) + 1))
    assert {event.sequence: event.id for event in returned} == {
        event.sequence: event.id for event in stored
    }


def test_threads_get_gapless_sequences_in_commit_order(session: Session) -> None:
    """16 threads; the numbers returned are the stored ones, rising within each thread."""
    returned = at_once(*(appends(session, number) for number in range(THREADS)))
    assert_gapless(session, [event for one in returned for event in one])  # type: ignore[attr-defined]
    for one in returned:
        numbers = [event.sequence for event in one]  # type: ignore[attr-defined]
        assert numbers == sorted(numbers)


def test_append_that_returned_is_before_one_that_began_later(session: Session) -> None:
    """Sequence order is commit order: what is seen committed has no lower number to come."""
    seen: list[list[int]] = []

    def watch() -> None:
        seen.append([event.sequence for event in session.events()])

    with meanwhile(watch):
        at_once(*(appends(session, number, 8) for number in range(8)))
    for numbers in seen:
        assert numbers == list(range(1, len(numbers) + 1))


def test_tasks_get_gapless_sequences(session: Session) -> None:
    """64 asyncio tasks that append through ``to_thread``."""

    async def work() -> list[Event]:
        return await asyncio.gather(*(asyncio.to_thread(append, session) for _ in range(64)))

    assert_gapless(session, asyncio.run(work()))


def test_cancelled_tasks_leave_whole_events(session: Session) -> None:
    """A cancelled task's append is whole or absent, and can be retried with the same id."""

    async def work(name: str) -> None:
        task = asyncio.create_task(asyncio.to_thread(append, session, name))
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def all_of_them() -> None:
        for number in range(40):
            await work(str(number))

    asyncio.run(all_of_them())
    for number in range(40):
        with suppress(DuplicateEvent):
            append(session, str(number))
    assert {event.id for event in session.events()} == {str(number) for number in range(40)}
    assert session.counts().events == 40


def batches(session: Session, number: int) -> Callable[[], list[Event]]:
    """Return work: five batches of four events of three tables."""

    def work() -> list[Event]:
        returned: list[Event] = []
        for _ in range(5):
            with session.batch() as batch:
                batch.append_prompt(payload=b"p", schema_version="1")
                batch.append_message(producer=MODEL, payload=b"m", cost=cost())
                batch.append_plan(producer=MODEL, payload=b"l", items=[item()])
                batch.append_message(producer=MODEL, payload=b"m", cost=cost())
            numbers = [event.sequence for event in batch.events]
            assert numbers == list(range(numbers[0], numbers[0] + 4))
            returned += batch.events
        return returned

    return work


def test_batches_among_appends_stay_together(session: Session) -> None:
    """The events of one batch have neighbouring numbers, whatever others append."""
    works = [batches(session, number) for number in range(6)]
    works += [appends(session, number) for number in range(6)]
    returned = at_once(*works)
    assert_gapless(session, [event for one in returned for event in one])  # type: ignore[attr-defined]


def test_others_append_while_a_batch_is_collected(session: Session) -> None:
    """An open batch holds nobody up; its events come after those committed meanwhile."""
    with session.batch() as batch:
        batch.append_message(producer=MODEL, payload=b"1", cost=cost())
        own = append(session)
        (others,) = at_once(appends(session, 1, 3))
        with session.batch() as inner:
            inner.append_message(producer=MODEL, payload=b"2", cost=cost())
    assert own.sequence == 1
    assert [event.sequence for event in others] == [2, 3, 4]  # type: ignore[attr-defined]
    assert [event.sequence for event in (*inner.events, *batch.events)] == [5, 6]


def test_same_id_from_many_threads_is_stored_once(session: Session) -> None:
    """Of 16 appends of one id exactly one succeeds; the others change nothing, ledger included."""

    def work() -> bool:
        with suppress(DuplicateEvent):
            append(session, "same")
            return True
        return False

    assert at_once(*[work] * THREADS).count(True) == 1
    counts = session.counts()
    assert (counts.events, counts.cost_ledger) == (1, 1)


def test_duplicate_in_one_thread_does_not_touch_its_neighbours(session: Session) -> None:
    """Each append fails alone, also where several are committed together."""
    append(session, "taken")

    def refused() -> None:
        for _ in range(10):
            with pytest.raises(DuplicateEvent):
                append(session, "taken")

    returned = at_once(refused, *(appends(session, number) for number in range(6)))
    events = [event for one in returned[1:] for event in one]  # type: ignore[attr-defined]
    assert session.counts().events == len(events) + 1 == 91


def test_readers_beside_appending_threads(session: Session, backend: StateBackend) -> None:
    """Every way of reading works meanwhile, and sees whole transactions only."""

    def read() -> None:
        counts = session.counts()
        assert counts.cost_ledger == counts.by_kind.get("message", 0)
        list(session.costs())
        assert session.info.live
        assert len(backend.list()) == 1
        with backend.read(session.session_id, check=False) as view, view.orm():
            list(view.events(last=5))

    with meanwhile(read):
        at_once(*(appends(session, number, 6) for number in range(8)))


def test_close_while_others_append(session: Session, backend: StateBackend) -> None:
    """Appends end with SessionClosed; what had returned is there."""
    acknowledged: list[int] = []

    def work() -> None:
        while True:
            acknowledged.append(append(session).sequence)

    def close() -> None:
        while len(acknowledged) < 30:
            pass
        session.close()

    at_once(*[until_closed(work)] * 8, close)
    with backend.read(session.session_id) as view:
        assert sorted(acknowledged) == [event.sequence for event in view.events()]


def test_close_while_others_read(session: Session) -> None:
    """Iterations end with SessionClosed, wherever they are, and never with a crash."""
    with session.batch() as batch:
        for _ in range(1200):
            batch.append_message(producer=MODEL, payload=b"x", cost=cost())
    reading = threading.Event()

    def work() -> None:
        while True:
            for _event in session.events():
                reading.set()
            session.counts()
            list(session.plan_items())

    def close() -> None:
        reading.wait()
        session.close()

    at_once(*[until_closed(work)] * 6, close)


def test_status_changes_among_appends(session: Session) -> None:
    """An append finds the session running or is refused; the row is one of those set."""

    def work() -> int:
        written = 0
        for _ in range(30):
            with suppress(InvalidTransition):
                append(session)
                written += 1
        return written

    def change() -> None:
        for _ in range(10):
            with suppress(InvalidTransition):
                session.set_status(SessionStatus.COMPLETED)
            with suppress(InvalidTransition):
                session.set_status(SessionStatus.RUNNING)

    *written, _none, _none2 = at_once(*[work] * 6, change, change)
    assert session.counts().events == sum(int(str(count)) for count in written)


def test_iterating_while_others_append_sees_every_event_once(session: Session) -> None:
    """Events appended while iterating are seen, in order, none twice."""

    def watch() -> list[int]:
        numbers: list[int] = []
        while len(numbers) < 120:
            after = numbers[-1] if numbers else 0
            numbers += [event.sequence for event in session.events(after_sequence=after)]
        return numbers

    watched = at_once(watch, watch, *(appends(session, number) for number in range(8)))[:2]
    assert watched == [list(range(1, 121))] * 2


def test_many_sessions_at_once(backend: StateBackend) -> None:
    """Threads create, open, read and list sessions of their own and do not disturb each other."""

    def work() -> str:
        with backend.create("default") as session:
            append(session)
        backend.list()
        for _ in range(3):
            with backend.open(session.session_id) as again:
                append(again)
        with backend.read(session.session_id) as view:
            assert view.counts().events == 4
        return session.session_id

    ids = at_once(*[work] * 8)
    assert len(set(ids)) == 8
    assert sorted(map(str, ids), reverse=True) == list(backend.ids())


def fuzz(session: Session, backend: StateBackend, seed: int, steps: int) -> None:
    """Do random things to one session."""
    chance = random.Random(seed)
    iterating = iter(session.events())
    for step in range(steps):
        with suppress(InvalidTransition, DuplicateEvent, StopIteration):
            match chance.randrange(9):
                case 0 | 1:
                    append(session, f"{chance.randrange(steps * 4)}")
                case 2:
                    with session.batch() as batch:
                        for _ in range(chance.randrange(5)):
                            batch.append_message(producer=MODEL, payload=b"x", cost=cost())
                case 3:
                    next(iterating)
                case 4:
                    iterating = iter(session.events(after_sequence=step))
                case 5:
                    session.set_status(
                        chance.choice([SessionStatus.RUNNING, SessionStatus.COMPLETED])
                    )
                case 6:
                    with session.orm():
                        session.counts()
                case 7:
                    backend.list()
                case _:
                    with backend.read(session.session_id, check=False) as view:
                        list(view.events(limit=chance.randrange(1, 20)))


@pytest.mark.parametrize(
    "steps", [pytest.param(25, id="short"), pytest.param(400, id="long", marks=pytest.mark.slow)]
)
def test_random_use_from_many_threads(session: Session, backend: StateBackend, steps: int) -> None:
    """Whatever 8 threads do to one session, the file is whole afterwards."""
    at_once(*(lambda seed=seed: fuzz(session, backend, seed, steps) for seed in range(8)))
    numbers = [event.sequence for event in session.events()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_views_and_writers_that_come_and_go_do_not_hinder_each_other(
    backend: StateBackend,
) -> None:
    """Whoever closes last takes the log away; who comes at that moment finds a new one."""
    with backend.create("default") as session:
        append(session)
        session_id = session.session_id

    def view() -> None:
        for _ in range(60):
            with backend.read(session_id, check=False) as view, view.orm():
                assert view.counts().events > 0

    def write() -> int:
        appended = 0
        while appended < 40:
            with suppress(SessionLocked), backend.open(session_id) as session:
                append(session)
                appended += 1
        return appended

    def look() -> None:
        for _ in range(60):
            assert [one.session_id for one in backend.list()] == [session_id]

    at_once(view, view, view, write, look)
    with backend.read(session_id) as reader:
        assert reader.counts().events == 41
    backend.open(session_id).close()  # a view that outlived the writer leaves its log
    assert litter(backend) == set()
    assert_whole(session_file(backend, session_id))
