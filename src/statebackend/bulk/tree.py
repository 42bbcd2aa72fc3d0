"""Sessions as trees, also where a parent is missing, names itself or is its own descendant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from statebackend.catalogue.questions.totals import Costed
from statebackend.values.recorded import CostTotals
from statebackend.values.results import TreeNode
from statebackend.values.rows import add_totals


def arrange(sessions: Iterable[Costed], root: str | None = None) -> list[TreeNode]:
    """Return the sessions in tree order, each once; with *root*, that one and its descendants.

    Roots are newest first, below them children oldest first. A ring of parents starts at its
    oldest session, or at *root*.
    """
    by_id = {info.session_id: (info, totals) for info, totals in sessions}
    children = _children(by_id)
    starts = _ring_starts(by_id)
    if root is not None:
        roots: Sequence[str] = [root]
        ring = {root} if _in_ring(by_id, root) else set()
    else:
        roots = sorted(
            session_id
            for session_id in by_id
            if session_id in starts or _is_root(by_id, session_id)
        )[::-1]
        ring = starts
    order = _preorder(children, roots)
    inclusive = _inclusive(by_id, order)
    return [
        TreeNode(
            session=by_id[session_id][0],
            level=level,
            missing_parent=_parent_is_missing(by_id, session_id),
            ring=session_id in ring,
            own=by_id[session_id][1],
            inclusive=inclusive[session_id],
        )
        for session_id, _parent, level in order
    ]


def descendants(sessions: Iterable[Costed], roots: Iterable[str]) -> list[str]:
    """Return *roots* and every session below them, each once."""
    by_id = {info.session_id: (info, totals) for info, totals in sessions}
    return [session_id for session_id, _parent, _level in _preorder(_children(by_id), list(roots))]


def _children(by_id: dict[str, Costed]) -> dict[str, list[str]]:
    children: dict[str, list[str]] = {}
    for session_id in sorted(by_id):
        parent = by_id[session_id][0].parent_session_id
        if parent is not None:
            children.setdefault(parent, []).append(session_id)
    return children


def _parent_is_missing(by_id: dict[str, Costed], session_id: str) -> bool:
    parent = by_id[session_id][0].parent_session_id
    return parent is not None and parent not in by_id


def _is_root(by_id: dict[str, Costed], session_id: str) -> bool:
    return by_id[session_id][0].parent_session_id is None or _parent_is_missing(by_id, session_id)


def _ring_starts(by_id: dict[str, Costed]) -> set[str]:
    """Return the oldest session of every ring of parents."""
    starts: set[str] = set()
    done: set[str] = set()
    for start in by_id:
        chain: dict[str, None] = {}  # in the order walked
        session_id: str | None = start
        while (
            session_id is not None
            and session_id in by_id
            and session_id not in done
            and session_id not in chain
        ):
            chain[session_id] = None
            session_id = by_id[session_id][0].parent_session_id
        if session_id in chain:
            walked = list(chain)
            starts.add(min(walked[walked.index(session_id) :]))
        done.update(chain)
    return starts


def _in_ring(by_id: dict[str, Costed], start: str) -> bool:
    seen: set[str] = set()
    session_id = by_id[start][0].parent_session_id
    while session_id is not None and session_id in by_id and session_id not in seen:
        if session_id == start:
            return True
        seen.add(session_id)
        session_id = by_id[session_id][0].parent_session_id
    return False


def _preorder(
    children: dict[str, list[str]], roots: Sequence[str]
) -> list[tuple[str, str | None, int]]:
    """Walk down without recursion: each session once, with the one it was reached from."""
    order: list[tuple[str, str | None, int]] = []
    seen: set[str] = set()
    waiting: list[tuple[str, str | None, int]] = [
        (session_id, None, 0) for session_id in reversed(roots)
    ]
    while waiting:
        session_id, parent, level = waiting.pop()
        if session_id in seen:
            continue
        seen.add(session_id)
        order.append((session_id, parent, level))
        waiting.extend(
            (child, session_id, level + 1) for child in reversed(children.get(session_id, []))
        )
    return order


def _inclusive(
    by_id: dict[str, Costed], order: list[tuple[str, str | None, int]]
) -> dict[str, CostTotals]:
    parts = {session_id: [by_id[session_id][1]] for session_id, _parent, _level in order}
    inclusive: dict[str, CostTotals] = {}
    for session_id, parent, _level in reversed(order):
        inclusive[session_id] = add_totals(parts[session_id])
        if parent is not None:
            parts[parent].append(inclusive[session_id])
    return inclusive
