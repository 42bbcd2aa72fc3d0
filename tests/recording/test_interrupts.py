"""Interrupted and killed writers: whole or absent, and told apart from those at work."""

from __future__ import annotations

import gc
import json
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import FrameType

import pytest
from sqlalchemy.exc import SQLAlchemyError

from statebackend import DuplicateEvent, Event, EventKind, Session, SessionInfo, StateBackend
from tests.session_files import (
    MODEL,
    TOOL,
    call,
    cost,
    interrupted,
    item,
    killed_writer,
    process,
    run_python,
    sql,
)

# An interrupt that comes inside a finalizer cannot be raised, so Python only prints it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Free here what an interrupt left unclosed: Python 3.13 warns of it, in whichever test."""
    yield
    gc.collect()


def message(session: Session, event_id: str) -> None:
    """Append a message with cost."""
    session.append_message(producer=MODEL, payload=b"turn", cost=cost(), event_id=event_id)


def plan(session: Session, event_id: str) -> None:
    """Append a plan of two items."""
    session.append_plan(
        producer=MODEL, payload=b"plan", items=[item(), item("deny")], event_id=event_id
    )


def batch(session: Session, event_id: str) -> None:
    """Append two events in one transaction."""
    with session.batch() as both:
        both.append_message(producer=MODEL, payload=b"", cost=cost(), event_id=event_id)
        both.append(
            EventKind.APPLY, producer=TOOL, payload=b"", schema_version="1", event_id=f"{event_id}+"
        )


def retried(append: Callable[[Session, str], None], session: Session, event_id: str) -> None:
    """Append again with the same id; that it is there already is success."""
    with suppress(DuplicateEvent):
        append(session, event_id)


def check_whole(session: Session) -> None:
    """Check that sequences have no gap, and that each event has exactly its own rows."""
    events = list(session.events())
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert len({event.id for event in events}) == len(events)
    messages = [event.sequence for event in events if event.kind == "message"]
    plans = [event.sequence for event in events if event.kind == "plan" for _ in range(2)]
    assert [entry.event_sequence for entry in session.costs()] == messages
    assert [entry.event_sequence for entry in session.plan_items()] == plans
    assert sql(session.path, "PRAGMA foreign_key_check") == []


@pytest.mark.parametrize("append", [message, plan, batch])
def test_an_append_interrupted_at_any_step_is_whole_or_absent(
    backend: StateBackend, append: Callable[[Session, str], None]
) -> None:
    """After Ctrl-C at each call in turn, a retry with the same id leaves exactly one event."""
    step = 0
    with backend.create("default") as session:
        append(session, "warm")
        while True:
            step += 1
            event_id = f"e{step}"
            if not interrupted(partial(append, session, event_id), step):
                break
            retried(append, session, event_id)
        check_whole(session)
        assert step > 50
        expected = {"warm", *(f"e{number}" for number in range(1, step + 1))}
        assert {event.id for event in session.events() if not event.id.endswith("+")} == expected


@pytest.mark.parametrize("first", [1, 4])
def test_a_status_interrupted_at_any_step_is_the_old_or_the_new(
    backend: StateBackend, first: int
) -> None:
    """What the handle believes is what the file says, and the session goes on being used."""
    step, done = first, False
    with backend.create("default") as session:
        while not done:
            with suppress(*_HIDDEN_INTERRUPTS):
                done = not interrupted(lambda: session.set_status("completed"), step)
            ((stored,),) = sql(session.path, "SELECT status FROM session_meta")
            assert session.info.status == stored, step
            if stored == "running":
                session.set_status("completed")
            session.set_status("running")
            call(session)
            step += 8
        check_whole(session)


# In a few places SQLAlchemy stumbles over an interrupt inside its commit and raises these over it.
_HIDDEN_INTERRUPTS = (AssertionError, SQLAlchemyError)


def test_closing_after_an_interrupt_gives_the_session_free(backend: StateBackend) -> None:
    """Whatever step was interrupted, leaving the block closes, and another writer can open."""
    session_id = ""
    for step in range(5, 100, 5):
        with backend.create("default") as session:
            session_id = session.session_id
            interrupted(lambda: message(session, "one"), step)
        with backend.open(session_id) as again:
            retried(message, again, "one")
            check_whole(again)


