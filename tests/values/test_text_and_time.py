"""Invalid text, times without a zone, and queries that contain SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from statebackend import InvalidValue, PlanItem, Producer, StateBackend
from tests.session_files import (
    MODEL,
    START,
    TOOL,
    call,
    cost,
    full,
    item,
    new,
    path_of,
    rows_of,
    run_python,
    sql,
)

HALF_A_PAIR = "\ud83d"


@pytest.mark.parametrize("bad", [HALF_A_PAIR, "a\0b", "", 7, None, b"bytes"])
def test_a_text_that_cannot_be_stored_is_refused_by_name(backend: StateBackend, bad: Any) -> None:
    """Half a surrogate pair, NUL, empty text and other types: the error names the field."""
    attempts = {
        "producer.name": {"producer": Producer("tool", bad, "1")},
        "producer.version": {"producer": Producer("tool", "x", bad)},
        "schema_version": {"schema_version": bad},
    } | ({} if bad is None else {"event_id": {"event_id": bad}})
    with backend.create("default") as session:
        before = rows_of(session.path)
        for field, given in attempts.items():
            with pytest.raises(InvalidValue) as caught:
                call(session, **given)
            assert caught.value.field == field
        for field in ("provider_name", "model_id"):
            with pytest.raises(InvalidValue) as caught:
                session.append_message(producer=MODEL, payload=b"", cost=cost(**{field: bad}))
            assert caught.value.field == f"cost.{field}"
        for field in ("provider_name", "tool_name", "decided_by"):
            with pytest.raises(InvalidValue) as caught:
                session.append_plan(producer=MODEL, payload=b"", items=[item(**{field: bad})])
            assert caught.value.field == f"item.{field}"
        assert rows_of(session.path) == before
    with pytest.raises(InvalidValue) as caught:
        backend.create(bad)
    assert caught.value.field == "profile"


def test_planned_calls_may_lack_ids_but_not_be_broken(backend: StateBackend) -> None:
    """The kernel gives turn and call ids: they may be empty, but not invalid text."""
    with backend.create("default") as session:
        empty = item(turn_id="", tool_call_id="")
        session.append_plan(producer=MODEL, payload=b"", items=[empty])
        for field in ("turn_id", "tool_call_id"):
            broken: PlanItem = item(**{field: HALF_A_PAIR})
            with pytest.raises(InvalidValue):
                session.append_plan(producer=MODEL, payload=b"", items=[broken])
        assert [entry.item for entry in session.plan_items()] == [empty]


@pytest.mark.parametrize("payload", ["text", None, 7, [1]])
def test_a_payload_is_bytes(backend: StateBackend, payload: Any) -> None:
    """Buffers are stored; text is refused, since the producer chooses the encoding."""
    with backend.create("default") as session:
        with pytest.raises(InvalidValue) as caught:
            call(session, payload)
        assert caught.value.field == "payload"
        call(session, bytearray(b"ab"))  # type: ignore[arg-type]
        call(session, memoryview(b"abcd")[::2])  # type: ignore[arg-type]
        assert [event.payload for event in session.events()] == [b"ab", b"ac"]


@pytest.mark.parametrize(
    "name", ["ünï", "漢字", "👩‍💻", "a'b\"c", "x; DROP TABLE events", "%_", "\x1b[31m"]
)
def test_any_other_text_is_read_back_unchanged(backend: StateBackend, name: str) -> None:
    """In every text column."""
    producer = Producer("tool", name, name)
    with backend.create(name) as session:
        call(session, producer=producer, event_id=name, schema_version=name)
        session.append_message(producer=producer, payload=b"", cost=cost(model_id=name))
        (event, _message) = session.events()
        assert (event.id, event.producer, event.schema_version) == (name, producer, name)
        assert [entry.cost.model_id for entry in session.costs()] == [name]
        assert session.event(name) == event
        assert session.info.profile == name
    assert [info.session_id for info in backend.list(profile=name)] == [session.session_id]


def test_filters_are_values_not_patterns(backend: StateBackend) -> None:
    """Quotes, wildcards and SQL in a filter match only the same text."""
    plain, odd = new(backend, profile="abc"), new(backend, profile="a%' OR 1=1 --")
    assert [info.session_id for info in backend.list(profile="a%' OR 1=1 --")] == [odd]
    assert backend.list(profile="a%") == []
    assert backend.list(profile="' OR ''='") == []
    with pytest.raises(InvalidValue):
        backend.list(status="x' OR 1=1 --")
    with pytest.raises(InvalidValue):
        backend.cost_by("model; DROP TABLE events")  # type: ignore[arg-type]
    with backend.read(plain) as view:
        with pytest.raises(InvalidValue):
            view.events(kinds=["x' OR 1=1 --"])
        with pytest.raises(InvalidValue):
            view.events(kinds="message")
        with pytest.raises(InvalidValue):
            list(view.plan_items("deny' OR 1=1 --"))
        assert view.event("' OR 1=1 --") is None


@pytest.mark.parametrize("name", ["started_at", "ended_at", "timestamp", "since", "until"])
def test_a_time_without_a_zone_is_refused(backend: StateBackend, name: str) -> None:
    """It is ambiguous, so it is not stored; the error names the field."""
    noon = datetime(2026, 3, 1, 12)  # noqa: DTZ001 - naive on purpose
    session_id = new(backend)
    with pytest.raises(InvalidValue) as caught:
        if name == "started_at":
            backend.create("default", started_at=noon)
        elif name in ("since", "until"):
            backend.list(**{name: noon})  # type: ignore[arg-type]
        else:
            with backend.open(session_id) as session:
                if name == "ended_at":
                    session.set_status("completed", ended_at=noon)
                call(session, timestamp=noon)
    assert caught.value.field == name


def test_any_zone_is_stored_as_utc_to_the_millisecond(backend: StateBackend) -> None:
    """Every time is stored as UTC with three digits and Z, truncated and not rounded."""
    india = timezone(timedelta(hours=5, minutes=30))
    moment = datetime(2026, 1, 1, 1, 2, 3, 999_999, tzinfo=india)
    with backend.create("default", started_at=moment) as session:
        event = session.append_prompt(payload=b"", schema_version="1", timestamp=moment)
        assert event.timestamp == datetime(2025, 12, 31, 19, 32, 3, 999_000, tzinfo=UTC)
        assert list(session.events()) == [event]
    assert sql(session.path, "SELECT timestamp, started_at FROM events, session_meta") == [
        ("2025-12-31T19:32:03.999Z", "2025-12-31T19:32:03.999Z")
    ]


def test_the_local_zone_changes_nothing(backend: StateBackend) -> None:
    """Times are equal when read in another zone, also across a clock change."""
    write = """
        import sys
        from datetime import datetime, timezone, timedelta
        from statebackend import StateBackend
        from tests.session_files import call
        start = datetime(2026, 10, 31, 22, 30, tzinfo=timezone.utc)
        with StateBackend(sys.argv[1]).create("default", started_at=start) as session:
            for hours in range(12):
                call(session, timestamp=(start + timedelta(hours=hours)).astimezone())
            print(session.session_id)
    """
    read = """
        import sys
        from statebackend import StateBackend
        backend = StateBackend(sys.argv[1])
        with backend.read(next(backend.ids())) as view:
            print(view.info.started_at.isoformat())
            for event in view.events():
                print(event.timestamp.isoformat())
    """
    run_python(write, backend.directory, TZ="Asia/Kolkata")
    start = datetime(2026, 10, 31, 22, 30, tzinfo=UTC)
    expected = [start, *(start + timedelta(hours=hours) for hours in range(12))]
    printed = run_python(read, backend.directory, TZ="America/St_Johns").splitlines()
    assert printed == [moment.isoformat() for moment in expected]


@pytest.mark.parametrize("name", ["min", "max"])
def test_the_ends_of_time_are_refused_or_kept(backend: StateBackend, name: str) -> None:
    """A time outside the range of UTC is an invalid value, not an overflow."""
    moment: datetime = getattr(datetime, name)
    offset = timezone(timedelta(hours=14 if name == "min" else -12))
    with backend.create("default") as session:
        with pytest.raises(InvalidValue):
            call(session, timestamp=moment.replace(tzinfo=offset))
        call(session, timestamp=moment.replace(tzinfo=UTC))
        (event,) = session.events()
        assert event.timestamp == moment.replace(
            tzinfo=UTC, microsecond=moment.microsecond // 1000 * 1000
        )


def test_a_session_cannot_start_before_1970(backend: StateBackend) -> None:
    """An id contains a time since 1970; the error for an earlier start names the field."""
    with pytest.raises(InvalidValue) as caught:
        backend.create("default", started_at=datetime(1969, 12, 31, tzinfo=UTC))
    assert caught.value.field == "started_at"


def test_the_ids_time_is_the_start(backend: StateBackend) -> None:
    """The order of ids is the order of starts, to the millisecond."""
    from statebackend.values.ids import session_time

    for number in range(50):
        moment = START + timedelta(milliseconds=number * 77)
        assert session_time(new(backend, started_at=moment)) == moment


def test_unknown_words_in_events_are_returned(backend: StateBackend) -> None:
    """A kind or a time that another program wrote is returned as the stored text."""
    path = path_of(backend, full(backend))
    sql(path, "UPDATE events SET kind = 'novel', timestamp = '1.3.2026' WHERE sequence = 4")
    with backend.read(path.stem) as view:
        event = list(view.events())[3]
        assert (event.kind, event.timestamp, event.producer) == ("novel", "1.3.2026", TOOL)
        assert view.counts().by_kind["novel"] == 1
