"""The store against plain lists: whatever is done in whatever order, both hold the same."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from statebackend import (
    DuplicateEvent,
    Event,
    InvalidTransition,
    Session,
    SessionExists,
    SessionInfo,
    SessionStatus,
    SessionView,
    StateBackend,
)
from statebackend.values.timestamps import normalize
from tests.property import strategies
from tests.property.model import Entry, Recorded, entries

# No disk waits here: what is durable is the matter of the crash tests.
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
picks = st.integers(0, 99)


class Store(RuleBasedStateMachine):
    """Create, append, fail, close, reopen; after every step the session touched is compared."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None)
        self._backend = StateBackend(self._folder)
        self._recorded: list[Recorded] = []
        self._open: dict[str, Session] = {}
        self._touched: Recorded | None = None

    def teardown(self) -> None:
        """Compare all files, closed, and take the folder away."""
        try:
            for session in self._open.values():
                session.close()
            for one in self._recorded:
                with self._backend.read(one.session_id) as view:
                    compare(view, one)
        finally:
            shutil.rmtree(self._folder)

    def _pick(self, number: int) -> tuple[Recorded, Session]:
        """Return one of the sessions, opening it if need be."""
        self._touched = one = self._recorded[number % len(self._recorded)]
        if one.session_id not in self._open:
            self._open[one.session_id] = self._backend.open(one.session_id)
        return one, self._open[one.session_id]

    @precondition(lambda self: len(self._recorded) < 5)
    @rule(
        profile=strategies.texts,
        depth=strategies.integers,
        parent=st.none() | picks,
        started_at=strategies.ulid_moments,
    )
    def create(self, profile: str, depth: int, parent: int | None, started_at: datetime) -> None:
        """Create a session, perhaps below another one."""
        above = (
            self._recorded[parent % len(self._recorded)].session_id
            if parent is not None and self._recorded
            else None
        )
        session = self._backend.create(
            profile, parent_session_id=above, depth=depth, started_at=started_at
        )
        self._touched = Recorded(session.session_id, above, profile, depth)
        self._recorded.append(self._touched)
        self._open[session.session_id] = session

    @precondition(lambda self: self._recorded)
    @rule(number=picks)
    def create_again(self, number: int) -> None:
        """Create under an id that is taken: refused, and the session stays what it is."""
        one = self._recorded[number % len(self._recorded)]
        if (session := self._open.pop(one.session_id, None)) is not None:
            session.close()
        with pytest.raises(SessionExists):
            self._backend.create("other", session_id=one.session_id)

    @precondition(lambda self: self._recorded)
    @rule(number=picks, entry=entries())
    def append(self, number: int, entry: Entry) -> None:
        """Append an event of any kind, perhaps under an id that is taken."""
        one, session = self._pick(number)
        known = one.find(entry.event_id)
        if one.status is not SessionStatus.RUNNING:
            with pytest.raises(InvalidTransition):
                entry.give(session)  # type: ignore[arg-type]
        elif known is not None:
            with pytest.raises(DuplicateEvent) as caught:
                entry.give(session)  # type: ignore[arg-type]
            assert caught.value.sequence == known.sequence
            assert caught.value.same_content == (stored(entry) == stored(known))
        else:
            event = entry.give(session)  # type: ignore[arg-type]
            assert_same(event, one.add(entry))

    @precondition(lambda self: any(one.entries for one in self._recorded))
    @rule(number=picks, place=picks)
    def append_again(self, number: int, place: int) -> None:
        """Retry an append: told that the first try had succeeded, it changes nothing."""
        full = [one for one in self._recorded if one.entries]
        one = full[number % len(full)]
        known = one.entries[place % len(one.entries)]
        one, session = self._pick(self._recorded.index(one))
        if one.status is SessionStatus.RUNNING:
            with pytest.raises(DuplicateEvent) as caught:
                known.give(session)  # type: ignore[arg-type]
            assert (caught.value.sequence, caught.value.same_content) == (known.sequence, True)

    @precondition(lambda self: self._recorded)
    @rule(number=picks, several=st.lists(entries(), max_size=5), fails=st.booleans())
    def batch(self, number: int, several: list[Entry], fails: bool) -> None:
        """Append a batch; one that raises, or holds an id that is taken, leaves nothing."""
        one, session = self._pick(number)
        names = [entry.event_id for entry in several]
        taken = len(set(names)) < len(names) or any(one.find(name) for name in names)
        refused = one.status is not SessionStatus.RUNNING or taken or fails
        try:
            with session.batch() as batch:
                for entry in several:
                    entry.give(batch)  # type: ignore[arg-type]
                if fails:
                    raise ZeroDivisionError
        except (DuplicateEvent, InvalidTransition, ZeroDivisionError):
            assert refused
            return
        assert not refused
        for event, entry in zip(batch.events, several, strict=True):
            assert_same(event, one.add(entry))

    @precondition(lambda self: self._recorded)
    @rule(number=picks, status=st.sampled_from(SessionStatus))
    def set_status(self, number: int, status: SessionStatus) -> None:
        """Set any status; what the rules forbid changes nothing."""
        one, session = self._pick(number)
        if one.allows(status):
            session.set_status(status)
            one.status = status
        else:
            with pytest.raises(InvalidTransition):
                session.set_status(status)

    @precondition(lambda self: self._open)
    @rule(number=picks)
    def close(self, number: int) -> None:
        """Close one of the open sessions; its file is whole by itself."""
        session_id = sorted(self._open)[number % len(self._open)]
        self._open.pop(session_id).close()
        with self._backend.read(session_id) as view:
            assert view.info.live is False

    @rule()
    def across(self) -> None:
        """Compare the listing, the trees and the costs of all sessions with the model."""
        by_id = {one.session_id: one for one in self._recorded}
        listed = self._backend.list(limit=None)
        assert [info.session_id for info in listed] == sorted(by_id, reverse=True)
        for info in listed:
            assert isinstance(info, SessionInfo)
            assert_info(info, by_id[info.session_id], live=info.session_id in self._open)
        tree = self._backend.tree()
        assert not tree.partial
        assert sorted(node.session.session_id for node in tree.nodes) == sorted(by_id)
        for node in tree.nodes:
            below = descendants(self._recorded, node.session.session_id)
            assert_sum(node.own.cost_usd, [by_id[node.session.session_id]])
            assert_sum(node.inclusive.cost_usd, below)
            cost = self._backend.cost(node.session.session_id, tree=True)
            assert (cost.own, cost.inclusive) == (node.own, node.inclusive)
            assert cost.sessions == len(below)
        report = self._backend.cost_by("session")
        assert {group.key for group in report.groups} == {
            one.session_id for one in self._recorded if one.costs
        }
        spent = [group.totals.cost_usd or 0.0 for group in report.groups]
        assert_sum(math.fsum(spent) if spent else None, self._recorded)

    @invariant()
    def same(self) -> None:
        """Compare the session touched last with the model."""
        one, self._touched = self._touched, None
        if one is not None and one.session_id in self._open:
            compare(self._open[one.session_id], one)
        elif one is not None:
            with self._backend.read(one.session_id) as view:
                compare(view, one)