@pytest.mark.parametrize("append", [message, plan, batch])
def test_a_hundred_appends_interrupted_by_a_signal(
    backend: StateBackend, append: Callable[[Session, str], None]
) -> None:
    """A real SIGALRM at a random moment raises in the middle; retries leave no gap, no double."""
    rng = random.Random(51)

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with backend.create("default") as session:
            append(session, "warm")
            for number in range(100):
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.00002, 0.002))
                    append(session, f"e{number}")
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    retried(append, session, f"e{number}")
            check_whole(session)
            firsts = [event.id for event in session.events() if not event.id.endswith("+")]
            assert firsts == ["warm", *(f"e{number}" for number in range(100))]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_exception_in_one_thread_leaves_the_others_appends(backend: StateBackend) -> None:
    """A thread that fails in a batch writes nothing of it, and holds nobody up."""
    with backend.create("default") as session:

        def fails() -> None:
            with pytest.raises(ZeroDivisionError), session.batch() as collected:
                collected.append(EventKind.APPLY, producer=TOOL, payload=b"", schema_version="1")
                raise ZeroDivisionError

        threads = [
            threading.Thread(target=fails if number % 2 else lambda: call(session))
            for number in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check_whole(session)
        assert session.counts().by_kind == {"tool_call": 10}


def call_id(event: Event) -> str | None:
    """Read the id of a call as this test's producer writes it."""
    found = json.loads(event.payload).get("call")
    return None if found is None else str(found)


def test_calls_without_a_result_are_named(backend: StateBackend) -> None:
    """A call whose writer was killed before the result came is the one that is open."""
    code = """
        import os, signal, sys
        from statebackend import StateBackend
        from tests.session_files import TOOL, call
        session = StateBackend(sys.argv[1]).create("default")
        for number in range(3):
            call(session, b'{"call": %d}' % number)
            if number != 1:
                payload = b'{"call": %d}' % number
                session.append("tool_result", producer=TOOL, payload=payload, schema_version="1")
        print(session.session_id, flush=True)
        sys.stdin.readline()
    """
    with process(code, backend.directory) as writer:
        (session_id,) = backend.ids()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    with backend.read(session_id) as view:
        assert [event.payload for event in view.open_tool_calls(call_id)] == [b'{"call": 1}']


def test_results_are_matched_by_id_and_order(backend: StateBackend) -> None:
    """A reused id needs a result each time, a foreign result closes none, no id counts as open."""
    calls_and_results = [
        (EventKind.TOOL_CALL, b'{"call": 1}'),
        (EventKind.TOOL_CALL, b'{"call": 1}'),
        (EventKind.TOOL_RESULT, b'{"call": 1}'),
        (EventKind.TOOL_RESULT, b'{"call": 9}'),
        (EventKind.TOOL_CALL, b"{}"),
        (EventKind.TOOL_RESULT, b"{}"),
    ]
    with backend.create("default") as session:
        for kind, payload in calls_and_results:
            session.append(kind, producer=TOOL, payload=payload, schema_version="1")
        assert [event.sequence for event in session.open_tool_calls(call_id)] == [2, 5]


def test_a_dead_writers_session_stays_running_and_is_told_apart(backend: StateBackend) -> None:
    """After kill -9 the row says running as before, and every summary says: nobody writes it."""
    dead = killed_writer(backend)
    with backend.create("default") as session:
        found = {one.session_id: one for one in backend.list() if isinstance(one, SessionInfo)}
        assert (found[dead].status, found[dead].live) == ("running", False)
        assert (found[session.session_id].status, found[session.session_id].live) == (
            "running",
            True,
        )
        assert [one.session_id for one in backend.stale()] == [dead]
    with backend.open(dead) as again:
        again.set_status("failed")
    assert [one.session_id for one in backend.stale()] == [session.session_id]


def test_another_process_sees_who_is_alive(backend: StateBackend) -> None:
    """The mark does not depend on which process asks."""
    with backend.create("default"):
        code = """
            import sys
            from statebackend import StateBackend
            backend = StateBackend(sys.argv[1])
            print(len(backend.stale()), [one.live for one in backend.list()])
        """
        assert run_python(code, backend.directory) == "0 [True]"
    assert run_python(code, backend.directory) == "1 [False]"
