"""One open session: what cannot be seen from the demands alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from statebackend import DuplicateEvent, EventKind, InvalidValue, StateBackend, configure_telemetry
from statebackend.reading import view
from statebackend.values.recorded import SessionCounts
from tests.session_files import MODEL, START, TOOL, call, cost, fill, full, item, new


def test_an_append_returns_the_event_as_it_will_be_read(backend: StateBackend) -> None:
    """Equal to what a reader gets, for every way to append."""
    with backend.create("default") as session:
        made = [
            session.append(EventKind.APPLY, producer=TOOL, payload=b"a", schema_version="1"),
            session.append_message(producer=MODEL, payload=b"b", cost=cost()),
            session.append_prompt(payload=b"c", schema_version="2", timestamp=START),
            session.append_plan(producer=MODEL, payload=b"d", items=[item()], event_id="mine"),
        ]
        with session.batch() as batch:
            ids = [
                batch.append(EventKind.APPLY, producer=TOOL, payload=b"e", schema_version="1"),
                batch.append_prompt(payload=b"f", schema_version="1"),
            ]
        assert [event.id for event in batch.events] == ids
        assert list(session.events()) == [*made, *batch.events]


def test_messages_and_plans_have_their_own_methods(backend: StateBackend) -> None:
    """append() points to them, since they carry rows of other tables."""
    with backend.create("default") as session:
        for kind in ("message", "plan"):
            with pytest.raises(InvalidValue, match=f"append_{kind}"):
                session.append(kind, producer=MODEL, payload=b"", schema_version="1")


def test_a_batch_that_has_ended_takes_no_more(backend: StateBackend) -> None:
    """What is appended to it later would never be written, so it is refused; so after an error."""
    with backend.create("default") as session:
        with session.batch() as empty:
            pass
        assert empty.events == ()
        with pytest.raises(ZeroDivisionError), session.batch() as failed:
            raise ZeroDivisionError
        for batch in (empty, failed):
            with pytest.raises(InvalidValue):
                batch.append_prompt(payload=b"", schema_version="1")
        assert session.counts().events == 0


def test_the_same_id_twice_in_one_batch(backend: StateBackend) -> None:
    """It is refused at once, and the batch goes on with the first."""
    with backend.create("default") as session:
        with session.batch() as batch:
            batch.append_prompt(payload=b"x", schema_version="1", event_id="one")
            for payload, same in ((b"x", True), (b"y", False)):
                with pytest.raises(DuplicateEvent) as caught:
                    batch.append_prompt(payload=payload, schema_version="1", event_id="one")
                assert (caught.value.sequence, caught.value.same_content) == (None, same)
        assert [event.payload for event in session.events()] == [b"x"]


def test_a_duplicate_in_a_batch_is_named(backend: StateBackend) -> None:
    """Which of the many it was, and where it is stored."""
    with backend.create("default") as session:
        call(session)
        call(session, event_id="taken")
        with pytest.raises(DuplicateEvent) as caught, session.batch() as batch:
            batch.append_prompt(payload=b"", schema_version="1")
            batch.append_prompt(payload=b"", schema_version="1", event_id="taken")
        assert (caught.value.event_id, caught.value.sequence) == ("taken", 2)


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({}, True),
        ({"timestamp": START}, False),
        ({"payload": b"other"}, False),
        ({"schema_version": "2"}, False),
        ({"producer": MODEL}, False),
    ],
)
def test_what_counts_as_the_same_content(
    backend: StateBackend, given: dict[str, object], same: bool
) -> None:
    """Everything the caller chose; a time only if it was given."""
    first = {"producer": TOOL, "payload": b"x", "schema_version": "1", "event_id": "one"}
    with backend.create("default") as session:
        session.append(EventKind.APPLY, **first)  # type: ignore[arg-type]
        with pytest.raises(DuplicateEvent) as caught:
            session.append(EventKind.APPLY, **(first | given))  # type: ignore[arg-type]
        assert caught.value.same_content is same


def test_the_cost_counts_as_content(backend: StateBackend) -> None:
    """A message without cost is another one."""
    with backend.create("default") as session:
        session.append_message(producer=MODEL, payload=b"", cost=cost(), event_id="one")
        for spend, same in ((cost(), True), (cost(1.0), False), (None, False)):
            with pytest.raises(DuplicateEvent) as caught:
                session.append_message(producer=MODEL, payload=b"", cost=spend, event_id="one")
            assert caught.value.same_content is same


@pytest.mark.parametrize("producer", ["model", None, {}, ("model", "m", "1")])
def test_what_is_no_producer_is_refused_by_name(backend: StateBackend, producer: object) -> None:
    """By every method, with and without a cost."""
    with backend.create("default") as session:
        attempts: list[Callable[[], object]] = [
            lambda: call(session, producer=producer),
            lambda: session.append_message(producer=producer, payload=b"", cost=None),  # type: ignore[arg-type]
            lambda: session.append_message(producer=producer, payload=b"", cost=cost()),  # type: ignore[arg-type]
            lambda: session.append_plan(producer=producer, payload=b"", items=[]),  # type: ignore[arg-type]
        ]
        for attempt in attempts:
            with pytest.raises(InvalidValue) as caught:
                attempt()
            assert caught.value.field == "producer"


def test_counts_tell_every_table(backend: StateBackend) -> None:
    """And the kinds, the most frequent first."""
    with backend.create("default") as session:
        assert session.counts() == SessionCounts(
            events=0, cost_ledger=0, plan_items=0, producers=0, by_kind={}
        )
        fill(session)
        counts = session.counts()
    assert (counts.events, counts.cost_ledger, counts.plan_items, counts.producers) == (5, 1, 2, 3)
    assert next(iter(counts.by_kind.items())) == ("message", 2)


def test_long_ledgers_come_in_pages(backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs, plan items and events of more than a page are all there, in order."""
    monkeypatch.setattr(view, "_PAGE_ROWS", 7)
    with backend.create("default") as session:
        with session.batch() as batch:
            for number in range(30):
                batch.append_message(producer=MODEL, payload=b"", cost=cost(number))
                decision = "deny" if number % 3 else "allow"
                batch.append_plan(producer=MODEL, payload=b"", items=[item(decision)])
        assert [entry.cost.cost_usd for entry in session.costs()] == list(range(30))
        assert len(list(session.plan_items())) == 30
        assert len(list(session.plan_items("deny"))) == 20
        assert [event.sequence for event in session.events()] == list(range(1, 61))
        assert len(list(session.events(kinds=["plan", "message"], last=50))) == 50


