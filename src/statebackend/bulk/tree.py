"""Sessions as trees, also where a parent is missing, names itself or is its own descendant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from statebackend.catalogue.questions.totals import Costed
from statebackend.values.recorded import CostTotals
from statebackend.values.results import TreeNode
from statebackend.values.rows import add_totals

_Step = tuple[str, str | None, int]
"""A session of a walk, the parent that it was reached from, and its level."""


def arrange(sessions: Iterable[Costed], root: str | None = None) -> list[TreeNode]:
    """Return the sessions in tree order, each once; with *root*, that one and its descendants.

    Roots are newest first, below them children oldest first. A ring of parents starts at its
    oldest session, or at *root*.
    """
    by_id = {info.session_id: (info, totals) for info, totals in sessions}
    parents = {session_id: info.parent_session_id for session_id, (info, _) in by_id.items()}
    if root is not None:
        ring_starts = {root} if root in _ring(parents, root, set()) else set()
        roots = [root]
    else:
        ring_starts = _ring_starts(parents)
        is_top = {session_id for session_id in parents if parents[session_id] not in parents}
        roots = sorted(is_top | ring_starts, reverse=True)
    order = _preorder(parents, roots)
    inclusive = _inclusive(by_id, order)
    return [
        TreeNode(
            session=by_id[session_id][0],
            level=level,
            missing_parent=parents[session_id] is not None and parents[session_id] not in parents,
            ring=session_id in ring_starts,
            own=by_id[session_id][1],
            inclusive=inclusive[session_id],
        )
        for session_id, _parent, level in order
    ]


def descendants(sessions: Iterable[Costed], roots: Sequence[str]) -> list[str]:
    """Return *roots* and every session below them, each once."""
    parents = {info.session_id: info.parent_session_id for info, _totals in sessions}
    return [session_id for session_id, _parent, _level in _preorder(parents, roots)]


def _ring_starts(parents: dict[str, str | None]) -> set[str]:
    """Return the oldest session of every ring of parents."""
    starts: set[str] = set()
    done: set[str] = set()
    for session_id in parents:
        if ring := _ring(parents, session_id, done):
            starts.add(min(ring))
    return starts


def _ring(parents: dict[str, str | None], session_id: str | None, done: set[str]) -> list[str]:
    """Return the ring that the parents of a session lead to, empty without one.

    The walk stops at the sessions in *done*, and adds its own to them.
    """
    chain: dict[str, None] = {}  # in the order walked
    while session_id in parents and session_id not in done and session_id not in chain:
        chain[session_id] = None
        session_id = parents[session_id]
    done.update(chain)
    walked = list(chain)
    return walked[walked.index(session_id) :] if session_id in chain else []


def _preorder(parents: dict[str, str | None], roots: Sequence[str]) -> list[_Step]:
    """Walk down from *roots* without recursion, each session once."""
    children: dict[str | None, list[str]] = {}
    for session_id in sorted(parents, reverse=True):
        children.setdefault(parents[session_id], []).append(session_id)
    order: dict[str, _Step] = {}
    waiting: list[_Step] = [(session_id, None, 0) for session_id in reversed(roots)]
    while waiting:
        session_id, parent, level = waiting.pop()
        if session_id not in order:
            order[session_id] = (session_id, parent, level)
            below = children.get(session_id, ())
            waiting.extend((child, session_id, level + 1) for child in below)
    return list(order.values())


def _inclusive(by_id: dict[str, Costed], order: list[_Step]) -> dict[str, CostTotals]:
    parts = {session_id: [by_id[session_id][1]] for session_id, _parent, _level in order}
    inclusive: dict[str, CostTotals] = {}
    for session_id, parent, _level in reversed(order):
        inclusive[session_id] = add_totals(parts[session_id])
        if parent is not None:
            parts[parent].append(inclusive[session_id])
    return inclusive
