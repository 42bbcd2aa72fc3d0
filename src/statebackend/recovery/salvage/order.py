"""Row numbers as witnesses of each other: in one page they rise, and in a sound file by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statebackend.recovery.salvage.survey import Bounds


@dataclass(frozen=True, slots=True)
class Number:
    """What a page says of one of its row numbers.

    ``sure`` if a neighbour or the page's bounds confirm it. ``likely`` is the number that both
    neighbours, or the only one, would have it be, None if they do not say. ``rising`` if it is
    above the one before and below the one behind.
    """

    value: int
    sure: bool
    likely: int | None
    rising: bool


def numbers(found: Sequence[int], bounds: Bounds = (None, None)) -> list[Number]:
    """Judge the row numbers of one page, given in the order of its cells."""
    lower, upper = bounds
    judged = []
    for at, value in enumerate(found):
        before = found[at - 1] if at else None
        behind = found[at + 1] if at + 1 < len(found) else None
        adjacent = before == value - 1 or behind == value + 1
        rising = (before is None or before < value) and (behind is None or value < behind)
        within = lower is not None and upper is not None and lower < value <= upper
        judged.append(
            Number(value, adjacent or (within and rising), _likely(before, behind), rising)
        )
    return judged


def _likely(before: int | None, behind: int | None) -> int | None:
    if before is not None and behind is not None:
        return before + 1 if behind - before == 2 else None
    if before is not None:
        return before + 1
    return None if behind is None else behind - 1
