"""The same behaviour on a new, a reopened, a migrated and a salvaged file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statebackend import DuplicateEvent, EventKind, Session, SessionStatus, StateBackend
from statebackend.recording.appends import Batch
from tests.chains import make_chain, program_of
from tests.session_files import (
    MODEL,
    TOOL,
    call,
    cost,
    damage_index,
    fill,
    item,
    new,
    path_of,
    sql,
)


@pytest.fixture(params=["new", "reopened", "migrated", "salvaged"])
def session(
    request: pytest.FixtureRequest, backend: StateBackend, tmp_path: Path
) -> Iterator[Session]:
    """Return an open session of each kind, with one turn of everything."""
    if request.param == "new":
        with backend.create("default") as session:
            fill(session)
            yield session
        return
    with backend.create("default") as created:
        fill(created)
        session_id = created.session_id
    if request.param == "reopened":
        with backend.open(session_id) as session:
            yield session
    elif request.param == "migrated":
        chain = make_chain(tmp_path / "program", 5)
        with program_of(chain), backend.open(session_id) as session:
            assert sql(session.path, "PRAGMA user_version") == [(chain.version,)]
            yield session
    else:
        damage_index(path_of(backend, session_id))
        assert backend.recover(session_id) is not None
        with backend.open(session_id) as session:
            yield session


def test_an_append_follows_the_last_event(session: Session) -> None:
    """It has the next sequence and reads back as it was given."""
    last = session.counts().events
    event = session.append(
        EventKind.TOOL_CALL, producer=TOOL, payload=b"\x00\xff", schema_version="1"
    )
    assert event.sequence == last + 1
    assert session.event(event.id) == event
    assert list(session.events())[-1] == event


def test_an_event_id_is_appended_once(session: Session) -> None:
    """Other content under an id that is stored is refused and changes nothing."""
    event = session.append_prompt(payload=b"a", schema_version="1")
    with pytest.raises(DuplicateEvent):
        session.append_prompt(payload=b"b", schema_version="1", event_id=event.id)
    assert list(session.events())[-1] == event


def test_a_batch_is_whole_or_absent(session: Session) -> None:
    """A batch that fails leaves no event; one that ends leaves all."""

    def append_two(batch: Batch) -> None:
        for payload in (b"1", b"2"):
            batch.append_prompt(payload=payload, schema_version="1")

    before = session.counts().events
    with pytest.raises(ZeroDivisionError), session.batch() as batch:
        append_two(batch)
        raise ZeroDivisionError
    assert session.counts().events == before
    with session.batch() as batch:
        append_two(batch)
    assert [event.payload for event in session.events()][before:] == [b"1", b"2"]


def test_costs_and_plan_items_are_stored(session: Session, backend: StateBackend) -> None:
    """They add to those that the file has, and the session tree counts them."""
    costs, items = list(session.costs()), list(session.plan_items())
    session.append_message(producer=MODEL, payload=b"m", cost=cost(0.5))
    session.append_plan(producer=MODEL, payload=b"[]", items=[item("deny")])
    assert len(list(session.costs())) == len(costs) + 1
    assert len(list(session.plan_items())) == len(items) + 1
    session_id = session.info.session_id
    new(backend, parent_session_id=session_id)
    total = backend.cost(session_id, tree=True)
    assert total.own == session.cost_totals()
    assert len(backend.tree(session_id).nodes) == 2


def test_a_status_is_stored(session: Session, backend: StateBackend) -> None:
    """Any other program reads it; the file of a closed session has no damage."""
    session_id = session.info.session_id
    call(session)
    session.set_status(SessionStatus.COMPLETED)
    events = list(session.events())
    session.close()
    with backend.read(session_id) as view:
        assert view.info.status == SessionStatus.COMPLETED
        assert list(view.events()) == events
    (result,) = backend.verify([session_id])
    assert result.findings == ()
