"""SB-16 to SB-19: what is written together, and what a failure leaves."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from statebackend import (
    DuplicateEvent,
    EventKind,
    InvalidValue,
    OutcomeUnknown,
    Producer,
    Session,
    StateBackend,
    StateBackendError,
    StorageFull,
)
from statebackend.sqlite import engine
from tests.session_files import (
    MODEL,
    TOOL,
    call,
    cost,
    fill,
    full,
    item,
    path_of,
    rows_of,
    sql,
)


@contextmanager
def denied(session: Session, table: str) -> Iterator[None]:
    """Let SQLite refuse every insert into one table, in the middle of a transaction."""
    driver = engine.driver_of(session._held.connection)

    def authorize(action: int, one: str | None, *_rest: str | None) -> int:
        wanted = action == sqlite3.SQLITE_INSERT and one == table
        return sqlite3.SQLITE_DENY if wanted else sqlite3.SQLITE_OK

    driver.set_authorizer(authorize)
    try:
        yield
    finally:
        driver.set_authorizer(None)


@contextmanager
def little_room(session: Session, pages: int = 0) -> Iterator[None]:
    """Let SQLite find the file full after so many more pages."""
    driver = engine.driver_of(session._held.connection)
    driver.set_authorizer(None)
    (used,) = driver.execute("PRAGMA page_count").fetchone()
    driver.execute(f"PRAGMA max_page_count = {used + pages}")
    try:
        yield
    finally:
        driver.execute("PRAGMA max_page_count = 1000000")


@contextmanager
def no_growth_of(path_size: int) -> Iterator[None]:
    """Let the operating system refuse to write behind so many bytes of any file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path_size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def turn(session: Session, event_id: str | None = None, payload: bytes = b"turn") -> int:
    """Append a message with cost, of a producer not seen before."""
    producer = Producer("model", "other", "1")
    return session.append_message(
        producer=producer, payload=payload, cost=cost(), event_id=event_id
    ).sequence


@pytest.mark.conformance("SB-16")
def test_sb16_the_cost_row_belongs_to_its_message(backend: StateBackend) -> None:
    """A message with cost has exactly one row, which refers to it; one without has none."""
    with backend.create("default") as session:
        session.append_message(producer=MODEL, payload=b"free", cost=None)
        sequence = turn(session)
        assert [one.event_sequence for one in session.costs()] == [sequence] == [2]


@pytest.mark.conformance("SB-16")
def test_sb16_the_numbers_are_stored_as_given(backend: StateBackend) -> None:
    """Nothing is computed, rounded or filled in: also 0, the largest integer and tiny amounts."""
    given = [
        cost(0.0, input_tokens=0, output_tokens=0, cache_write_tokens=0, cache_read_tokens=0),
        cost(0.1 + 0.2, input_tokens=2**63 - 1),
        cost(5e-324, model_id="ü", provider_name="{}"),
        cost(1.7976931348623157e308),
    ]
    with backend.create("default") as session:
        for one in given:
            session.append_message(producer=MODEL, payload=b"", cost=one)
        assert [entry.cost for entry in session.costs()] == given
    stored = sql(session.path, "SELECT input_tokens, cost_usd FROM cost_ledger")
    assert stored == [(one.input_tokens, one.cost_usd) for one in given]


@pytest.mark.conformance("SB-16", "SB-19")
@pytest.mark.parametrize("table", ["events", "producers", "cost_ledger"])
def test_sb16_a_message_without_its_cost_row_is_never_kept(
    backend: StateBackend, table: str
) -> None:
    """Whichever insert of the append fails, none of its rows is there."""
    with backend.create("default") as session:
        fill(session)
        before = rows_of(session.path)
        with denied(session, table), pytest.raises(StateBackendError):
            turn(session)
        assert rows_of(session.path) == before
        assert turn(session) == 6


@pytest.mark.conformance("SB-17")
def test_sb17_plan_items_belong_to_their_plan(backend: StateBackend) -> None:
    """Each item is a row in the order given, with the plan's sequence; none is allowed too."""
    items = [item("allow"), item("ask", tool_name="rm"), item("deny", decided_by="rule 7")]
    with backend.create("default") as session:
        session.append_plan(producer=MODEL, payload=b"", items=[])
        plan = session.append_plan(producer=MODEL, payload=b"", items=iter(items))
        entries = list(session.plan_items())
    assert [entry.item for entry in entries] == items
    assert {entry.event_sequence for entry in entries} == {plan.sequence}


@pytest.mark.conformance("SB-17", "SB-19")
def test_sb17_a_plan_without_its_items_is_never_kept(backend: StateBackend) -> None:
    """When the rows of the items cannot be written, the plan is not there either."""
    with backend.create("default") as session:
        fill(session)
        before = rows_of(session.path)
        with denied(session, "plan_items"), pytest.raises(StateBackendError):
            session.append_plan(producer=MODEL, payload=b"", items=[item()])
        assert rows_of(session.path) == before


