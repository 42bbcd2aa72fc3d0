"""How a figure is measured: interleaved rounds, the median of the ratios, and their range."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

Side = Callable[[], Any]
Unit = Literal["µs", "ms", "MB"]
_PER_SECOND = {"µs": 1e6, "ms": 1e3}


class AnswersDiffer(Exception):
    """Both sides did not do the same work, so their times say nothing."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    ``value`` is what the target is about: a ratio, or an amount above the bare side in ``unit``.
    ``low`` and ``high`` are its least and greatest round. Without a target, the line only informs.
    The target is the most that is allowed, or with ``at_least`` the least.
    ``note`` stands in place of the numbers when there are none, ``differs`` tells that this is
    because both sides did not answer the same.
    """

    what: str
    ours: str = ""
    bare: str = ""
    value: float | None = None
    low: float = 0.0
    high: float = 0.0
    target: float | None = None
    unit: Unit | None = None
    at_least: bool = False
    note: str = ""
    differs: bool = False

    @property
    def missed(self) -> bool:
        """Return whether the value is on the wrong side of the target."""
        if self.value is None or self.target is None:
            return False
        return self.value < self.target if self.at_least else self.value > self.target


@dataclass(frozen=True, slots=True)
class Rounds:
    """The seconds that each side took in each round."""

    ours: Sequence[float]
    bare: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """Return ours divided by bare for each round: what slows a whole round down cancels out."""
        return [ours / bare for ours, bare in zip(self.ours, self.bare, strict=True)]

    @property
    def differences_s(self) -> list[float]:
        """Return ours minus bare for each round."""
        return [ours - bare for ours, bare in zip(self.ours, self.bare, strict=True)]


def interleave(ours: Side, bare: Side, *, rounds: int, seed: int = 0) -> Rounds:
    """Time both sides once a round, in a shuffled order."""
    order = random.Random(seed)
    times: dict[Side, list[float]] = {ours: [], bare: []}
    for _ in range(rounds):
        sides = [ours, bare]
        order.shuffle(sides)
        for side in sides:
            times[side].append(_seconds(side))
    return Rounds(times[ours], times[bare])


def _seconds(side: Side) -> float:
    gc.collect()  # the garbage of the other side must not count here
    start = time.perf_counter()
    side()
    return time.perf_counter() - start


def ratio(
    what: str, rounds: Rounds, *, target: float | None, items: int = 1, unit: Unit = "µs"
) -> Figure:
    """Return the figure "ours by bare"; the times shown are per item, *items* of them a round."""
    ratios = rounds.ratios
    return Figure(
        what,
        _time(median(rounds.ours) / items, unit),
        _time(median(rounds.bare) / items, unit),
        median(ratios),
        min(ratios),
        max(ratios),
        target,
    )


def faster(what: str, rounds: Rounds, *, target: float, items: int = 1) -> Figure:
    """Return the figure "how many times as fast as the other side", which is to be large."""
    ratios = [1 / quotient for quotient in rounds.ratios]
    return Figure(
        what,
        _time(median(rounds.ours) / items, "µs"),
        _time(median(rounds.bare) / items, "µs"),
        median(ratios),
        min(ratios),
        max(ratios),
        target,
        at_least=True,
    )


def above_bare(what: str, rounds: Rounds, *, target_ms: float) -> Figure:
    """Return the figure "milliseconds above bare"."""
    differences = [1e3 * difference for difference in rounds.differences_s]
    return Figure(
        what,
        _time(median(rounds.ours), "ms"),
        _time(median(rounds.bare), "ms"),
        median(differences),
        min(differences),
        max(differences),
        target_ms,
        "ms",
    )


def must_equal(what: str, ours: object, bare: object) -> None:
    """Raise :class:`AnswersDiffer` unless both sides came to the same."""
    if ours != bare:
        raise AnswersDiffer(
            f"{what}: the bare side answers otherwise\n{ours!r:.500}\n{bare!r:.500}"
        )


def _time(seconds: float, unit: Unit) -> str:
    amount = seconds * _PER_SECOND[unit]
    return f"{amount:,.{0 if amount >= 100 else 1 if amount >= 10 else 2}f} {unit}"
