"""Group commit: appends that share a transaction, and each that fails alone."""

from __future__ import annotations

import random
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from statebackend import (
    DuplicateEvent,
    Event,
    InvalidTransition,
    OutcomeUnknown,
    Session,
    SessionClosed,
    SessionUnreadable,
    StateBackend,
    StateBackendError,
    StorageBusy,
    StorageFull,
)
from statebackend.recording import commit_queue
from statebackend.recording.commit_queue import CommitQueue, Submission
from statebackend.repositories.pending import PendingEvent
from tests.crash.samples import MODEL, append, assert_whole, cost, item, session_file
from tests.recording.test_storage_faults import limit_pages
from tests.session_files import interrupted

HANG_S = 60.0


@pytest.fixture
def session(backend: StateBackend) -> Iterator[Session]:
    """Return an open session with one event, "first"; afterwards its file is whole."""
    session = backend.create("default")
    append(session, "first")
    yield session
    session.close()
    assert_whole(session_file(backend, session.session_id))


class Crowd:
    """Threads whose appends stand in line, in the order in which they were asked for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pool = ThreadPoolExecutor(64)
        self._asked: list[Future[object]] = []

    def ask(self, work: Callable[[], object]) -> Future[object]:
        """Let a thread do *work*, and return when it stands in line."""
        line = self._session._committer._queue
        before = len(line._waiting)
        future = self._pool.submit(work)
        until = time.monotonic() + HANG_S
        while len(line._waiting) == before:
            assert time.monotonic() < until
            time.sleep(0.0005)
        self._asked.append(future)
        return future

    def append(self, event_id: str) -> Future[object]:
        """Append a message."""
        return self.ask(lambda: append(self._session, event_id))

    def batch(self, *event_ids: str) -> Future[object]:
        """Append a batch of messages."""
        return self.ask(lambda: _batch(self._session, *event_ids))

    def wait(self) -> None:
        """Wait for all."""
        for future in self._asked:
            future.exception(HANG_S)
        self._pool.shutdown()


def _batch(session: Session, *event_ids: str) -> tuple[Event, ...]:
    with session.batch() as batch:
        for event_id in event_ids:
            batch.append_message(producer=MODEL, payload=b"{}", cost=cost(), event_id=event_id)
    return batch.events


@contextmanager
def in_line(session: Session) -> Iterator[Crowd]:
    """Hold the session's lock: what is asked for in the block is written after it, together."""
    crowd = Crowd(session)
    try:
        with session._held.lock:
            yield crowd
    finally:
        crowd.wait()


@contextmanager
def traced(session: Session) -> Iterator[list[str]]:
    """Note the statements that the session executes."""
    statements: list[str] = []
    session._held.driver.set_trace_callback(statements.append)
    try:
        yield statements
    finally:
        session._held.driver.set_trace_callback(None)


def stored(session: Session) -> list[str]:
    """Return the ids of the events, in order."""
    return [event.id for event in session.events()]


def test_appends_in_line_share_one_commit_and_keep_their_order(session: Session) -> None:
    """Twelve threads, one transaction; each gets the sequence of its own event."""
    with traced(session) as statements, in_line(session) as crowd:
        asked = [crowd.append(str(number)) for number in range(12)]
        asked.append(crowd.batch("a", "b"))
    assert [one.result().sequence for one in asked[:-1]] == list(range(2, 14))  # type: ignore[attr-defined]
    assert stored(session) == ["first", *map(str, range(12)), "a", "b"]
    assert statements.count("COMMIT") == 1


def test_an_append_alone_is_committed_at_once(session: Session) -> None:
    """No timer waits for company: one transaction each, and no thread is started."""
    before = threading.active_count()
    with traced(session) as statements:
        for _ in range(3):
            append(session)
    assert statements.count("COMMIT") == 3
    assert threading.active_count() == before