@pytest.mark.conformance("SB-17")
@pytest.mark.parametrize("decision", ["", "Allow", "maybe", None])
def test_sb17_any_other_decision_is_refused(backend: StateBackend, decision: str) -> None:
    """A decision is allow, ask or deny; with another one, nothing of the plan is written."""
    with backend.create("default") as session:
        with pytest.raises(InvalidValue) as caught:
            session.append_plan(producer=MODEL, payload=b"", items=[item(), item(decision)])
        assert caught.value.field == "item.decision"
        assert session.counts().events == 0


@pytest.mark.conformance("SB-18")
def test_sb18_a_producer_is_noted_at_its_first_event(backend: StateBackend) -> None:
    """Each distinct build has one row, with the sequence of the first event it wrote."""
    builds = [
        TOOL,
        MODEL,
        TOOL,
        Producer("tool", "shell", "1.0.1"),
        Producer("model", "shell", "1"),
    ]
    with backend.create("default") as session:
        for producer in builds:
            call(session, producer=producer)
        found = {entry.producer: entry.first_seen_sequence for entry in session.producers()}
    assert found == {TOOL: 1, MODEL: 2, builds[3]: 4, builds[4]: 5}


@pytest.mark.conformance("SB-18")
def test_sb18_a_known_producer_stays_as_it_is(backend: StateBackend) -> None:
    """Another writer of the session does not move the first sighting."""
    session_id = full(backend)
    before = rows_of(path_of(backend, session_id))["producers"]
    with backend.open(session_id) as session:
        session.set_status("running")
        call(session)
    assert rows_of(session.path)["producers"] == before


@pytest.mark.conformance("SB-18", "SB-19")
def test_sb18_a_producer_of_a_failed_append_is_not_remembered(backend: StateBackend) -> None:
    """The build whose first append failed is noted by its next one."""
    with backend.create("default") as session:
        with denied(session, "cost_ledger"), pytest.raises(StateBackendError):
            turn(session)
        turn(session)
        assert [entry.producer.name for entry in session.producers()] == ["other"]


@pytest.mark.conformance("SB-19")
def test_sb19_a_batch_is_all_or_none(backend: StateBackend) -> None:
    """One duplicate in a batch leaves none of its other events."""
    with backend.create("default") as session:
        call(session, event_id="taken")
        before = rows_of(session.path)
        with pytest.raises(DuplicateEvent), session.batch() as batch:
            for event_id in ("new-1", "taken", "new-2"):
                batch.append_message(producer=MODEL, payload=b"", cost=cost(), event_id=event_id)
        assert rows_of(session.path) == before
        assert batch.events == ()


@pytest.mark.conformance("SB-19")
def test_sb19_an_exception_in_the_block_writes_nothing(backend: StateBackend) -> None:
    """What was collected before the block failed is not there."""
    with backend.create("default") as session:
        with pytest.raises(ZeroDivisionError), session.batch() as batch:
            batch.append(EventKind.APPLY, producer=TOOL, payload=b"", schema_version="1")
            raise ZeroDivisionError
        assert session.counts().events == 0


@pytest.mark.conformance("SB-19")
def test_sb19_a_full_disk_leaves_nothing_and_the_session_usable(backend: StateBackend) -> None:
    """With no room left the error says so; with room again, the same id succeeds."""
    with backend.create("default") as session:
        fill(session)
        before = rows_of(session.path)
        with little_room(session), pytest.raises(StorageFull):
            session.append_message(
                producer=MODEL, payload=bytes(100_000), cost=cost(), event_id="big"
            )
        assert rows_of(session.path) == before
        assert turn(session, "big") == 6


@pytest.mark.conformance("SB-19")
def test_sb19_a_commit_that_fails_halfway_is_an_unknown_outcome(backend: StateBackend) -> None:
    """When the log cannot be written, the session closes, and a retry by id settles it."""
    with backend.create("default") as session:
        fill(session)
        wal = session.path.with_name(session.path.name + "-wal")
        size = wal.stat().st_size
        payload = bytes(size)  # more than the room that the log has
        with no_growth_of(size + 1000), pytest.raises(OutcomeUnknown) as caught:
            turn(session, "open question", payload)
    assert caught.value.path == session.path
    with backend.open(session.session_id) as again:
        assert turn(again, "open question", payload) == 6
        with pytest.raises(DuplicateEvent) as duplicate:
            turn(again, "open question", payload)
    assert duplicate.value.same_content


@pytest.mark.conformance("SB-19")
def test_sb19_a_status_that_cannot_be_committed_is_not_set(backend: StateBackend) -> None:
    """A failed commit of a status closes the session too, and the file keeps the old status."""
    with backend.create("default") as session:
        wal = session.path.with_name(session.path.name + "-wal")
        call(session)
        with no_growth_of(wal.stat().st_size + 1000), pytest.raises(OutcomeUnknown):
            session.set_status("completed")
    with backend.read(session.session_id) as view:
        assert view.info.status == "running"
