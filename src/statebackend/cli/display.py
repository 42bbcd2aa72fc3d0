"""Values as short text for people. The caller that draws it escapes stored text."""

from __future__ import annotations

import math

from statebackend.cli import escape, times
from statebackend.cli.table import Cell, TableCell, columns
from statebackend.values.recorded import (
    CostTotals,
    EventHeader,
    Producer,
    SessionInfo,
    SessionStatus,
)

TOTALS_COLUMNS = columns(
    "turns:right, input:right, output:right, cache write:right, cache read:right, cost:right, "
    "unpriced:right"
)
_STYLES = {
    SessionStatus.COMPLETED: "green",
    SessionStatus.CANCELLED: "dim",
    SessionStatus.RUNNING: "yellow",
}


def money(cost_usd: float | None, unpriced_rows: int = 0) -> str:
    """Return US dollars; a sum with unpriced turns names their number, as it is a lower bound."""
    if cost_usd is None:
        return "-"
    if not unpriced_rows:
        return _dollars(cost_usd)
    # When all turns are unpriced, "$0.0000" would read as "free".
    return f"{_dollars(cost_usd)} + " * (cost_usd != 0) + f"{unpriced_rows:,} unpriced"


def _dollars(amount: float) -> str:
    if not math.isfinite(amount):
        return str(amount)
    return "<$0.0001" if 0 < amount < 0.00005 else f"${amount:,.4f}"


def status(info: SessionInfo) -> TableCell:
    """Return the status, marked as live, or as running without a writer."""
    known = info.status if isinstance(info.status, SessionStatus) else None
    if info.live:
        return TableCell(f"{info.status} (live)", "bold green")
    if known is SessionStatus.RUNNING:
        return TableCell(f"{info.status} (no writer)", "yellow")
    return TableCell(str(info.status), _STYLES.get(known, "red") if known else "bold red")


def totals(value: CostTotals) -> list[Cell]:
    """Return the cells for ``TOTALS_COLUMNS``."""
    return [
        value.rows,
        value.input_tokens,
        value.output_tokens,
        value.cache_write_tokens,
        value.cache_read_tokens,
        money(value.cost_usd),
        TableCell(f"{value.unpriced_rows:,}", "yellow" if value.unpriced_rows else ""),
    ]


def producer(value: Producer) -> str:
    """Return a producer as ``category/name@version``."""
    return f"{value.category}/{value.name}@{value.version}"


def event_line(event: EventHeader) -> str:
    """Return the heading of one event, escaped."""
    timestamp = times.format_second(event.timestamp)
    return escape.line(f"[{event.sequence}] {event.kind}  {producer(event.producer)}  {timestamp}")


def plural(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def sequences(first: int, last: int) -> str:
    """Return a range of sequence numbers."""
    return f"{first}-{last}" if last > first else str(first)
