"""Sessions as trees: parents that are missing, name themselves or form rings all end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from statebackend.values.recorded import CostTotals, SessionInfo
from statebackend.values.results import TreeNode
from statebackend.values.rows import add_totals

Costed = tuple[SessionInfo, CostTotals]


def arrange(sessions: Iterable[Costed], root: str | None = None) -> list[TreeNode]:
    """Return the sessions in tree order, each once; with *root*, that one and what is below it.

    Roots come newest first, below them children oldest first. A ring is entered at its oldest
    session, or at *root*.
    """
    by_id = {info.session_id: (info, totals) for info, totals in sessions}
    children = _children(by_id)
    entries = _ring_entries(by_id)
    if root is not None:
        roots: Sequence[str] = [root]
        ring = {root} if _in_ring(by_id, root) else set()
    else:
        roots = sorted(one for one in by_id if one in entries or _is_root(by_id, one))[::-1]
        ring = entries
    order = _preorder(children, roots)
    inclusive = _inclusive(by_id, order)
    return [
        TreeNode(
            session=by_id[one][0],
            level=level,
            missing_parent=_parent_is_missing(by_id, one),
            ring=one in ring,
            own=by_id[one][1],
            inclusive=inclusive[one],
        )
        for one, _above, level in order
    ]


def descendants(sessions: Iterable[Costed], roots: Iterable[str]) -> list[str]:
    """Return *roots* and every session below them, each once."""
    by_id = {info.session_id: (info, totals) for info, totals in sessions}
    return [one for one, _above, _level in _preorder(_children(by_id), list(roots))]


def _children(by_id: dict[str, Costed]) -> dict[str, list[str]]:
    children: dict[str, list[str]] = {}
    for one in sorted(by_id):
        parent = by_id[one][0].parent_session_id
        if parent is not None:
            children.setdefault(parent, []).append(one)
    return children


def _parent_is_missing(by_id: dict[str, Costed], one: str) -> bool:
    parent = by_id[one][0].parent_session_id
    return parent is not None and parent not in by_id


def _is_root(by_id: dict[str, Costed], one: str) -> bool:
    return by_id[one][0].parent_session_id is None or _parent_is_missing(by_id, one)


def _ring_entries(by_id: dict[str, Costed]) -> set[str]:
    """Return the oldest session of every ring of parents."""
    entries: set[str] = set()
    done: set[str] = set()
    for start in by_id:
        chain: dict[str, None] = {}  # in the order walked
        one: str | None = start
        while one is not None and one in by_id and one not in done and one not in chain:
            chain[one] = None
            one = by_id[one][0].parent_session_id
        if one in chain:
            walked = list(chain)
            entries.add(min(walked[walked.index(one) :]))
        done.update(chain)
    return entries


def _in_ring(by_id: dict[str, Costed], start: str) -> bool:
    seen: set[str] = set()
    one = by_id[start][0].parent_session_id
    while one is not None and one in by_id and one not in seen:
        if one == start:
            return True
        seen.add(one)
        one = by_id[one][0].parent_session_id
    return False


def _preorder(
    children: dict[str, list[str]], roots: Sequence[str]
) -> list[tuple[str, str | None, int]]:
    """Walk down without recursion: each session once, with the one it was reached from."""
    order: list[tuple[str, str | None, int]] = []
    seen: set[str] = set()
    waiting: list[tuple[str, str | None, int]] = [(one, None, 0) for one in reversed(roots)]
    while waiting:
        one, above, level = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        order.append((one, above, level))
        waiting.extend((child, one, level + 1) for child in reversed(children.get(one, [])))
    return order


def _inclusive(
    by_id: dict[str, Costed], order: list[tuple[str, str | None, int]]
) -> dict[str, CostTotals]:
    parts = {one: [by_id[one][1]] for one, _above, _level in order}
    inclusive: dict[str, CostTotals] = {}
    for one, above, _level in reversed(order):
        inclusive[one] = add_totals(parts[one])
        if above is not None:
            parts[above].append(inclusive[one])
    return inclusive