def test_those_of_the_group_before_get_a_turn_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many turns as there were units at most, and none after a group of one."""
    line, turns = CommitQueue(), []

    def one_comes(seconds: float) -> None:
        turns.append(seconds)
        if len(turns) < 3:
            line.join((Submission(()),))

    monkeypatch.setattr(time, "sleep", one_comes)
    line.gather()
    assert turns == []
    first = [Submission(()) for _ in range(3)]
    line.join(first)
    assert line.take_group(first[0]) == first
    next_one = Submission(())
    line.join((next_one,))
    line.gather()
    assert turns == [0, 0]
    assert len(line.take_group(next_one)) == 3
    line.gather()
    assert turns == [0, 0, 0, 0, 0]
    alone = Submission(())
    line.join((alone,))
    assert line.take_group(alone) == [alone]
    line.gather()
    assert len(turns) == 5


def test_a_duplicate_fails_alone(session: Session) -> None:
    """Also of an event of the same transaction, whose sequence it then tells."""
    with traced(session) as statements, in_line(session) as crowd:
        good = crowd.append("one")
        of_first, of_one = crowd.append("first"), crowd.append("one")
        other = crowd.ask(lambda: append(session, "one", b"other"))
        last = crowd.append("last")
    assert (good.result().sequence, last.result().sequence) == (2, 3)  # type: ignore[attr-defined]
    told = [one.exception() for one in (of_first, of_one, other)]
    assert all(isinstance(error, DuplicateEvent) for error in told)
    assert [(error.sequence, error.same_content) for error in told] == [  # type: ignore[union-attr]
        (1, True),
        (2, True),
        (2, False),
    ]
    assert stored(session) == ["first", "one", "last"]
    assert statements.count("COMMIT") == 1


def test_a_batch_with_a_duplicate_fails_as_a_whole_and_alone(session: Session) -> None:
    """Its neighbours are written, in their order, and nothing of it."""
    with in_line(session) as crowd:
        one = crowd.append("one")
        bad = crowd.batch("two", "first")
        three = crowd.batch("three", "four")
        again = crowd.append("one")
    assert one.exception() is None
    assert [event.sequence for event in three.result()] == [3, 4]  # type: ignore[attr-defined]
    for failed in (bad, again):
        assert isinstance(failed.exception(), DuplicateEvent)
    assert stored(session) == ["first", "one", "three", "four"]


def test_an_append_that_the_driver_refuses_fails_alone(session: Session) -> None:
    """Whatever it is that cannot be stored, the others in line are written."""

    class Odd(str):
        """A text that sqlite3 does not take."""

        __slots__ = ()

        def __conform__(self, _protocol: object) -> object:
            return object()

    with in_line(session) as crowd:
        one = crowd.append("one")
        odd = crowd.ask(lambda: append(session, Odd("odd")))
        two = crowd.append("two")
    assert (one.exception(), two.exception()) == (None, None)
    assert isinstance(odd.exception(), StateBackendError)
    assert stored(session) == ["first", "one", "two"]


def test_a_constraint_in_another_table_fails_alone(session: Session) -> None:
    """The event of a plan whose item is refused is undone as well."""
    driver = session._held.driver
    driver.set_authorizer(None)
    driver.execute(
        "CREATE TEMP TRIGGER refuse BEFORE INSERT ON main.plan_items WHEN NEW.tool_call_id = 'bad' "
        "BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )

    def plan(call: str) -> Event:
        return session.append_plan(
            producer=MODEL, payload=b"", items=[item(call)], event_id=f"plan {call}"
        )

    with in_line(session) as crowd:
        crowd.append("one")
        bad = crowd.ask(lambda: plan("bad"))
        good = crowd.ask(lambda: plan("good"))
    assert isinstance(bad.exception(), StateBackendError)
    assert good.exception() is None
    assert stored(session) == ["first", "one", "plan good"]


def test_new_producers_are_noted_once_with_their_first_event(session: Session) -> None:
    """Also where the first one of the transaction fails."""

    def prompt(event_id: str) -> Event:
        return session.append_prompt(payload=b"", schema_version="1", event_id=event_id)

    with in_line(session) as crowd:
        crowd.ask(lambda: prompt("first"))
        for number in range(3):
            crowd.ask(lambda number=number: prompt(f"p{number}"))  # type: ignore[misc]
    assert [(one.producer.category, one.first_seen_sequence) for one in session.producers()] == [
        ("model", 1),
        ("kernel", 2),
    ]


def test_transactions_are_bounded(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """In events and in bytes; one append that is larger than that is written alone."""
    monkeypatch.setattr(commit_queue, "MAX_SUBMISSIONS", 4)
    monkeypatch.setattr(commit_queue, "MAX_BYTES", 1000)
    with traced(session) as statements, in_line(session) as crowd:
        for number in range(8):
            crowd.append(str(number))
        for number, size in enumerate((600, 600, 5000)):
            name, payload = f"large {number}", b"x" * size
            crowd.ask(lambda name=name, payload=payload: append(session, name, payload))  # type: ignore[misc]
    assert statements.count("COMMIT") == 5
    assert len(stored(session)) == 12


def test_closing_ends_those_in_line(session: Session) -> None:
    """None of them is written, and each gets an error of its own."""
    with in_line(session) as crowd:
        asked = [crowd.append(str(number)) for number in range(5)]
        session.close()
    errors = [one.exception() for one in asked]
    assert all(isinstance(error, SessionClosed) for error in errors)
    assert len(set(map(id, errors))) == 5


def test_a_status_forbids_those_in_line(session: Session) -> None:
    """They were not written before it, so they are not written at all."""
    with in_line(session) as crowd:
        asked = [crowd.append(str(number)) for number in range(3)]
        session.set_status("completed")
    assert all(isinstance(one.exception(), InvalidTransition) for one in asked)
    session.set_status("running")
    assert append(session).sequence == 2


def test_a_file_that_was_moved_is_refused_to_all(session: Session) -> None:
    """Nobody is told that something was kept in a file which nobody finds."""
    moved = session.path.with_suffix(".moved")
    with in_line(session) as crowd:
        asked = [crowd.append(str(number)) for number in range(3)]
        session.path.rename(moved)
        with pytest.raises(SessionUnreadable, match="was moved"):
            session.set_status("completed")
    moved.rename(session.path)
    assert all(isinstance(one.exception(), SessionUnreadable) for one in asked)
    assert session.info.status == "running"


def test_a_full_disk_is_told_to_all_and_the_session_goes_on(session: Session) -> None:
    """Each member of the transaction gets StorageFull, and none is written."""
    before = limit_pages(session, 2)
    with in_line(session) as crowd:
        payload = b"x" * 3000
        asked = [
            crowd.ask(lambda number=number: append(session, str(number), payload))  # type: ignore[misc]
            for number in range(5)
        ]
    errors = [one.exception() for one in asked]
    assert all(isinstance(error, StorageFull) for error in errors)
    assert len(set(map(id, errors))) == 5
    session._held.driver.execute(f"PRAGMA max_page_count = {before}")
    assert append(session).sequence == 2


def grows_to_its_end(session: Session) -> list[BaseException | None]:
    """Let a commit of several fail in the middle, and return what each of them was told."""
    from tests.crash.kernel import file_size_limit

    append(session)
    size = session.path.with_name(session.path.name + "-wal").stat().st_size
    with file_size_limit(size + 1000), in_line(session) as crowd:
        asked = [crowd.append(str(number)) for number in range(4)]
    return [one.exception() for one in asked]


def test_an_unknown_outcome_is_told_to_all(backend: StateBackend) -> None:
    """The session is closed; opened again, the same ids settle what happened."""
    session = backend.create("default")
    errors = grows_to_its_end(session)
    assert [type(error) for error in errors] == [OutcomeUnknown] * 4
    assert len(set(map(id, errors))) == 4
    assert all(isinstance(error.__cause__, sqlite3.Error) for error in errors if error)
    with pytest.raises(SessionClosed):
        append(session)
    with backend.open(session.session_id) as again:
        known = set(stored(again))
        for number in range(4):
            with suppress(DuplicateEvent):
                append(again, str(number))
        assert len(known) in {1, 5}
        assert len(stored(again)) == 5
    assert_whole(session.path)


# ── Interrupts ───────────────────────────────────────────────────────────────────────────────


@contextmanager
def others_appending(session: Session, count: int) -> Iterator[list[str]]:
    """Append in other threads during the block; what they were told to be kept is in the list."""
    acknowledged: list[str] = []
    done = threading.Event()

    def work(number: int) -> None:
        for place in range(100_000):
            if done.is_set():
                return
            event_id = f"{number}:{place}"
            append(session, event_id)
            acknowledged.append(event_id)

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(work, number) for number in range(count)]
        try:
            yield acknowledged
        finally:
            done.set()
        for future in futures:
            future.result(HANG_S)


@pytest.mark.parametrize("write", [append, lambda session, name: _batch(session, name, name + "+")])
def test_interrupts_at_every_step_beside_others(
    session: Session, write: Callable[[Session, str], object]
) -> None:
    """As leader or as follower: whole or absent for good, and the others lose nothing."""
    with others_appending(session, 3) as acknowledged:
        for step in range(1, 260, 3):
            name = f"mine {step}"
            interrupted(lambda: write(session, name), step)  # noqa: B023 - called at once
            found = session.event(name)
            with suppress(DuplicateEvent):
                write(session, name)
                assert found is None
    ids = stored(session)
    assert len(ids) == len(set(ids))
    assert set(acknowledged) <= set(ids)
    assert [event.sequence for event in session.events()] == list(range(1, len(ids) + 1))


def test_a_follower_that_is_interrupted_leaves_the_line(session: Session) -> None:
    """What it wanted to append is not written behind its back."""
    with in_line(session) as crowd:
        crowd.append("one")
        assert interrupted(lambda: _wait_no_longer(session, "gone"), 1)
        crowd.append("two")
    assert stored(session) == ["first", "one", "two"]


def _wait_no_longer(session: Session, event_id: str) -> None:
    """Stand in line, and be interrupted there."""
    line = session._committer._queue
    joined = line.join

    def join(units: Sequence[Submission]) -> None:
        joined(units)
        raise KeyboardInterrupt

    line.join = join  # type: ignore[assignment, method-assign]
    try:
        append(session, event_id)
    finally:
        line.join = joined  # type: ignore[method-assign]


def test_a_lost_leader_is_replaced(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two interrupts in a row left a leader that does not exist, patience ends."""
    monkeypatch.setattr(commit_queue, "LOST_LEADER_S", 0.05)
    lost = Submission(())
    lost.thread = -1
    session._committer._queue._leader = lost
    assert append(session, "one").sequence == 2
    assert append(session, "two").sequence == 3


