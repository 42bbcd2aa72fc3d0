"""Times on the command line: parsed from local time, shown in local time."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta

import click

_AGE = re.compile(r"([0-9]{1,9})([smhdw])")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_since(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Convert a date, a time or an age to an aware UTC time; a date means its first moment."""
    return _parse_option(value, end_of_day=False)


def parse_until(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Convert as :func:`parse_since` does; a date means the first moment of the next day."""
    return _parse_option(value, end_of_day=True)


def _parse_option(text: str | None, *, end_of_day: bool) -> datetime | None:
    try:
        return None if text is None else parse(text, end_of_day=end_of_day)
    except (ValueError, OverflowError):
        raise click.BadParameter(  # Click adds the name of the option
            f"{text!r} is not a time; give a date (2026-01-31), a time (2026-01-31T18:00, local "
            "unless it ends in an offset or Z), or an age (90m, 12h, 7d, 2w)"
        ) from None


def parse(text: str, *, end_of_day: bool = False) -> datetime:
    """Return the time that *text* names, in aware UTC.

    With *end_of_day* a date means the first moment of the next day. A time before 1970 becomes
    1970, since no session id is older. Raises ValueError or OverflowError for any other text.
    """
    if age := _AGE.fullmatch(text):
        back = timedelta(seconds=int(age[1]) * _SECONDS[age[2]])
        return max(datetime.now(UTC) - back, _EPOCH)
    moment = datetime.fromisoformat(text)
    if end_of_day and _DATE.fullmatch(text):
        moment += timedelta(days=1)
    return max(moment.astimezone(UTC), _EPOCH)


def format_second(value: datetime | str | None) -> str:
    """Return a time in local time, to the second; text that could not be parsed is unchanged."""
    if value is None:
        return "-"
    return f"{value.astimezone():%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else value


def format_minute(value: datetime | str) -> str:
    """Return a time as :func:`format_second` does, to the minute."""
    return f"{value.astimezone():%Y-%m-%d %H:%M}" if isinstance(value, datetime) else value


def format_duration(began: datetime | str, ended: datetime | str | None) -> str:
    """Return the time from *began* to *ended* in its two largest units, ``-`` if unknown."""
    if not isinstance(began, datetime) or not isinstance(ended, datetime):
        return "-"
    seconds = (ended - began).total_seconds()
    if abs(seconds) < 60:
        return f"{seconds:.1f}s"
    return ("-" if seconds < 0 else "") + _two_units(abs(int(seconds)))


def _two_units(seconds: int) -> str:
    for larger, smaller in itertools.pairwise("dhms"):
        if seconds >= (size := _SECONDS[larger]):
            rest = seconds % size // _SECONDS[smaller]
            return f"{seconds // size}{larger} {rest:02}{smaller}"
    return f"{seconds}s"
