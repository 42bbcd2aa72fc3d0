"""Parsing and formatting of times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click
import pytest

from statebackend.cli import times


@pytest.fixture(autouse=True)
def in_kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in a time zone half an hour off the whole ones."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


def _parsed(text: str, *, end_of_day: bool = False) -> datetime:
    return times.parse(text, end_of_day=end_of_day)


@pytest.mark.parametrize(
    "text,meant",
    [
        ("2026-01-31", datetime(2026, 1, 30, 18, 30, tzinfo=UTC)),
        ("2026-01-31T06:00", datetime(2026, 1, 31, 0, 30, tzinfo=UTC)),
        ("2026-01-31 06:00:01.5", datetime(2026, 1, 31, 0, 30, 1, 500000, tzinfo=UTC)),
        ("2026-01-31T06:00:00Z", datetime(2026, 1, 31, 6, tzinfo=UTC)),
        ("2026-01-31T06:00:00-02:00", datetime(2026, 1, 31, 8, tzinfo=UTC)),
    ],
)
def test_a_time_is_local_unless_it_says_otherwise(text: str, meant: datetime) -> None:
    """Dates and naive times are local, an offset is honoured."""
    assert _parsed(text) == meant


@pytest.mark.parametrize(
    "text,age",
    [
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(days=14)),
    ],
)
def test_an_age_counts_back_from_now(text: str, age: timedelta) -> None:
    """An age is that long before the present."""
    assert abs(datetime.now(UTC) - age - _parsed(text)) < timedelta(seconds=5)


def test_until_a_date_includes_that_day() -> None:
    """The end of a day is the local midnight after it."""
    assert _parsed("2026-01-31", end_of_day=True) == datetime(2026, 1, 31, 18, 30, tzinfo=UTC)


def test_a_time_before_all_ids_means_the_first() -> None:
    """A time before 1970 becomes 1970: no id is older."""
    assert _parsed("1815-12-10") == datetime(1970, 1, 1, tzinfo=UTC)
    assert _parsed("9999w") == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "7", "-7d", "7x", "2026-13-01", "999999999w", "0001-01-01", "٧d"]
)
def test_any_other_text_is_a_usage_error(text: str) -> None:
    """Also a date that no calendar has."""
    option = click.Option(["--since"])
    with pytest.raises(click.BadParameter):
        times.parse_since(click.Context(click.Command("list")), option, text)


def test_shown_times_are_local() -> None:
    """A time is shown in local time, text that is not a time unchanged."""
    assert times.format_second(datetime(2026, 1, 30, 18, 30, tzinfo=UTC)) == "2026-01-31 00:00:00"
    assert times.format_second("31/1/26") == "31/1/26"


@pytest.mark.parametrize(
    "seconds,shown",
    [(0.5, "0.5s"), (59, "59.0s"), (61, "1m 01s"), (3 * 3600 + 120, "3h 02m"), (90000, "1d 01h")],
)
def test_a_duration_has_two_units(seconds: float, shown: str) -> None:
    """How long a session took is shown in its two largest units."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert times.format_duration(start, start + timedelta(seconds=seconds)) == shown
