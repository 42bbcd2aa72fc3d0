"""Sessions as trees."""

from __future__ import annotations

from statebackend import SessionInfo
from statebackend.bulk.tree import arrange, descendants
from statebackend.values.recorded import CostTotals
from tests.session_files import START


def sessions(**parents: str | None) -> list[tuple[SessionInfo, CostTotals]]:
    """Return sessions by name with their parents; each cost one dollar."""
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


def lines(nodes: list[object]) -> list[str]:
    """Return the name of each node after one dot for each level."""
    return ["." * node.level + node.session.session_id for node in nodes]  # type: ignore[attr-defined]


def test_roots_newest_first_children_oldest_first() -> None:
    """Each below its parent, whatever the order of the sessions."""
    found = arrange(sessions(e="b", d=None, c="b", b=None, a="c"))
    assert lines([*found]) == ["d", "b", ".c", "..a", ".e"]


def test_the_tree_below_one_session() -> None:
    """It is the root, at level 0, although it has a parent."""
    found = arrange(sessions(a=None, b="a", c="b", d="a"), "b")
    assert lines([*found]) == ["b", ".c"]
    assert not found[0].missing_parent


def test_inclusive_is_own_and_all_descendants() -> None:
    """Summed from the leaves to the root."""
    found = {one.session.session_id: one for one in arrange(sessions(a=None, b="a", c="b", d="a"))}
    assert {name: one.inclusive.cost_usd for name, one in found.items()} == {
        "a": 4.0,
        "b": 2.0,
        "c": 1.0,
        "d": 1.0,
    }


def test_a_missing_parent_makes_a_marked_root() -> None:
    """The session is still shown."""
    (node,) = arrange(sessions(a="gone"))
    assert (node.level, node.missing_parent, node.ring) == (0, True, False)


def test_rings_start_at_their_oldest_session() -> None:
    """With their descendants, each session once."""
    found = arrange(sessions(b="d", d="c", c="b", x="c", s="s"))
    assert lines([*found]) == ["s", "b", ".c", "..d", "..x"]
    assert [one.session.session_id for one in found if one.ring] == ["s", "b"]


def test_a_ring_asked_for_by_one_of_its_sessions_starts_there() -> None:
    """A descendant of a ring is not marked as part of it."""
    family = sessions(b="c", c="b", x="c")
    assert lines([*arrange(family, "c")]) == ["c", ".b", ".x"]
    assert arrange(family, "c")[0].ring
    assert not arrange(family, "x")[0].ring


def test_descendants_are_returned_once() -> None:
    """Also when one root is below another, or named twice."""
    family = sessions(a=None, b="a", c="b", d=None)
    assert sorted(descendants(family, ["a", "b", "a"])) == ["a", "b", "c"]
    assert descendants(family, ["d"]) == ["d"]


def test_no_sessions_make_no_nodes() -> None:
    """The tree is empty."""
    assert arrange([]) == []
