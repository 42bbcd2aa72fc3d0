"""The one text form of a stored time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from statebackend import InvalidValue
from statebackend.values import timestamps

MOMENT = datetime(2026, 1, 31, 23, 59, 59, 123_000, tzinfo=UTC)
TEXT = "2026-01-31T23:59:59.123Z"


def test_there_and_back() -> None:
    """A time becomes this very text, and the text this very time."""
    assert timestamps.to_text(MOMENT) == TEXT
    assert timestamps.from_text(TEXT) == MOMENT


def test_text_sorts_as_time() -> None:
    """The number of digits is fixed, also for early years and whole seconds."""
    moments = [datetime(7, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), MOMENT]
    texts = [timestamps.to_text(moment) for moment in moments]
    assert texts == sorted(texts)
    assert {len(text) for text in texts} == {24}


def test_now_is_in_the_stored_form() -> None:
    """The present is UTC and cut to the millisecond, so it reads back equal."""
    now = timestamps.now()
    assert timestamps.from_text(timestamps.to_text(now)) == now
    assert abs(datetime.now(UTC) - now) < timedelta(minutes=1)


def test_other_zones_become_utc() -> None:
    """The moment stays, microseconds are cut, not rounded."""
    local = (MOMENT + timedelta(microseconds=999)).astimezone(timezone(timedelta(hours=-3)))
    found = timestamps.normalize("x", local)
    assert found == MOMENT
    assert found.tzinfo is UTC
    assert timestamps.normalize("x", MOMENT + timedelta(microseconds=999)) == MOMENT


@pytest.mark.parametrize("value", [datetime(2026, 1, 1), "2026", 0, None])  # noqa: DTZ001
def test_what_is_no_moment_is_refused(value: Any) -> None:
    """Naive times and other types raise, naming the field."""
    with pytest.raises(InvalidValue) as caught:
        timestamps.normalize("ended_at", value)
    assert caught.value.field == "ended_at"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-01-31T23:59:59Z",
        "2026-01-31T23:59:59.123456Z",
        "2026-01-31 23:59:59.123Z",
        "2026-01-31T23:59:59.123+00:00",
        "2026-01-31T23:59:59.123z",
        "2026-02-30T00:00:00.000Z",
        "2026-01-01T24:00:00.001Z",
        "2026-01-01T00:00:60.000Z",
        "0000-01-01T00:00:00.000Z",
        "２０２６-01-31T23:59:59.123Z",
        TEXT + "\n",
    ],
)
def test_any_other_text_is_handed_out_as_it_is(text: str) -> None:
    """What another program wrote is shown, not guessed at."""
    assert timestamps.from_text(text) == text


@pytest.mark.parametrize(("value", "shown"), [(b"a\xff", "a\ufffd"), (7, "7"), (None, "None")])
def test_what_is_no_text_is_shown_as_text(value: object, shown: str) -> None:
    """A column of a foreign file can hold anything."""
    assert timestamps.from_text(value) == shown