@pytest.mark.parametrize("committed", [True, False])
def test_what_a_lost_leader_had_taken_is_settled_by_the_next(
    session: Session, committed: bool
) -> None:
    """Interrupted before its commit, or after it: its units are put back, or done."""
    unit, driver = Submission(_pending(session, "taken")), session._held.driver
    session._committer._queue.join((unit,))
    group = session._committer._queue.take_group(unit)
    driver.execute("BEGIN IMMEDIATE")
    session._committer._insert(group)
    if committed:
        driver.execute("COMMIT")
    assert append(session, "next").sequence == 3
    assert (unit.done, tuple(unit.sequences or ())) == (True, (2,))
    assert stored(session) == ["first", "taken", "next"]


def _pending(session: Session, event_id: str) -> tuple[PendingEvent, ...]:
    batch = session.batch()
    with suppress(ZeroDivisionError), batch:
        batch.append_message(producer=MODEL, payload=b"{}", cost=cost(), event_id=event_id)
        raise ZeroDivisionError  # so that it is not written
    return tuple(batch._collected.pending.values())


# ── Appends within an append ─────────────────────────────────────────────────────────────────


def at_step(step: int, outer: Callable[[], object], inner: Callable[[], object]) -> bool:
    """Do *outer*, and *inner* within it as a signal handler would at the step; return if it was."""
    left = step

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal left
        if left > 0 and event in {"call", "c_return"}:
            left -= 1
            if left == 0:
                sys.setprofile(None)
                inner()

    sys.setprofile(count)
    try:
        outer()
    finally:
        sys.setprofile(None)
    return left <= 0


