"""What Hypothesis draws: everything that the store promises to keep, the tricky included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import strategies as st

from statebackend import Cost, EventKind, PlanItem, Producer
from statebackend.values.validation import MAX_INTEGER

TRICKY = (
    "'; DROP TABLE events; --",
    "%_*?[]\\",
    "\x1b[31mX\r\n\t",
    "\u202eright to left",
    "e\u0301",
    "\u00e9",
    "\U0001f9d1\u200d\U0001f680",
    "\ufeff",
    "\uffff",
    "\x01",
    " ",
)

_characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.one_of(
    st.sampled_from(TRICKY),
    st.text(_characters, min_size=1, max_size=20),
    st.text("ab", min_size=1, max_size=2),  # so that some come twice
)
payloads = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\0", b"\xff\xfe\x00", b'{"a": "\xc3\xa9"}', b"x" * 10_000]),
)
# What no text column can hold.
bad_texts = st.one_of(
    st.just(""),
    st.just("a\0b"),
    st.builds(lambda code: f"a{chr(code)}", st.integers(0xD800, 0xDFFF)),
)
integers = st.one_of(st.integers(0, MAX_INTEGER), st.integers(0, 1000))
amounts = st.one_of(
    st.floats(0, 1e9, allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 0.1, 5e-324, 1e-7, 3]),
)
zones = st.builds(
    timezone, st.integers(-1439, 1439).map(lambda minutes: timedelta(minutes=minutes))
)
_first, _epoch, _last = (
    datetime.fromisoformat(day) for day in ("0001-01-02", "1970-01-02", "9999-12-30")
)
moments = st.datetimes(_first, _last, timezones=zones)
ulid_moments = st.datetimes(_epoch, _last, timezones=st.just(UTC))

plug_ins = st.builds(
    Producer,
    st.sampled_from(["model", "tool", "context", "memory", "frontend", "widget", "slashcommand"]),
    texts,
    texts,
)
costs = st.builds(
    Cost,
    provider_name=texts,
    model_id=texts,
    input_tokens=integers,
    output_tokens=integers,
    cache_write_tokens=integers,
    cache_read_tokens=integers,
    cost_usd=amounts,
)
plan_items = st.builds(
    PlanItem,
    turn_id=st.one_of(st.just(""), texts),
    tool_call_id=st.one_of(st.just(""), texts),
    provider_name=texts,
    tool_name=texts,
    decision=st.sampled_from(["allow", "ask", "deny"]),
    decided_by=texts,
)
plain_kinds = st.sampled_from(
    [kind for kind in EventKind if kind not in {EventKind.MESSAGE, EventKind.PLAN}]
)
