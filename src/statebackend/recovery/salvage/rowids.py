"""Rowids of one page confirm each other: they rise, and in an undamaged file by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statebackend.recovery.salvage.survey import Bounds


@dataclass(frozen=True, slots=True)
class PageRowid:
    """A rowid, and what its page says about it.

    ``confirmed`` if a neighbour or the bounds of the page confirm it. ``expected`` is what both
    neighbours, or the only one, let expect; None if they do not agree. ``ascending`` if it is above
    the rowid before and below the one after it.
    """

    value: int
    confirmed: bool
    expected: int | None
    ascending: bool


def judge_rowids(rowids: Sequence[int], bounds: Bounds = (None, None)) -> list[PageRowid]:
    """Compare the rowids of one page, in the order of its cells, with each other."""
    lower, upper = bounds
    judged = []
    for at, value in enumerate(rowids):
        before = rowids[at - 1] if at else None
        after = rowids[at + 1] if at + 1 < len(rowids) else None
        adjacent = before == value - 1 or after == value + 1
        ascending = (before is None or before < value) and (after is None or value < after)
        within = lower is not None and upper is not None and lower < value <= upper
        confirmed = adjacent or (within and ascending)
        judged.append(PageRowid(value, confirmed, _expect(before, after), ascending))
    return judged


def _expect(before: int | None, after: int | None) -> int | None:
    if before is not None and after is not None:
        return before + 1 if after - before == 2 else None
    if before is not None:
        return before + 1
    return None if after is None else after - 1
