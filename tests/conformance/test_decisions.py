"""SB-40 and SB-41: references without ON DELETE, and the user's prompt."""

from __future__ import annotations

import sqlite3

import pytest

from statebackend import EventKind, InvalidValue, Producer, StateBackend
from statebackend.sqlite import engine
from statebackend.values.recorded import kernel_user
from tests.session_files import MODEL, cost, fill, full, item, path_of, rows_of, sql

KERNEL = Producer("kernel", "kernel", "1")
ORDINARY = [kind for kind in EventKind if kind not in ("message", "plan", "apply")]


@pytest.mark.conformance("SB-40")
def test_sb40_no_reference_acts_on_delete(backend: StateBackend) -> None:
    """Every reference to events says NO ACTION."""
    path = path_of(backend, full(backend))
    for table in ("cost_ledger", "plan_items", "producers"):
        ((*_, on_update, on_delete, _match),) = sql(path, f"PRAGMA foreign_key_list({table})")
        assert (on_update, on_delete) == ("NO ACTION", "NO ACTION")


@pytest.mark.conformance("SB-40")
def test_sb40_references_are_enforced_while_writing(backend: StateBackend) -> None:
    """Even without the guard, a referenced event cannot be deleted, nor a row refer to none."""
    with backend.create("default") as session:
        fill(session)
        before = rows_of(session.path)
        driver = engine.driver_of(session._held.connection)
        assert driver.execute("PRAGMA foreign_keys").fetchone() == (1,)
        driver.set_authorizer(None)
        driver.execute("DROP TRIGGER temp.events_is_append_only")
        for statement in (
            "DELETE FROM events WHERE sequence = 2",
            "INSERT INTO producers VALUES ('tool', 'x', '1', 99)",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
                driver.execute(statement)
        assert rows_of(session.path) == before


@pytest.mark.conformance("SB-41")
def test_sb41_the_prompt_is_a_message_of_the_kernel(backend: StateBackend) -> None:
    """The user's turn is stored with the reserved producer, and has no cost row."""
    with backend.create("default") as session:
        event = session.append_prompt(payload=b"do it", schema_version="1")
        assert (event.kind, event.producer) == ("message", Producer("kernel", "user", "1"))
        assert (session.counts().cost_ledger, session.info.cost_usd) == (0, None)
        assert [one.producer for one in session.producers()] == [kernel_user()]


@pytest.mark.conformance("SB-41")
def test_sb41_a_prompt_cannot_cost(backend: StateBackend) -> None:
    """A message of the reserved user producer is refused with a cost, accepted without."""
    with backend.create("default") as session:
        with pytest.raises(InvalidValue) as caught:
            session.append_message(producer=kernel_user(), payload=b"", cost=cost())
        assert caught.value.field == "cost"
        session.append_message(producer=kernel_user("2"), payload=b"", cost=None)


@pytest.mark.conformance("SB-41")
def test_sb41_the_kernel_may_plan_and_apply(backend: StateBackend) -> None:
    """The reserved kernel producer writes those two kinds."""
    with backend.create("default") as session:
        session.append_plan(producer=KERNEL, payload=b"", items=[item()])
        session.append(EventKind.APPLY, producer=KERNEL, payload=b"", schema_version="1")
        assert session.counts().by_kind == {"apply": 1, "plan": 1}


@pytest.mark.conformance("SB-41", "SB-14")
@pytest.mark.parametrize("name", ["user", "kernel", "other"])
def test_sb41_the_reserved_category_is_refused_elsewhere(backend: StateBackend, name: str) -> None:
    """For every other kind, and under every other name, the category kernel is refused."""
    producer = Producer("kernel", name, "1")
    with backend.create("default") as session:
        for kind in ORDINARY:
            with pytest.raises(InvalidValue):
                session.append(kind, producer=producer, payload=b"", schema_version="1")
        if name != "user":
            with pytest.raises(InvalidValue):
                session.append_message(producer=producer, payload=b"", cost=None)
        if name != "kernel":
            with pytest.raises(InvalidValue):
                session.append_plan(producer=producer, payload=b"", items=[])
        assert session.counts().events == 0


@pytest.mark.conformance("SB-41", "SB-25")
def test_sb41_the_kernel_is_never_missing(backend: StateBackend) -> None:
    """Neither the preflight check nor a plug-in cache is asked for the reserved producer."""
    with backend.create("default") as session:
        session.append_prompt(payload=b"", schema_version="1")
        session.append_message(producer=MODEL, payload=b"", cost=None)
        assert [one.producer for one in session.missing_producers([])] == [MODEL]
    assert backend.referenced_producers().producers == (MODEL,)
