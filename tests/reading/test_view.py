"""Reading and writing side by side, in pages, and at the limits of size."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import func, select

from statebackend import EventKind, InvalidValue, StateBackend, StorageBusy
from statebackend.schema import models
from statebackend.sqlite import engine, settings
from tests.session_files import (
    MODEL,
    START,
    TOOL,
    call,
    cost,
    files_opened,
    new,
    path_of,
    rows_of,
    session_files,
)


def test_a_long_read_transaction_does_not_hold_up_the_writer(backend: StateBackend) -> None:
    """A hundred appends go on beside a reader's open transaction, which keeps its own view."""
    with backend.create("default") as session:
        call(session)
        count = select(func.count()).select_from(models.Event)
        with backend.read(session.session_id) as view, view.orm() as orm:
            assert orm.scalar(count) == 1
            for _ in range(100):
                call(session)
            assert orm.scalar(count) == 1
            orm.rollback()
            assert orm.scalar(count) == 101


def test_a_writer_waits_for_another_programs_lock(backend: StateBackend) -> None:
    """A foreign write transaction makes an append and a status change wait, not fail."""
    with (
        backend.create("default") as session,
        closing(
            sqlite3.connect(session.path, isolation_level=None, check_same_thread=False)
        ) as other,
    ):
        for change in (lambda: call(session), lambda: session.set_status("completed")):
            other.execute("BEGIN IMMEDIATE")
            other.execute("UPDATE session_meta SET profile = profile || '+'")
            release = threading.Timer(0.2, other.execute, ("COMMIT",))
            release.start()
            change()
            release.join()
        assert (session.info.profile, session.info.status) == ("default++", "completed")


