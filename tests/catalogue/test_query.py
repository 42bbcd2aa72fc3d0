"""Questions to the catalogue: the answers of a scan, also for foreign values, through indexes."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest

from statebackend import BadSession, SessionInfo, StateBackend
from statebackend.catalogue import Catalogue
from statebackend.catalogue.questions import plan_rules, producers, spend, summaries
from statebackend.catalogue.questions.question import Question
from statebackend.scanning import scan
from statebackend.scanning.scan import SessionFilter
from tests.answers import differences, plain
from tests.session_files import (
    MODEL,
    cost,
    damage_page,
    full,
    new,
    path_of,
    sql,
)


def filled(backend: StateBackend) -> Catalogue:
    """Return the catalogue of the folder, with entries that are relied on."""
    time.sleep(0.15)
    catalogue = Catalogue(backend.directory)
    catalogue.refresh()
    return catalogue


@pytest.mark.parametrize(
    "change",
    [
        "status = 'a foreign word'",
        "started_at = 'yesterday'",
        "started_at = '2026-02-30T00:00:00.000Z'",
        "started_at = '2026-03-01 12:00:00', ended_at = ''",
        "profile = '', ended_at = NULL",
        "profile = 'x' || char(0) || 'y'",
        "parent_session_id = session_id",
        "parent_session_id = 'none'",
        "depth = -3",
        "depth = 9223372036854775807",
    ],
)
def test_foreign_values_are_returned_unchanged(backend: StateBackend, change: str) -> None:
    """Words, times and numbers that another program stored."""
    session_id = full(backend)
    new(backend, parent_session_id=session_id)
    sql(path_of(backend, session_id), f"UPDATE session_meta SET {change}")
    filled(backend)
    assert not differences(backend, [session_id])


@pytest.mark.parametrize(
    "change",
    [
        "cost_usd = 9e999",
        "cost_usd = -0.0",
        "input_tokens = 9223372036854775807",
        "model_id = '', provider_name = 'π'",
    ],
)
def test_foreign_costs_are_summed_as_in_a_scan(backend: StateBackend, change: str) -> None:
    """Also where a sum exceeds SQLite's integers."""
    session_id = full(backend)
    with backend.open(session_id) as session:
        session.set_status("running")
        session.append_message(producer=MODEL, payload=b"", cost=cost(0.1, model_id="other"))
        session.append_message(producer=MODEL, payload=b"", cost=cost(0.2))
    sql(path_of(backend, session_id), f"UPDATE cost_ledger SET {change}")
    filled(backend)
    assert not differences(backend, [session_id])


def test_a_partly_readable_session_is_read_for_each_question(backend: StateBackend) -> None:
    """Its summary is readable, its plan is not: each answer has what a scan can read."""
    root = full(backend)
    half = full(backend, parent_session_id=root)
    below = full(backend, parent_session_id=half)
    damage_page(path_of(backend, half), "plan_items")
    filled(backend)
    nodes = backend.tree(root).nodes
    assert [node.session.session_id for node in nodes] == [root, half, below]
    assert isinstance(backend.children(root)[0], SessionInfo)
    assert [bad.session_id for bad in backend.plan_rules().unreadable] == [half]
    assert not differences(backend, [root, half])


def test_many_given_sessions_keep_their_order(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the catalogue instead of a file each, with the same answer."""
    monkeypatch.setattr(scan, "READ_FIRST", 2)
    root = full(backend)
    made = [full(backend, parent_session_id=root) for _ in range(6)]
    bad = path_of(backend, made[2])
    bad.write_bytes(bad.read_bytes()[:5000])
    filled(backend)
    assert not differences(backend, [root])
    page = backend.list(limit=4, profile="default")
    scanning = StateBackend(backend.directory, catalogue=False)
    assert plain(page) == plain(scanning.list(limit=4, profile="default"))
    assert [type(one) for one in page] == [SessionInfo, SessionInfo, SessionInfo, BadSession]


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        (summaries.question(SessionFilter(parent_session_id="x")), "sessions_by_parent"),
        (spend.question("day"), "costs_by_number"),
        (plan_rules.question(), "plan_rules_by_number"),
        (producers.question(), "producers_by_number"),
    ],
)
def test_questions_use_an_index(backend: StateBackend, asked: Question[object], index: str) -> None:
    """None scans a table to find the rows of one session."""
    full(backend)
    statements: list[str] = []
    with closing(sqlite3.connect(filled(backend).path)) as driver:
        driver.set_trace_callback(statements.append)
        list(asked.select(driver))
        driver.set_trace_callback(None)
        plan = driver.execute(f"EXPLAIN QUERY PLAN {statements[0]}").fetchall()
    assert index in str(plan)
