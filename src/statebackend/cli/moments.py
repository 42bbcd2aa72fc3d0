"""Times as people write and read them: local time in, local time out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

_AGE = re.compile(r"([0-9]{1,9})([smhdw])")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def start(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Convert an option: a date, a time or an age to an aware UTC time; a date starts its day."""
    return None if value is None else _parsed(value, ctx, param, end_of_day=False)


def stop(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Convert an option as :func:`start` does; a date ends its day."""
    return None if value is None else _parsed(value, ctx, param, end_of_day=True)


def _parsed(text: str, ctx: click.Context, param: click.Parameter, *, end_of_day: bool) -> datetime:
    try:
        return parse(text, end_of_day=end_of_day)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is no time: give a date (2026-01-31), a time (2026-01-31T18:00, local "
            "unless it ends in an offset or Z), or an age (90m, 12h, 7d, 2w)",
            ctx=ctx,
            param=param,
        ) from None


def parse(text: str, *, end_of_day: bool = False) -> datetime:
    """Return the time that *text* names, aware UTC.

    With *end_of_day* a date is the first moment of the next day. A time before 1970 is that of the
    first id there can be. What names no time is a ValueError or an OverflowError.
    """
    if age := _AGE.fullmatch(text):
        back = timedelta(seconds=int(age[1]) * _SECONDS[age[2]])
        return max(datetime.now(UTC) - back, _EPOCH)
    moment = datetime.fromisoformat(text)
    if end_of_day and _DATE.fullmatch(text):
        moment += timedelta(days=1)
    return max(moment.astimezone(UTC), _EPOCH)


def local(value: datetime | str | None) -> str:
    """Return a time as local text; a stored text that is no time of ours as it is."""
    if value is None:
        return "-"
    return f"{value.astimezone():%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else value


def local_minute(value: datetime | str) -> str:
    """Return a time as :func:`local` does, without its seconds."""
    return f"{value.astimezone():%Y-%m-%d %H:%M}" if isinstance(value, datetime) else value


def duration(began: datetime | str, ended: datetime | str | None) -> str:
    """Return how long it is from *began* to *ended*, in its two largest units."""
    if not isinstance(began, datetime) or not isinstance(ended, datetime):
        return "-"
    seconds = (ended - began).total_seconds()
    if abs(seconds) < 60:
        return f"{seconds:.1f}s"
    sign, whole = "-" if seconds < 0 else "", abs(int(seconds))
    return sign + _two_units(whole)


def _two_units(seconds: int) -> str:
    for unit, (size, lower, part) in _LARGER.items():
        if seconds >= size:
            return f"{seconds // size}{unit} {seconds % size // part:02}{lower}"
    return f"{seconds}s"


_LARGER = {"d": (86400, "h", 3600), "h": (3600, "m", 60), "m": (60, "s", 1)}