def descendants(recorded: list[Recorded], root: str) -> list[Recorded]:
    """Return a session and all below it; a session is made after its parent."""
    within = {root}
    for one in recorded:
        if one.parent in within:
            within.add(one.session_id)
    return [one for one in recorded if one.session_id in within]


def stored(entry: Entry) -> tuple[object, ...]:
    """Return what counts as content, as the store keeps it."""
    moment = normalize("timestamp", entry.timestamp)
    rest = (entry.kind, entry.producer, entry.payload, entry.schema_version)
    return (moment, *rest, entry.cost, entry.items)


def assert_same(event: object, entry: Entry) -> None:
    """Assert that an event is what was given, byte for byte."""
    assert event == Event(
        entry.sequence,
        entry.event_id,
        normalize("timestamp", entry.timestamp),
        entry.kind,
        entry.producer,
        entry.schema_version,
        entry.payload,
    )


def assert_sum(found: float | None, sessions: list[Recorded]) -> None:
    """Assert that a sum is that of these ledgers, None if they are empty."""
    amounts = [float(cost.cost_usd) for one in sessions for _sequence, cost in one.costs]
    if amounts:
        assert found == pytest.approx(math.fsum(amounts), rel=1e-9)
    else:
        assert found is None


def assert_info(info: SessionInfo, one: Recorded, *, live: bool) -> None:
    """Assert that a summary is the model's."""
    assert (info.session_id, info.parent_session_id) == (one.session_id, one.parent)
    assert (info.profile, info.depth, info.status) == (one.profile, one.depth, one.status)
    assert (info.ended_at is None) == (one.status is SessionStatus.RUNNING)
    assert info.live == live
    assert_sum(info.cost_usd, [one])


def compare(view: SessionView | Session, one: Recorded) -> None:
    """Assert that a session holds exactly what the model holds."""
    events = list(view.events())
    assert len(events) == len(one.entries)
    for event, entry in zip(events, one.entries, strict=True):
        assert_same(event, entry)
        assert view.event(entry.event_id) == event
    assert [(entry.event_sequence, entry.cost) for entry in view.costs()] == one.costs
    assert [(entry.event_sequence, entry.item) for entry in view.plan_items()] == one.items
    assert {found.producer: found.first_seen_sequence for found in view.producers()} == (
        one.first_seen
    )
    counts = view.counts()
    assert (counts.events, counts.cost_ledger) == (len(one.entries), len(one.costs))
    assert (counts.plan_items, counts.producers) == (len(one.items), len(one.first_seen))
    assert counts.by_kind == Counter(entry.kind for entry in one.entries)
    totals = view.cost_totals()
    assert totals.rows == len(one.costs)
    assert totals.input_tokens == sum(cost.input_tokens for _sequence, cost in one.costs)
    assert totals.cache_read_tokens == sum(cost.cache_read_tokens for _sequence, cost in one.costs)
    assert_info(view.info, one, live=isinstance(view, Session))


@pytest.mark.conformance("SB-04", "SB-11", "SB-12", "SB-16", "SB-17", "SB-18", "SB-20", "SB-21")
@pytest.mark.parametrize(
    ("examples", "steps"),
    [
        pytest.param(20, 20, id="short"),
        pytest.param(60, 40, id="long", marks=pytest.mark.slow),
    ],
)
def test_store_holds_what_a_plain_list_holds(examples: int, steps: int) -> None:
    """After every step of a random use: same events, bytes, rows, counts, status, sums, trees."""
    run_state_machine_as_test(
        Store,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
