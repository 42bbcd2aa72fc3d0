"""Values as short texts for people. Stored text is left as it is: what draws it escapes it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from statebackend.cli import escape, moments
from statebackend.cli.table import Cell, Column
from statebackend.values.recorded import (
    CostTotals,
    EventHeader,
    Producer,
    SessionInfo,
    SessionStatus,
)
from statebackend.values.results import BadSession

TOTALS_COLUMNS = (
    Column("turns", right=True),
    Column("input", right=True),
    Column("output", right=True),
    Column("cache write", right=True),
    Column("cache read", right=True),
    Column("cost", right=True),
    Column("unpriced", right=True),
)
_STYLES = {
    SessionStatus.COMPLETED: "green",
    SessionStatus.CANCELLED: "dim",
    SessionStatus.RUNNING: "yellow",
}


def money(cost_usd: float | None, unpriced_rows: int = 0) -> str:
    """Return dollars; with turns that have no price the sum is marked as a lower bound."""
    if cost_usd is None:
        return "-"
    if not unpriced_rows:
        return _dollars(cost_usd)
    # A sum of nothing but unpriced turns is no amount: "$0.0000" would read as "free".
    return f"{_dollars(cost_usd)} + " * (cost_usd != 0) + f"{unpriced_rows:,} unpriced"


def _dollars(amount: float) -> str:
    if not math.isfinite(amount):
        return str(amount)
    return "<$0.0001" if 0 < amount < 0.00005 else f"${amount:,.4f}"


def status(info: SessionInfo) -> Cell:
    """Return the status, marked if a writer has the session open, or ought to and does not."""
    known = info.status if isinstance(info.status, SessionStatus) else None
    if info.live:
        return Cell(f"{info.status} (live)", "bold green")
    if known is SessionStatus.RUNNING:
        return Cell(f"{info.status} (no writer)", "yellow")
    return Cell(str(info.status), _STYLES.get(known, "red") if known else "bold red")


def totals(value: CostTotals) -> list[Cell]:
    """Return the cells for ``TOTALS_COLUMNS``."""
    counters = (
        value.rows,
        value.input_tokens,
        value.output_tokens,
        value.cache_write_tokens,
        value.cache_read_tokens,
    )
    unpriced = Cell(f"{value.unpriced_rows:,}", "yellow" if value.unpriced_rows else "")
    return [*(Cell(f"{count:,}") for count in counters), Cell(money(value.cost_usd)), unpriced]


def producer(value: Producer) -> str:
    """Return a producer in one word."""
    return f"{value.category}/{value.name}@{value.version}"


def event_line(event: EventHeader) -> str:
    """Return the line above one event, escaped."""
    when = moments.local(event.timestamp)
    return escape.line(f"[{event.sequence}] {event.kind}  {producer(event.producer)}  {when}")


def plural(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def summary(counts: Mapping[str, int], words: Mapping[str, str]) -> Iterator[str]:
    """Return a line for each of the *words* that some sessions are counted under."""
    for key, said in words.items():
        if counts.get(key):
            yield f"{plural(counts[key], 'session')} {said}"


def sequences(first: int, last: int) -> str:
    """Return a range of sequence numbers."""
    return f"{first}-{last}" if last > first else str(first)


def unreadable(bad: BadSession) -> str:
    """Return the notice about a file that a result had to leave out."""
    return f"left out: {bad.path.name}: {bad.problem}"
