"""From stored columns to values; what is foreign to this package stays the raw text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import fsum
from typing import Any

from statebackend.timestamps import from_text
from statebackend.values import (
    CostTotals,
    Event,
    EventHeader,
    EventKind,
    Producer,
    SessionInfo,
    SessionStatus,
)

_KINDS = {kind.value: kind for kind in EventKind}
_STATUSES = {status.value: status for status in SessionStatus}
_producer = lru_cache(maxsize=1024)(Producer)

COUNTERS = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens")


def text(stored: bytes) -> str:
    """Return a stored text, with U+FFFD for what is not UTF-8: the driver's ``text_factory``."""
    return str(stored, "utf-8", "replace")


def event_header(row: Sequence[Any]) -> EventHeader:
    """Return the header of the first eight columns of ``events``."""
    sequence, event_id, timestamp, kind, category, name, version, schema_version = row
    return EventHeader(
        sequence,
        event_id,
        from_text(timestamp),
        _KINDS.get(kind, kind),
        _producer(category, name, version),
        schema_version,
    )


def event(row: Sequence[Any]) -> Event:
    """Return the event of the nine columns of ``events``."""
    sequence, event_id, timestamp, kind, category, name, version, schema_version, payload = row
    return Event(
        sequence,
        event_id,
        from_text(timestamp),
        _KINDS.get(kind, kind),
        _producer(category, name, version),
        schema_version,
        payload if type(payload) is bytes else as_bytes(payload),
    )


def as_bytes(payload: object) -> bytes:
    """Return a payload that another program stored as text or as a number."""
    return payload.encode() if isinstance(payload, str) else str(payload).encode()


def session_info(row: Sequence[Any], *, live: bool, incomplete: bool) -> SessionInfo:
    """Return the summary of the seven columns of ``session_meta``, the cost sum, unpriced rows."""
    session_id, parent, profile, status, depth, started_at, ended_at, cost_usd, unpriced = row
    return SessionInfo(
        session_id=session_id,
        parent_session_id=parent,
        profile=profile,
        status=_STATUSES.get(status, status),
        depth=depth,
        started_at=from_text(started_at),
        ended_at=None if ended_at is None else from_text(ended_at),
        cost_usd=cost_usd,
        unpriced_rows=unpriced,
        live=live,
        incomplete=incomplete,
    )


def cost_totals(row: Sequence[Any]) -> CostTotals:
    """Return the totals of: rows, cost sum, unpriced rows, then a high and low sum per counter.

    The sums of the upper and the lower 32 bits are separate because SQLite's SUM of integers
    fails above 2^63-1, and its TOTAL rounds above 2^53.
    """
    rows, cost_usd, unpriced_rows, *halves = row
    counters = (
        ((high or 0) << 32) + (low or 0)
        for high, low in zip(halves[::2], halves[1::2], strict=True)
    )
    return CostTotals(
        rows=rows,
        cost_usd=cost_usd,
        unpriced_rows=unpriced_rows,
        **dict(zip(COUNTERS, counters, strict=True)),
    )


def add_totals(parts: Iterable[CostTotals]) -> CostTotals:
    """Return the sum of several totals; its ``cost_usd`` is None when none has a row."""
    parts = list(parts)
    costs = [part.cost_usd for part in parts if part.cost_usd is not None]
    return CostTotals(
        rows=sum(part.rows for part in parts),
        cost_usd=fsum(costs) if costs else None,
        unpriced_rows=sum(part.unpriced_rows for part in parts),
        **{name: sum(getattr(part, name) for part in parts) for name in COUNTERS},
    )
