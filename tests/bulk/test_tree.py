"""Sessions as trees."""

from __future__ import annotations

from statebackend import SessionInfo
from statebackend.bulk.tree import arrange, descendants
from statebackend.values.recorded import CostTotals
from tests.session_files import START


def sessions(**parents: str | None) -> list[tuple[SessionInfo, CostTotals]]:
    """Make sessions from their names to their parents'; each cost one dollar."""
    return [
        (
            SessionInfo(
                session_id=name,
                parent_session_id=parent,
                profile="p",
                status="running",
                depth=0,
                started_at=START,
                ended_at=None,
                cost_usd=1.0,
                unpriced_rows=0,
                live=False,
                incomplete=False,
            ),
            CostTotals(rows=1, cost_usd=1.0),
        )
        for name, parent in parents.items()
    ]


def drawn(nodes: list[object]) -> list[str]:
    """Return each node as its name behind as many dots as its level."""
    return ["." * node.level + node.session.session_id for node in nodes]  # type: ignore[attr-defined]


def test_roots_newest_first_children_oldest_first() -> None:
    """Each below its parent, whatever order they come in."""
    found = arrange(sessions(e="b", d=None, c="b", b=None, a="c"))
    assert drawn([*found]) == ["d", "b", ".c", "..a", ".e"]


def test_the_tree_below_one_session() -> None:
    """It is the root then, at level 0, though it has a parent."""
    found = arrange(sessions(a=None, b="a", c="b", d="a"), "b")
    assert drawn([*found]) == ["b", ".c"]
    assert not found[0].missing_parent


def test_inclusive_is_own_and_all_below() -> None:
    """Summed from the leaves up."""
    found = {one.session.session_id: one for one in arrange(sessions(a=None, b="a", c="b", d="a"))}
    assert {name: one.inclusive.cost_usd for name, one in found.items()} == {
        "a": 4.0,
        "b": 2.0,
        "c": 1.0,
        "d": 1.0,
    }


def test_a_missing_parent_makes_a_marked_root() -> None:
    """Nothing is lost."""
    (node,) = arrange(sessions(a="gone"))
    assert (node.level, node.missing_parent, node.ring) == (0, True, False)


def test_rings_are_entered_at_their_oldest_session() -> None:
    """With what hangs on them, each session once."""
    found = arrange(sessions(b="d", d="c", c="b", x="c", s="s"))
    assert drawn([*found]) == ["s", "b", ".c", "..d", "..x"]
    assert [one.session.session_id for one in found if one.ring] == ["s", "b"]


def test_a_ring_asked_for_by_one_of_its_sessions_starts_there() -> None:
    """And what hangs on a ring without being in it is no ring."""
    family = sessions(b="c", c="b", x="c")
    assert drawn([*arrange(family, "c")]) == ["c", ".b", ".x"]
    assert arrange(family, "c")[0].ring
    assert not arrange(family, "x")[0].ring


def test_descendants_come_once() -> None:
    """Also when one root is below another, or named twice."""
    family = sessions(a=None, b="a", c="b", d=None)
    assert sorted(descendants(family, ["a", "b", "a"])) == ["a", "b", "c"]
    assert descendants(family, ["d"]) == ["d"]


def test_nothing_is_an_empty_forest() -> None:
    """No sessions, no nodes."""
    assert arrange([]) == []