def test_a_lock_that_does_not_end_is_a_typed_error(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the busy timeout the error says so; nothing was written, and a retry succeeds."""
    monkeypatch.setattr(settings, "BUSY_TIMEOUT_MS", 50)
    with (
        backend.create("default") as session,
        closing(sqlite3.connect(session.path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageBusy):
            call(session, event_id="one")
        with pytest.raises(StorageBusy):
            session.set_status("failed")
        other.execute("ROLLBACK")
        assert call(session, event_id="one") == 1
        assert session.info.status == "running"


def test_writing_transactions_begin_with_the_write_lock(backend: StateBackend) -> None:
    """None reads first and upgrades later, which no timeout helps once somebody else committed."""
    with backend.create("default") as session:
        seen: list[str] = []
        driver = engine.driver_of(session._held.connection)
        driver.set_trace_callback(seen.append)
        call(session)
        with session.batch() as batch:
            batch.append(EventKind.APPLY, producer=TOOL, payload=b"", schema_version="1")
        session.set_status("completed")
        driver.set_trace_callback(None)
    begins = [text for text in seen if text.startswith("BEGIN")]
    assert begins == ["BEGIN IMMEDIATE"] * 3


def test_equal_timestamps_decide_nothing(backend: StateBackend) -> None:
    """Two appends and a status change of one and the same moment go through."""
    with backend.create("default", started_at=START) as session:
        call(session, timestamp=START)
        call(session, timestamp=START)
        session.set_status("completed", ended_at=START)
        session.set_status("running")
        assert call(session, timestamp=START) == 3


@pytest.mark.parametrize("step_s", [0, -1])
def test_a_thousand_events_of_one_or_falling_times_keep_their_order(
    backend: StateBackend, step_s: int
) -> None:
    """The order of a batch is the order of its appends, whatever the clock said."""
    with backend.create("default") as session:
        with session.batch() as batch:
            for number in range(1000):
                batch.append(
                    EventKind.TOOL_CALL,
                    producer=TOOL,
                    payload=str(number).encode(),
                    schema_version="1",
                    timestamp=START + timedelta(seconds=step_s * number),
                )
        assert [int(event.payload) for event in session.events()] == list(range(1000))
        assert [event.sequence for event in batch.events] == list(range(1, 1001))


def test_pages_of_a_session_are_the_whole(backend: StateBackend) -> None:
    """Pages by sequence put together are the full replay, also with appends between them."""
    with backend.open(new(backend, events=10_000)) as session:
        seen: list[int] = []
        while page := [
            event.sequence for event in session.events(seen[-1] if seen else 0, limit=100)
        ]:
            seen += page
            if len(seen) <= 500:
                call(session)
        assert seen == list(range(1, 10_006))


def test_the_last_events_are_found_without_the_others(backend: StateBackend) -> None:
    """The last N come in sequence order, of all kinds or of some, and never more than there are."""
    with backend.create("default") as session:
        for number in range(10):
            call(session, str(number).encode())
            session.append_message(producer=MODEL, payload=b"", cost=None)
        assert [event.sequence for event in session.events(last=3)] == [18, 19, 20]
        calls = list(session.events(last=2, kinds=[EventKind.TOOL_CALL]))
        assert [event.payload for event in calls] == [b"8", b"9"]
        assert len(list(session.events(last=99))) == 20
        assert [event.sequence for event in session.events(last=5, limit=2)] == [16, 17]
        assert [event.sequence for event in session.events(18, last=5)] == [19, 20]
        assert list(session.events(last=0)) == list(session.events(limit=0)) == []
        assert list(session.events(kinds=[])) == []


def test_headers_come_without_payloads(backend: StateBackend) -> None:
    """Asked for headers, a walk does not hand out, or read, what may be large."""
    with backend.create("default") as session:
        call(session, bytes(5_000_000))
        (header,) = session.events(payloads=False)
        assert not hasattr(header, "payload")
        assert header.producer == TOOL


def test_a_parent_of_four_hundred_children_reads_alone(backend: StateBackend) -> None:
    """A child is a file of its own: replaying the parent opens none of them."""
    parent = new(backend, events=3)
    content = path_of(backend, new(backend, parent_session_id=parent)).read_bytes()
    for number in range(400):
        (backend.directory / f"01KJMG7C0000000000000{number:05}.sqlite").write_bytes(content)
    with files_opened() as seen, backend.read(parent) as view:
        assert len(list(view.events())) == 3
    assert session_files(seen) == [parent]


def test_a_payload_over_the_limit_is_refused_with_its_size(backend: StateBackend) -> None:
    """1,000,000,001 bytes are more than SQLite takes: a typed error, and no row."""
    with backend.create("default") as session:
        call(session)
        before = rows_of(session.path)
        with pytest.raises(InvalidValue, match="1000000001 bytes") as caught:
            call(session, bytes(1_000_000_001))
        assert caught.value.field == "payload"
        with session.batch() as batch, pytest.raises(InvalidValue):
            batch.append(
                EventKind.APPLY, producer=TOOL, payload=bytes(1_000_000_000), schema_version="1"
            )
        assert rows_of(session.path) == before


@pytest.mark.slow
def test_a_payload_of_a_hundred_megabytes_is_kept(backend: StateBackend) -> None:
    """It comes back byte for byte."""
    payload = hashlib.shake_256(b"seed").digest(1_000_000) * 100
    with backend.create("default") as session:
        call(session, payload)
    with backend.read(session.session_id) as view:
        (event,) = view.events()
    assert hashlib.sha256(event.payload).digest() == hashlib.sha256(payload).digest()


def test_an_append_inside_a_loop_over_the_same_session(backend: StateBackend) -> None:
    """Reading and writing through one handle do not wait for each other."""
    with backend.open(new(backend, events=3)) as session:
        for event in session.events(limit=6):
            call(session, b"copy of " + event.payload)
        assert session.counts().events == 9


def test_following_a_live_session_ends_with_it(backend: StateBackend) -> None:
    """A follower sees what is appended after it began, and ends when the session does."""
    with backend.create("default") as session:
        call(session)
        with backend.read(session.session_id) as view:
            follower = view.follow(poll_interval_s=0.01)
            assert next(follower).sequence == 1
            call(session)
            assert next(follower).sequence == 2

            def end() -> None:
                time.sleep(0.05)
                session.append_message(producer=MODEL, payload=b"", cost=cost())
                session.set_status("completed")

            thread = threading.Thread(target=end)
            thread.start()
            assert [event.sequence for event in follower] == [3]
            thread.join()


def test_following_ends_when_no_writer_is_left(backend: StateBackend) -> None:
    """A session that says running, but that nobody writes, is read to its end and no further."""
    session_id = new(backend, events=2)
    with backend.read(session_id) as view:
        assert [event.sequence for event in view.follow()] == [1, 2]
        assert [event.sequence for event in view.follow(1, ["tool_call"])] == [2]
        with pytest.raises(InvalidValue):
            view.follow(kinds=["render"])