def test_pages_are_bounded_in_bytes(backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large payloads come one by one; none is left out."""
    monkeypatch.setattr(view, "_PAGE_BYTES", 100)
    with backend.open(new(backend, events=20, size=60)) as session:
        assert [event.sequence for event in session.events()] == list(range(1, 21))


@pytest.mark.parametrize("name", ["after_sequence", "limit", "last"])
@pytest.mark.parametrize("value", [-1, 2**63, "1", 1.0])
def test_bounds_are_checked_at_the_call(backend: StateBackend, name: str, value: object) -> None:
    """Not at the first event."""
    with backend.read(new(backend)) as view, pytest.raises(InvalidValue) as caught:
        view.events(**{name: value})  # type: ignore[call-overload]
    assert caught.value.field == name


def test_a_view_can_be_read_from_many_threads(backend: StateBackend) -> None:
    """One connection, one reader at a time."""
    counted: list[int] = []
    with backend.read(new(backend, events=50)) as view:
        threads = [
            threading.Thread(target=lambda: counted.append(len(list(view.events()))))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counted == [50] * 8


def test_leaving_the_block_by_an_error_closes_and_changes_no_status(backend: StateBackend) -> None:
    """The session is as it was, and free for the next."""
    with pytest.raises(ZeroDivisionError), backend.create("default") as session:
        call(session)
        raise ZeroDivisionError
    with backend.open(session.session_id) as again:
        assert (again.info.status, again.counts().events) == ("running", 1)


def test_a_driver_that_fails_does_not_lose_the_append(backend: StateBackend) -> None:
    """What telemetry raises at the start of a span comes before the write."""

    class Broken:
        def span(self, name: str, **attributes: object) -> object:
            raise RuntimeError(name)

    with backend.create("default") as session:
        configure_telemetry(Broken())  # type: ignore[arg-type]
        try:
            with pytest.raises(RuntimeError):
                call(session, event_id="one")
        finally:
            configure_telemetry(None)
        assert call(session, event_id="one") == 1


def test_an_ended_session_is_read_by_its_writer(backend: StateBackend) -> None:
    """All that a view has, a session has."""
    with backend.open(full(backend)) as session:
        assert session.info.status == "completed"
        assert [entry.item.decision for entry in session.plan_items()] == ["allow", "deny"]
        assert session.missing_producers([MODEL, TOOL]) == []
        assert list(session.follow()) == list(session.events())


@pytest.mark.parametrize("poll_interval_s", [-1, float("nan"), "1", None])
def test_a_follower_waits_a_time(backend: StateBackend, poll_interval_s: Any) -> None:
    """What is no time to wait is refused at the call, by name."""
    with backend.read(new(backend)) as view, pytest.raises(InvalidValue) as caught:
        view.follow(poll_interval_s=poll_interval_s)
    assert caught.value.field == "poll_interval_s"


@pytest.mark.parametrize("directory", [7, b"x", "a\0b"])
def test_a_folder_is_a_path(directory: Any) -> None:
    """What is none is refused by name."""
    with pytest.raises(InvalidValue) as caught:
        StateBackend(directory)
    assert caught.value.field == "directory"
