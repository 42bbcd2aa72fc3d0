"""Spend of a session and of its tree, summed when it is read; nothing counts twice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from statebackend import InvalidValue, SessionNotFound, SessionUnreadable, StateBackend
from statebackend.bulk.cross_session import CrossSession
from statebackend.values.recorded import CostTotals
from tests.session_files import (
    MODEL,
    UNKNOWN_ID,
    cost,
    damage_page,
    new,
    path_of,
    sql,
)


def spent(backend: StateBackend, *amounts: float, **columns: Any) -> str:
    """Make a session with one message for each amount and return its id."""
    with backend.create(**{"profile": "default", **columns}) as session:
        for amount in amounts:
            session.append_message(producer=MODEL, payload=b"", cost=cost(amount))
        return session.session_id


def family(backend: StateBackend) -> tuple[str, str, str, str]:
    """Make three levels: a root, two children, and a child of the first."""
    root = spent(backend, 1.0, 0.25)
    first = spent(backend, 2.0, parent_session_id=root, depth=1)
    second = spent(backend, 4.0, parent_session_id=root, depth=1)
    grandchild = spent(backend, 8.0, 16.0, parent_session_id=first, depth=2)
    return root, first, second, grandchild


def test_own_and_inclusive_cost_over_three_levels(backend: StateBackend) -> None:
    """Each session's own spend is its ledger's, the inclusive one adds all below it."""
    root, first, second, grandchild = family(backend)
    spent(backend, 100.0)
    found = {
        session_id: (one.own.cost_usd, one.inclusive and one.inclusive.cost_usd, one.sessions)
        for session_id in (root, first, second, grandchild)
        for one in [backend.cost(session_id, tree=True)]
    }
    assert found == {
        root: (1.25, 31.25, 4),
        first: (2.0, 26.0, 2),
        second: (4.0, 4.0, 1),
        grandchild: (24.0, 24.0, 1),
    }


def test_a_damaged_child_makes_the_total_partial(backend: StateBackend) -> None:
    """The sum goes on without it, and says which file is missing."""
    root, _first, second, _grandchild = family(backend)
    damage_page(path_of(backend, second), "session_meta")
    total = backend.cost(root, tree=True)
    assert total.partial
    assert [one.session_id for one in total.unreadable] == [second]
    assert total.inclusive is not None
    assert total.inclusive.cost_usd == 27.25


def test_the_sum_over_all_sessions_is_the_sum_of_all_ledgers(backend: StateBackend) -> None:
    """Children are not in their parents' ledgers, so no way of adding up counts them twice."""
    family(backend)
    rows = [
        amount
        for session_id in backend.ids()
        for (amount,) in sql(path_of(backend, session_id), "SELECT cost_usd FROM cost_ledger")
    ]
    own = sum(node.own.cost_usd or 0 for node in backend.tree().nodes)
    roots = sum(node.inclusive.cost_usd or 0 for node in backend.tree().nodes if node.level == 0)
    (by_model,) = backend.cost_by("model").groups
    assert sum(rows) == own == roots == by_model.totals.cost_usd == 31.25


def test_spend_by_group(backend: StateBackend) -> None:
    """By model, provider, session, profile and day, the dearest group first."""
    noon = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
    with backend.create("a") as session:
        for amount, model in ((1.0, "small"), (4.0, "large"), (2.0, "small")):
            session.append_message(
                producer=MODEL, payload=b"", cost=cost(amount, model_id=model), timestamp=noon
            )
    other = spent(backend, 0.5, profile="b")
    groups: dict[str, list[tuple[str, float | None]]] = {
        by: [(one.key, one.totals.cost_usd) for one in backend.cost_by(by).groups]
        for by in ("model", "provider", "session", "profile")
    }
    assert groups["model"] == [("large", 4.0), ("small", 3.0), ("m-large", 0.5)]
    assert groups["provider"] == [("anthropic", 7.5)]
    assert groups["session"] == [(session.session_id, 7.0), (other, 0.5)]
    assert groups["profile"] == [("a", 7.0), ("b", 0.5)]
    assert backend.cost_by("day").groups[0].key == "2026-03-01"


def test_spend_of_some_sessions(backend: StateBackend) -> None:
    """Those named, each once, and with their descendants if asked for."""
    root, first, _second, grandchild = family(backend)

    def total(*session_ids: str, tree: bool = False) -> float | None:
        (group,) = backend.cost_by("provider", session_ids=session_ids, tree=tree).groups
        return group.totals.cost_usd

    assert total(first) == 2.0
    assert total(first, grandchild, first) == 26.0
    assert total(first, tree=True) == 26.0
    assert total(root, first, grandchild, tree=True) == 31.25
    assert backend.cost_by("model", session_ids=[]).groups == ()
    for method in (
        backend.cost,
        backend.tree,
        lambda one: backend.cost_by("model", session_ids=[one]),
    ):
        with pytest.raises(SessionNotFound):
            method(UNKNOWN_ID)
    path_of(backend, root).with_name(f"{UNKNOWN_ID}.sqlite.corrupt").write_bytes(b"")
    with pytest.raises(SessionUnreadable):
        backend.cost(UNKNOWN_ID)


