"""Blobs and numbers that another program stored in text columns are shown as text everywhere."""

from __future__ import annotations

import math
import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from statebackend import PlanDecision, Producer, StateBackend
from statebackend.catalogue import Catalogue
from statebackend.replay import replay
from tests.answers import differences
from tests.session_files import MODEL, START, cost, full, item, path_of, sql

COLUMNS = {
    "events": "id timestamp kind producer_category producer_name producer_version schema_version",
    "cost_ledger": "provider_name model_id",
    "plan_items": "turn_id tool_call_id provider_name tool_name decision decided_by",
    "producers": "category name version",
}
PAIRS = [(table, column) for table, names in COLUMNS.items() for column in names.split()]
VALUES = ("x'ff'", "0.5", "NULL")


def without_types(path: Path) -> None:
    """Remove the types and checks of the columns, so that they take any value."""
    with closing(sqlite3.connect(path)) as driver, driver:
        driver.execute("PRAGMA writable_schema = ON")
        for kind in ("TEXT", "VARCHAR"):
            driver.execute(
                f"UPDATE sqlite_schema SET sql = replace(replace(sql, ' {kind} NOT NULL', ''), "
                f"' {kind}', '') WHERE name IN ('events', 'cost_ledger', 'plan_items', 'producers')"
            )
        driver.execute("PRAGMA writable_schema = RESET")


@pytest.fixture
def path(backend: StateBackend) -> Path:
    """Return a session with two rows or more in each table, beside a sound one."""
    full(backend)
    session_id = full(backend)
    with backend.open(session_id) as session:
        session.set_status("running")
        session.append_message(producer=MODEL, payload=b"apple", cost=cost(0.5, model_id="other"))
        session.append_plan(
            producer=MODEL, payload=b"[]", items=[item(PlanDecision.ASK, decided_by="b")]
        )
    return path_of(backend, session_id)


@pytest.mark.parametrize(("table", "column"), PAIRS)
@pytest.mark.parametrize("value", VALUES)
def test_no_question_fails(
    backend: StateBackend, path: Path, table: str, column: str, value: str
) -> None:
    """The catalogue and a scan give the same answers, and the search finds the same events."""
    if value != "x'ff'":
        without_types(path)
    last = f"(SELECT max(rowid) FROM {table})"
    sql(path, f"UPDATE {table} SET {column} = {value} WHERE rowid = {last}")
    time.sleep(0.11)
    Catalogue(backend.directory).refresh()
    assert not differences(backend, [path.stem])
    assert [hit.sequence for hit in backend.search("apple").hits] == [6]
    answers = (backend.cost_by("day"), backend.plan_rules(), backend.referenced_producers())
    assert not any(answer.partial for answer in answers)


def test_every_value_is_shown_as_text(backend: StateBackend, path: Path) -> None:
    """In each column of a row, however it is read."""
    for table, column in PAIRS:
        sql(path, f"UPDATE {table} SET {column} = x'61ff7a' WHERE rowid = (SELECT min(rowid) "
            f"FROM {table})")  # fmt: skip
    odd = "a\ufffdz"
    producer = Producer(odd, odd, odd)
    with backend.read(path.stem) as view:
        event = next(view.events())
        assert (event.id, event.timestamp, event.kind, event.schema_version) == (odd,) * 4
        assert event.producer == producer
        assert next(view.events(payloads=False)).producer == producer
        assert next(replay(view)).event == event
        spent = next(view.costs()).cost
        assert (spent.provider_name, spent.model_id) == (odd, odd)
        planned = next(view.plan_items()).item
        assert {getattr(planned, name) for name in COLUMNS["plan_items"].split()} == {odd}
        assert producer in [entry.producer for entry in view.producers()]
        assert view.counts().by_kind[odd] == 1
    for by in ("model", "provider"):
        assert odd in [group.key for group in backend.cost_by(by).groups]
    assert (odd, odd) in [(rule.decided_by, rule.decision) for rule in backend.plan_rules().rules]
    assert producer in backend.referenced_producers().producers


def test_a_blob_and_a_text_are_one_group(backend: StateBackend, path: Path) -> None:
    """In one file and in several; the kernel stored as a blob is not a plug-in."""
    every = backend.cost_by("model").groups
    sql(path, "UPDATE cost_ledger SET model_id = CAST(model_id AS BLOB) WHERE sequence = 1")
    sql(path, "UPDATE plan_items SET decided_by = x'62', decision = x'61736b' WHERE sequence = 1")
    sql(path, "UPDATE producers SET category = CAST(category AS BLOB)")
    sql(path, "UPDATE events SET timestamp = CAST(timestamp AS BLOB) WHERE sequence = 2")
    assert backend.cost_by("model").groups == every
    assert len(backend.cost_by("day").groups) == 1
    rules = {(one.decided_by, one.decision): one.count for one in backend.plan_rules().rules}
    assert rules["b", "ask"] == 2
    assert {one.category for one in backend.referenced_producers().producers} == {"model", "tool"}


def test_a_search_filters_by_what_it_shows(backend: StateBackend, path: Path) -> None:
    """The time, the kind and the producer of a hit each select it."""
    sql(path, "UPDATE events SET kind = x'6d657373616765', producer_name = x'ff', "
        "timestamp = x'7a' WHERE sequence = 6")  # fmt: skip
    (hit,) = backend.search("apple", kind="message", producer="\ufffd", since=START).hits
    assert (hit.kind, hit.producer.name, hit.timestamp) == ("message", "\ufffd", "z")
    assert not backend.search("apple", until=START + timedelta(days=40_000)).hits


def test_a_payload_that_is_a_number_is_indexed(backend: StateBackend, path: Path) -> None:
    """A blob column stores a number unchanged."""
    sql(path, "UPDATE events SET payload = 4711 WHERE sequence = 1")
    assert [hit.sequence for hit in backend.search("4711").hits] == [1]
    assert [hit.sequence for hit in backend.search("apple").hits] == [6]


def test_costs_without_a_sum_fail_no_question(backend: StateBackend, path: Path) -> None:
    """Infinities of both signs have no sum, in one file and across files."""
    other = full(backend)
    sql(path_of(backend, other), "UPDATE cost_ledger SET cost_usd = -9e999")
    sql(path, "UPDATE cost_ledger SET cost_usd = 9e999")
    time.sleep(0.11)
    Catalogue(backend.directory).refresh()
    assert not differences(backend, [path.stem, other])
    groups = {one.key: one.totals.cost_usd for one in backend.cost_by("model").groups}
    assert groups == {"other": math.inf, "m-large": None}
    sql(path, "UPDATE cost_ledger SET cost_usd = -9e999 WHERE sequence = 1")
    assert not differences(backend, [path.stem, other])
    assert backend.cost(path.stem).own.cost_usd is None
