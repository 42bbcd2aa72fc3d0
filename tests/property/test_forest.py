"""Trees of sessions with any parents: every session once, with the right sums."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from statebackend import SessionInfo, SessionStatus
from statebackend.bulk.tree import arrange, descendants
from statebackend.values.recorded import CostTotals
from statebackend.values.results import TreeNode

Parents = dict[str, str | None]


def name(number: int) -> str:
    """Return the id of session *number*; later sessions have greater ids."""
    return f"01ARZ3NDEKTSV4RRFFQ{number:07}"


@st.composite
def graphs(draw: st.DrawFn) -> Parents:
    """Return sessions with any parents: none, missing, themselves, in rings, older or newer."""
    count = draw(st.integers(0, 12))
    parents = st.none() | st.integers(0, count + 1).map(name)
    return {name(number): draw(parents) for number in range(count)}


def costed(parents: Parents) -> list[tuple[SessionInfo, CostTotals]]:
    """Return the sessions, each with a ledger of its own power of two."""
    return [
        (
            SessionInfo(
                session_id=one,
                parent_session_id=parent,
                profile="default",
                status=SessionStatus.RUNNING,
                depth=0,
                started_at=datetime(2026, 1, 1, tzinfo=UTC),
                ended_at=None,
                cost_usd=None,
                unpriced_rows=0,
                live=False,
                incomplete=False,
            ),
            CostTotals(rows=1, input_tokens=1 << place, cost_usd=1.0),
        )
        for place, (one, parent) in enumerate(parents.items())
    ]


def below(parents: Parents, root: str) -> set[str]:
    """Return a session and all whose chain of parents leads to it."""
    found = {root}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def on_ring(parents: Parents, start: str) -> bool:
    """Tell whether a session's chain of parents comes back to it."""
    seen: set[str] = set()
    one = parents[start]
    while one is not None and one in parents and one not in seen:
        if one == start:
            return True
        seen.add(one)
        one = parents[one]
    return False


def assert_shape(nodes: list[TreeNode], parents: Parents) -> None:
    """Assert that each node is below its parent, unless it is a root."""
    path: list[str] = []
    for node in nodes:
        assert node.level <= len(path)
        del path[node.level :]
        if node.level:
            assert parents[node.session.session_id] == path[-1]
        path.append(node.session.session_id)


@given(graphs())
def test_every_session_is_returned_once(parents: Parents) -> None:
    """Rings, sessions that name themselves and missing parents included."""
    nodes = arrange(costed(parents))
    assert Counter(node.session.session_id for node in nodes) == Counter(list(parents))
    assert_shape(nodes, parents)
    for node in nodes:
        parent = parents[node.session.session_id]
        assert node.missing_parent == (parent is not None and parent not in parents)
        assert node.ring <= on_ring(parents, node.session.session_id)
        if not node.level:
            assert parent is None or node.missing_parent or node.ring


@given(graphs())
def test_order_is_roots_newest_first_children_oldest_first(parents: Parents) -> None:
    """Within one level below one parent the ids ascend; among the roots they descend."""
    nodes = arrange(costed(parents))
    roots = [node.session.session_id for node in nodes if not node.level]
    assert roots == sorted(roots, reverse=True)
    last: dict[tuple[int, str | None], str] = {}
    for node in nodes:
        if node.level:
            key = (node.level, node.session.parent_session_id)
            assert last.get(key, "") < node.session.session_id
            last[key] = node.session.session_id


@given(graphs())
def test_inclusive_sums_count_everything_below_once(parents: Parents) -> None:
    """Each ledger is a distinct power of two, so a sum shows which were counted."""
    nodes = arrange(costed(parents))
    place = {one: number for number, one in enumerate(parents)}
    for position, node in enumerate(nodes):
        subtree = [node.session.session_id]
        for later in nodes[position + 1 :]:
            if later.level <= node.level:
                break
            subtree.append(later.session.session_id)
        assert node.inclusive.input_tokens == sum(1 << place[one] for one in subtree)
        assert node.inclusive.rows == len(subtree)
        if not node.level:
            assert set(subtree) == below(parents, node.session.session_id)
    roots = [node.inclusive.input_tokens for node in nodes if not node.level]
    assert sum(roots) == (1 << len(parents)) - 1


@given(graphs(), st.data())
def test_tree_below_one_session(parents: Parents, data: st.DataObject) -> None:
    """It starts with that session, holds all below it, and marks it when it is on a ring."""
    if not parents:
        return
    root = data.draw(st.sampled_from(sorted(parents)))
    nodes = arrange(costed(parents), root)
    assert nodes[0].session.session_id == root
    assert {node.session.session_id for node in nodes} == below(parents, root)
    assert nodes[0].ring == on_ring(parents, root)
    assert_shape(nodes, parents)
    assert set(descendants(costed(parents), [root])) == below(parents, root)


@given(graphs(), st.data())
def test_descendants_of_several_are_returned_once(parents: Parents, data: st.DataObject) -> None:
    """Also where one of them is below another."""
    if not parents:
        return
    roots = data.draw(st.lists(st.sampled_from(sorted(parents)), max_size=4))
    found = descendants(costed(parents), roots)
    assert len(found) == len(set(found))
    assert set(found) == {one for root in roots for one in below(parents, root)}


def test_chain_of_5000() -> None:
    """Depth has no limit, since nothing recurses."""
    parents: Parents = {
        name(number): name(number - 1) if number else None for number in range(5000)
    }
    nodes = arrange(costed(parents))
    assert [node.level for node in nodes] == list(range(5000))
    assert nodes[0].inclusive.rows == 5000
    assert nodes[-1].inclusive.rows == 1


def test_ring_of_5000() -> None:
    """A ring starts at its oldest session."""
    parents: Parents = {name(number): name((number - 1) % 5000) for number in range(5000)}
    nodes = arrange(costed(parents))
    assert [node.level for node in nodes] == list(range(5000))
    assert [node.ring for node in nodes] == [True] + [False] * 4999