REENTERED: dict[str, Callable[[Session], object]] = {
    "append": append,
    "status": lambda session: session.set_status("completed"),
    "close": lambda session: session.close(),
    "read": lambda session: session.counts(),
}


@pytest.mark.parametrize("what", REENTERED)
@pytest.mark.parametrize("write", [append, lambda session, name: _batch(session, name, name + "+")])
def test_a_call_from_a_signal_handler_at_every_step(
    backend: StateBackend, write: Callable[[Session, str], object], what: str
) -> None:
    """Within an append of its thread it is refused, before or after it is done; nothing is lost."""
    step, refused, was_in_time = 1, 0, True
    session = backend.create("default")

    def call() -> None:
        nonlocal refused
        try:
            REENTERED[what](session)
        except StorageBusy:
            refused += 1

    while was_in_time:
        before = session.counts().events
        was_kept = False
        with suppress(SessionClosed, InvalidTransition):  # the call came before the append
            was_in_time = at_step(step, lambda: write(session, f"outer {step}"), call)  # noqa: B023
            was_kept = True
        session.close()
        session = backend.open(session.session_id)
        assert (session.event(f"outer {step}") is not None) is was_kept
        assert session.counts().events >= before + was_kept
        if session.info.status != "running":
            session.set_status("running")
        step += 3
    assert refused > 10
    session.close()
    assert_whole(session.path)