def test_trees_bear_any_shape(backend: StateBackend) -> None:
    """A parent that is missing, a ring, and a session that names itself are marked; all end."""
    orphan = spent(backend, 1.0, parent_session_id=UNKNOWN_ID)
    one, two, itself = (spent(backend, 2.0) for _ in range(3))
    for session_id, parent in ((one, two), (two, one), (itself, itself)):
        sql(path_of(backend, session_id), "UPDATE session_meta SET parent_session_id = ?", parent)
    nodes = {node.session.session_id: node for node in backend.tree().nodes}
    assert len(nodes) == 4
    assert nodes[orphan].missing_parent
    assert [nodes[session_id].ring for session_id in (one, two, itself, orphan)] == [
        True,
        False,
        True,
        False,
    ]
    assert (nodes[one].level, nodes[two].level) == (0, 1)
    assert backend.cost(two, tree=True).inclusive == backend.cost(one, tree=True).inclusive
    with pytest.raises(InvalidValue):
        backend.create("p", session_id=UNKNOWN_ID, parent_session_id=UNKNOWN_ID)


def test_a_deep_tree_needs_no_deep_recursion(backend: StateBackend) -> None:
    """A chain of three hundred sessions is walked in a loop."""
    top = parent = spent(backend, 1.0)
    child = path_of(backend, spent(backend, 1.0, parent_session_id=top))
    content = child.read_bytes()
    for number in range(300):
        following = f"01KJMG7C0000000000000{number:05}"
        image = content.replace(child.stem.encode(), following.encode())
        path_of(backend, following).write_bytes(image.replace(top.encode(), parent.encode()))
        parent = following
    nodes = backend.tree(top).nodes
    assert nodes[0].inclusive.cost_usd == 302.0
    assert max(node.level for node in nodes) == 300


def test_huge_counters_add_up_exactly(backend: StateBackend) -> None:
    """Sums go past 63 bits, where SQLite's own SUM fails or rounds."""
    largest = 2**63 - 1
    with backend.create("default") as session:
        for _ in range(3):
            session.append_message(
                producer=MODEL, payload=b"", cost=cost(0.1, input_tokens=largest, output_tokens=0)
            )
        expected = CostTotals(
            rows=3,
            input_tokens=3 * largest,
            output_tokens=0,
            cache_write_tokens=9,
            cache_read_tokens=15,
            cost_usd=session.cost_totals().cost_usd,
        )
        assert session.cost_totals() == expected
    assert backend.cost(session.session_id).own == expected
    assert expected.cost_usd == pytest.approx(0.3)


def test_free_turns_are_counted_as_unpriced(backend: StateBackend) -> None:
    """A row with tokens and no price makes the sum a lower bound, and says so everywhere."""
    session_id = spent(backend, 0.0, 1.0)
    with backend.read(session_id) as view:
        assert (view.cost_totals().unpriced_rows, view.info.unpriced_rows) == (1, 1)
    assert backend.cost(session_id).own.unpriced_rows == 1


def test_a_session_without_a_ledger_row_has_no_cost(backend: StateBackend) -> None:
    """None is not 0.0, for one session and for a tree."""
    session_id = new(backend)
    found = backend.cost(session_id, tree=True)
    assert (found.own.cost_usd, found.inclusive and found.inclusive.cost_usd) == (None, None)
    assert backend.cost(session_id).inclusive is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.01, "1", None, True, 10**400])
def test_amounts_that_spoil_every_sum_are_refused(backend: StateBackend, bad: Any) -> None:
    """NaN, infinity, negative and what is no number; the error names the field."""
    with backend.create("default") as session:
        with pytest.raises(InvalidValue) as caught:
            session.append_message(producer=MODEL, payload=b"", cost=cost(bad))
        assert caught.value.field == "cost.cost_usd"
        assert session.counts().events == 0


@pytest.mark.parametrize("bad", [-1, 2**63, 1.0, "1", None, True])
def test_counters_are_integers_that_sqlite_can_hold(backend: StateBackend, bad: Any) -> None:
    """0 to 2^63-1, each of the four."""
    with backend.create("default") as session:
        for field in ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens"):
            with pytest.raises(InvalidValue) as caught:
                session.append_message(producer=MODEL, payload=b"", cost=cost(**{field: bad}))
            assert caught.value.field == f"cost.{field}"


def test_an_amount_may_be_a_large_whole_number(backend: StateBackend) -> None:
    """An int is stored as the amount it is, also where SQLite's integers end."""
    with backend.create("default") as session:
        session.append_message(producer=MODEL, payload=b"", cost=cost(2**70))
        session.append_message(producer=MODEL, payload=b"", cost=cost(3))
        assert [entry.cost.cost_usd for entry in session.costs()] == [2.0**70, 3.0]


def test_a_session_that_goes_between_two_readings_is_in_its_tree(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may remove or move a file at any moment."""
    with backend.create("default") as session:
        session_id = session.session_id
    totals = CrossSession._totals

    def gone(self: CrossSession, roots: list[str] | None) -> Any:
        session.path.unlink()
        return totals(self, roots)

    monkeypatch.setattr(CrossSession, "_totals", gone)
    assert [node.session.session_id for node in backend.tree(session_id).nodes] == [session_id]
