"""One text form for every stored time: UTC, milliseconds, ``2026-01-31T23:59:59.123Z``."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from functools import lru_cache

from statebackend.errors import InvalidValue

_STORED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def now() -> datetime:
    """Return the present as aware UTC, cut to the millisecond."""
    return datetime.fromtimestamp(time.time_ns() // 1_000_000 / 1_000, UTC)


def normalize(field: str, value: datetime) -> datetime:
    """Return *value* as UTC, cut to the millisecond; refuse a naive time, naming *field*."""
    if not isinstance(value, datetime):
        raise InvalidValue(field, f"must be a datetime, not {type(value).__name__}")
    if value.tzinfo is UTC:
        return _cut(value) if value.microsecond % 1000 else value
    if value.utcoffset() is None:
        raise InvalidValue(
            field, "has no time zone; give an aware datetime such as datetime.now(UTC)"
        )
    try:
        return _cut(value.astimezone(UTC))
    except OverflowError as error:
        raise InvalidValue(field, "is outside the years 1 to 9999 in UTC") from error


def to_text(value: datetime) -> str:
    """Return the stored form of a normalized time."""
    second = _second(value.year, value.month, value.day, value.hour, value.minute, value.second)
    return f"{second}{value.microsecond // 1000:03}Z"


def from_text(text: object) -> datetime | str:
    """Return the time that *text* stores, or *text* itself when it is not the stored form."""
    if not isinstance(text, str):  # another program may have stored any type
        return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    if _STORED.fullmatch(text) is None:
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


@lru_cache(maxsize=64)  # consecutive events mostly share a second
def _second(*fields: int) -> str:
    return "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.".format(*fields)


def _cut(value: datetime) -> datetime:
    microseconds = value.microsecond % 1000
    return (
        value if microseconds == 0 else value.replace(microsecond=value.microsecond - microseconds)
    )
