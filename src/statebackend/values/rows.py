"""Build values from stored columns; words and times of other programs stay the stored text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from math import fsum, inf, isfinite
from typing import Any

from statebackend.values.recorded import (
    CostTotals,
    Event,
    EventHeader,
    EventKind,
    Producer,
    SessionInfo,
    SessionStatus,
)
from statebackend.values.timestamps import from_text

_KINDS = {kind.value: kind for kind in EventKind}
_STATUSES = {status.value: status for status in SessionStatus}
COUNTERS = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens")


def text(stored: bytes) -> str:
    """Return a stored text, with U+FFFD for what is not UTF-8: the driver's ``text_factory``."""
    return str(stored, "utf-8", "replace")


def as_text(stored: object) -> str:
    """Return the value of a text column as str: bytes as in :func:`text`, NULL as ``""``.

    Another program may have stored a value of any type.
    """
    if isinstance(stored, str):
        return stored
    if isinstance(stored, bytes):
        return text(stored)
    return "" if stored is None else str(stored)


# typed, since 1, 1.0 and True are equal as keys.
@lru_cache(maxsize=1024, typed=True)
def _producer(category: object, name: object, version: object) -> Producer:
    return Producer(as_text(category), as_text(name), as_text(version))


def event_header(row: Sequence[Any]) -> EventHeader:
    """Return the header of the first eight columns of ``events``."""
    sequence, event_id, timestamp, kind, category, name, version, schema_version = row
    return EventHeader(
        sequence,
        event_id if type(event_id) is str else as_text(event_id),
        from_text(timestamp),
        _KINDS.get(kind) or as_text(kind),
        _producer(category, name, version),
        schema_version if type(schema_version) is str else as_text(schema_version),
    )


_new = object.__new__
_set_sequence, _set_id, _set_timestamp, _set_kind, _set_producer, _set_version, _set_payload = (
    getattr(Event, field).__set__ for field in Event.__match_args__
)


def make_event(  # noqa: PLR0917 - by position, as every event passes here
    sequence: int,
    event_id: str,
    timestamp: datetime | str,
    kind: EventKind | str,
    producer: Producer,
    schema_version: str,
    payload: bytes,
) -> Event:
    """Return ``Event(...)`` in half the time of the constructor of a frozen dataclass."""
    new_event = _new(Event)
    _set_sequence(new_event, sequence)
    _set_id(new_event, event_id)
    _set_timestamp(new_event, timestamp)
    _set_kind(new_event, kind)
    _set_producer(new_event, producer)
    _set_version(new_event, schema_version)
    _set_payload(new_event, payload)
    return new_event


def event(row: Sequence[Any]) -> Event:
    """Return the event of the nine columns of ``events``."""
    sequence, event_id, timestamp, kind, category, name, version, schema_version, payload = row
    return make_event(
        sequence,
        event_id if type(event_id) is str else as_text(event_id),
        from_text(timestamp),
        _KINDS.get(kind) or as_text(kind),
        _producer(category, name, version),
        schema_version if type(schema_version) is str else as_text(schema_version),
        payload if type(payload) is bytes else as_bytes(payload),
    )


def as_bytes(payload: object) -> bytes:
    """Return as bytes a payload that another program stored as text or as a number."""
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
    """Return the totals from: rows, cost sum, unpriced rows, a high and a low sum a counter.

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
    """Return the sum of several totals.

    ``cost_usd`` is None when none has a row and, as in SQLite, for infinities of both signs.
    """
    parts = list(parts)
    return CostTotals(
        rows=sum(part.rows for part in parts),
        cost_usd=_sum([part.cost_usd for part in parts if part.rows]),
        unpriced_rows=sum(part.unpriced_rows for part in parts),
        **{name: sum(getattr(part, name) for part in parts) for name in COUNTERS},
    )


def _sum(costs: Sequence[float | None]) -> float | None:
    """Return the sum, the same in any order; None without parts, or if a part or the sum is None.

    A ledger of another program can hold infinities, and costs whose sum exceeds the largest float.
    """
    known = [cost for cost in costs if cost is not None]
    if not costs or len(known) < len(costs):
        return None
    infinite = {cost for cost in known if not isfinite(cost)}
    if infinite:
        return infinite.pop() if len(infinite) == 1 else None
    try:
        return fsum(known)
    except OverflowError:  # in a partial sum; the exact sum may still fit
        from fractions import Fraction

        exact = sum(map(Fraction, known))
    try:
        return float(exact)
    except OverflowError:
        return inf if exact > 0 else -inf
