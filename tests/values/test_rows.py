"""From stored columns to values."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime
from itertools import permutations
from math import inf

import pytest

from statebackend import Event, EventKind, Producer, SessionStatus
from statebackend.values import rows
from statebackend.values.recorded import CostTotals

COLUMNS = (7, "e1", "2026-03-01T12:00:00.000Z", "tool_call", "tool", "shell", "1", "2")


def test_an_event_of_ours() -> None:
    """Words become members, the time a time, three columns a producer."""
    event = rows.event((*COLUMNS, b"\x00"))
    assert event == Event(
        7,
        "e1",
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        EventKind.TOOL_CALL,
        Producer("tool", "shell", "1"),
        "2",
        b"\x00",
    )
    assert isinstance(event.kind, EventKind)


def test_an_event_that_is_made_quickly_is_like_any_other() -> None:
    """Equal, with the same hash and text, whole when copied, and frozen."""
    given = (1, "e1", datetime(2026, 3, 1, tzinfo=UTC), EventKind.PLAN, Producer("model", "m", "1"))
    made, event = rows.make_event(*given, "2", b"x"), Event(*given, "2", b"x")
    assert (made, hash(made), repr(made)) == (event, hash(event), repr(event))
    assert deepcopy(made) == replace(event, sequence=1)
    with pytest.raises(FrozenInstanceError):
        made.sequence = 2  # type: ignore[misc]


def test_a_header_is_the_event_without_its_payload() -> None:
    """All else is the same."""
    header, event = rows.event_header(COLUMNS), rows.event((*COLUMNS, b""))
    assert [getattr(header, name) for name in header.__slots__] == [
        getattr(event, name) for name in header.__slots__
    ]


def test_a_summary_of_ours_and_a_foreign_one() -> None:
    """Known words become members; all else stays the stored text."""
    stored = ("ID", None, "p", "failed", 2, "2026-03-01T12:00:00.000Z", None, 0.5, 1)
    info = rows.session_info(stored, live=True, incomplete=True)
    assert (info.status, info.ended_at, info.cost_usd, info.unpriced_rows, info.live) == (
        SessionStatus.FAILED,
        None,
        0.5,
        1,
        True,
    )
    foreign = rows.session_info(
        ("ID", "P", "p", "zombie", 0, "x", "y", None, 0), live=False, incomplete=False
    )
    assert (foreign.status, foreign.started_at, foreign.ended_at) == ("zombie", "x", "y")


def test_totals_are_put_together_from_halves() -> None:
    """The upper 32 bits and the lower ones of each counter; none at all are zeros."""
    found = rows.cost_totals((2, 1.5, 0, 1, 5, None, None, 0, 3, 2, 0))
    assert found == CostTotals(
        rows=2,
        cost_usd=1.5,
        unpriced_rows=0,
        input_tokens=2**32 + 5,
        output_tokens=0,
        cache_write_tokens=3,
        cache_read_tokens=2**33,
    )


def test_adding_nothing_is_no_cost() -> None:
    """None and 0.0 stay apart, and ten dimes are a dollar."""
    assert rows.add_totals([]) == CostTotals()
    assert rows.add_totals([CostTotals(), CostTotals()]).cost_usd is None
    assert rows.add_totals([CostTotals(), CostTotals(rows=1, cost_usd=0.0)]).cost_usd == 0.0
    dimes = [CostTotals(rows=1, cost_usd=0.1, input_tokens=3, unpriced_rows=1)] * 10
    total = rows.add_totals(dimes)
    assert (total.cost_usd, total.rows, total.input_tokens, total.unpriced_rows) == (
        1.0,
        10,
        30,
        10,
    )


@pytest.mark.parametrize(
    ("costs", "total"),
    [
        ((inf, 1.0, inf), inf),
        ((-inf, 1e308, 1e308), -inf),
        ((inf, -inf, 1.0), None),
        ((1.0, None, 2.0), None),
        ((1e308, 1e308, -1e308), 1e308),
        ((1e308, 1e308, 1e308), inf),
        ((-1e308, -1e308, 0.5), -inf),
    ],
)
def test_costs_of_any_size_have_one_sum(
    costs: tuple[float | None, ...], total: float | None
) -> None:
    """Whatever their order; what has no sum is None, as it is in SQLite."""
    for order in permutations(costs):
        parts = [CostTotals(rows=1, cost_usd=cost) for cost in order]
        assert rows.add_totals(parts).cost_usd == total


def test_foreign_values_become_text() -> None:
    """Of one that is equal to another of another type as well."""
    assert [rows.as_text(value) for value in ("a", b"a\xff", 1, 1.0, None)] == [
        "a",
        "a\ufffd",
        "1",
        "1.0",
        "",
    ]
    for version in (1, 1.0, "1", b"1.0"):
        header = rows.event_header((7, b"e", "x", 5, "tool", "shell", version, None))
        assert (header.id, header.kind, header.schema_version) == ("e", "5", "")
        assert header.producer == Producer("tool", "shell", rows.as_text(version))