def test_an_append_in_the_span_of_another_append(session: Session) -> None:
    """It comes first, or after: the span is around the append, which has not begun or is done."""
    from statebackend import configure_telemetry

    class Noting:
        """A driver that appends in its spans of appends."""

        is_noting = False

        @contextmanager
        def span(self, name: str, **_attributes: object) -> Iterator[None]:
            """Append before and after, but for the spans of these appends."""
            notes = name == "statebackend.append" and not self.is_noting
            self.is_noting = True
            if notes:
                append(session, "before")
            yield
            if notes:
                append(session, "after")

    configure_telemetry(Noting())
    try:
        append(session, "one")
    finally:
        configure_telemetry(None)
    assert stored(session)[1:] == ["before", "one", "after"]


def test_appends_inside_a_loop_over_the_events(session: Session) -> None:
    """Beside others that append, the loop sees its own."""
    with others_appending(session, 3):
        count = 0
        for event in session.events(limit=200):
            if event.id.startswith("own ") or count == 20:
                continue
            count += 1
            append(session, f"own {event.sequence}")
    assert count == 20


@pytest.mark.parametrize(
    "count", [pytest.param(30, id="short"), pytest.param(600, id="long", marks=pytest.mark.slow)]
)
def test_random_appends_of_eight_threads(session: Session, count: int) -> None:
    """Ids that come up several times: each is kept once, and each caller is told the truth."""

    def work(seed: int) -> list[tuple[str, int, bool]]:
        chance = random.Random(seed)
        told = []
        for _ in range(count):
            event_id = str(chance.randrange(count * 6))
            try:
                told.append((event_id, append(session, event_id).sequence, True))
            except DuplicateEvent as error:
                assert error.same_content  # noqa: PT017 - there need not be one
                assert error.sequence is not None  # noqa: PT017
                told.append((event_id, error.sequence, False))
        return told

    with ThreadPoolExecutor(8) as pool:
        told = [one for answers in pool.map(work, range(8)) for one in answers]
    kept = {event.id: event.sequence for event in session.events()}
    assert sorted(kept.values()) == list(range(1, len(kept) + 1))
    assert {event_id: sequence for event_id, sequence, _new in told} == {
        key: value for key, value in kept.items() if key != "first"
    }
    assert sum(new for _id, _sequence, new in told) == len(kept) - 1
