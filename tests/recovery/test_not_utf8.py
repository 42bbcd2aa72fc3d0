"""A text that is not UTF-8: its row is still shown, and the check reports it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from statebackend import BadSession, DuplicateEvent, SessionDamaged, StateBackend
from statebackend.reading.view import SessionReads
from statebackend.replay import replay
from statebackend.schema import models
from statebackend.verifying import verify
from tests.session_files import MODEL, call, fill, path_of, sql

_WORDS = {"events": "producer_name", "cost_ledger": "model_id", "plan_items": "tool_name"}


@pytest.fixture
def path(backend: StateBackend) -> Path:
    """Return a running session with one turn of everything and a broken text in each table."""
    with backend.create("default") as session:
        fill(session)
        path = path_of(backend, session.session_id)
    for table, column in _WORDS.items():
        sql(path, f"UPDATE {table} SET {column} = CAST(x'61ff7a' AS TEXT) WHERE sequence = 1")
    sql(path, "UPDATE producers SET name = CAST(x'61ff7a' AS TEXT) WHERE first_seen_sequence = 2")
    sql(path, "UPDATE events SET kind = CAST(x'fe' AS TEXT) WHERE sequence = 4")
    sql(path, "UPDATE events SET kind = CAST(x'ff' AS TEXT) WHERE sequence = 5")
    return path


@pytest.fixture(params=["view", "session"])
def handle(
    request: pytest.FixtureRequest, backend: StateBackend, path: Path
) -> Iterator[SessionReads]:
    """Return the session, open for reading and for writing."""
    opened = backend.read(path.stem) if request.param == "view" else backend.open(path.stem)
    with opened:
        yield opened


def test_every_event_is_read(handle: SessionReads) -> None:
    """U+FFFD stands for the broken bytes."""
    events = list(handle.events())
    assert [event.sequence for event in events] == [1, 2, 3, 4, 5]
    assert [event.producer.name for event in events[:2]] == ["a\ufffdz", MODEL.name]
    assert [event.kind for event in events[3:]] == ["\ufffd", "\ufffd"]
    assert [event.sequence for event in handle.events(payloads=False, last=2)] == [4, 5]
    assert handle.event(events[0].id) == events[0]


def test_the_other_tables_are_read_too(handle: SessionReads) -> None:
    """Two different broken kinds look the same, and are counted together."""
    assert [entry.cost.model_id for entry in handle.costs()] == ["a\ufffdz"]
    assert next(entry.item.tool_name for entry in handle.plan_items()) == "a\ufffdz"
    assert handle.producers()[1].producer.name == "a\ufffdz"
    assert handle.counts().by_kind == {"\ufffd": 2, "message": 2, "plan": 1}
    with handle.orm() as orm:
        assert len(orm.scalars(select(models.Event)).all()) == 5


def test_appends_and_followers_continue(backend: StateBackend, path: Path) -> None:
    """Such an event stops neither."""
    with backend.open(path.stem) as session:
        assert call(session) == 6
    with backend.read(path.stem) as view:
        assert [event.sequence for event in view.follow()] == [1, 2, 3, 4, 5, 6]
        assert [step.event.sequence for step in replay(view)] == [1, 2, 3, 4, 5, 6]


def test_a_repeated_append_finds_its_event(backend: StateBackend, path: Path) -> None:
    """By its id; the producer's name differs."""
    with backend.open(path.stem) as session:
        first = next(session.events())
        with pytest.raises(DuplicateEvent) as caught:
            call(session, event_id=first.id)
        assert (caught.value.sequence, caught.value.same_content) == (1, False)


def test_reports_over_many_sessions_include_it(backend: StateBackend, path: Path) -> None:
    """Such a row makes no report partial."""
    report = backend.cost_by("model")
    assert [group.key for group in report.groups] == ["a\ufffdz"]
    assert not report.partial
    assert not backend.plan_rules().partial
    assert "a\ufffdz" in {producer.name for producer in backend.referenced_producers().producers}


def test_the_check_reports_each(path: Path) -> None:
    """By table, column and row."""
    texts = [finding.text for finding in verify.verify_file(path) if "not UTF-8" in finding.text]
    assert texts == [
        "events.kind: 2 rows with text that is not UTF-8, first row 4",
        "events.producer_name: 1 row with text that is not UTF-8, first row 1",
        "cost_ledger.model_id: 1 row with text that is not UTF-8, first row 1",
        "plan_items.tool_name: 1 row with text that is not UTF-8, first row 1",
        "producers.name: 1 row with text that is not UTF-8, first row 2",
    ]


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("profile", "CAST(x'ff' AS TEXT)", "session_meta.profile is not UTF-8"),
        ("depth", "x''", "session_meta.depth has the wrong type"),
        ("session_id", "CAST(session_id AS BLOB)", "session_meta.session_id has the wrong type"),
    ],
)
def test_the_row_of_the_session_itself_is_damage(
    backend: StateBackend, path: Path, column: str, value: str, problem: str
) -> None:
    """A session rewrites that row as it read it, so a salvage corrects it first."""
    before = sql(path, "SELECT * FROM session_meta")
    sql(path, f"UPDATE session_meta SET {column} = {value}")
    with pytest.raises(SessionDamaged, match=problem):
        backend.read(path.stem)
    (listed,) = backend.scan()
    assert isinstance(listed, BadSession)
    assert isinstance(listed.error, SessionDamaged)
    with backend.open(path.stem) as session:
        assert session.recovery is not None
        assert session.recovery.derived == (("depth",) if column == "depth" else ())
        assert session.info.status == "running"
    if column != "profile":
        assert sql(path, "SELECT * FROM session_meta") == before
