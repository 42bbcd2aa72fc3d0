"""A store of sessions as plain lists: what the real one is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from hypothesis import strategies as st

from statebackend import Cost, EventKind, PlanItem, Producer, SessionStatus
from statebackend.recording.appends import Appends
from statebackend.values.recorded import kernel_user
from tests.property import strategies


@dataclass(frozen=True)
class Entry:
    """One event as it is given to the store; ``sequence`` is what it should be stored under."""

    kind: EventKind
    producer: Producer
    payload: bytes
    schema_version: str
    event_id: str
    timestamp: datetime
    cost: Cost | None = None
    items: tuple[PlanItem, ...] = ()
    sequence: int = 0

    def give(self, target: Appends[object]) -> object:
        """Append this entry to a session or to a batch, by the method for its kind."""
        common = {
            "payload": self.payload,
            "schema_version": self.schema_version,
            "event_id": self.event_id,
            "timestamp": self.timestamp,
        }
        if self.producer == kernel_user() and self.cost is None:
            return target.append_prompt(**common)  # type: ignore[arg-type]
        if self.kind is EventKind.MESSAGE:
            return target.append_message(producer=self.producer, cost=self.cost, **common)  # type: ignore[arg-type]
        if self.kind is EventKind.PLAN:
            return target.append_plan(producer=self.producer, items=self.items, **common)  # type: ignore[arg-type]
        return target.append(self.kind, producer=self.producer, **common)  # type: ignore[arg-type]


_common = {
    "payload": strategies.payloads,
    "schema_version": strategies.texts,
    "event_id": strategies.texts,
    "timestamp": strategies.moments,
}
_any_entry = st.one_of(
    st.builds(Entry, kind=strategies.plain_kinds, producer=strategies.plug_ins, **_common),
    st.builds(
        Entry,
        kind=st.just(EventKind.MESSAGE),
        producer=strategies.plug_ins,
        cost=st.none() | strategies.costs,
        **_common,
    ),
    st.builds(Entry, kind=st.just(EventKind.MESSAGE), producer=st.just(kernel_user()), **_common),
    st.builds(
        Entry,
        kind=st.just(EventKind.PLAN),
        producer=strategies.plug_ins | st.just(Producer("kernel", "kernel", "1")),
        items=st.lists(strategies.plan_items, max_size=3).map(tuple),
        **_common,
    ),
)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Return an event of any kind; drawn by a function, since what is spelt out grows too long."""
    return draw(_any_entry)


@dataclass
class Recorded:
    """One session: its row, and its events in order."""

    session_id: str
    parent: str | None
    profile: str
    depth: int
    status: SessionStatus = SessionStatus.RUNNING
    entries: list[Entry] = field(default_factory=list)

    def find(self, event_id: str) -> Entry | None:
        """Return the event of this id."""
        return next((one for one in self.entries if one.event_id == event_id), None)

    def add(self, entry: Entry) -> Entry:
        """Add an event under the next sequence."""
        self.entries.append(replace(entry, sequence=len(self.entries) + 1))
        return self.entries[-1]

    def allows(self, status: SessionStatus) -> bool:
        """Tell whether the status may become this one."""
        if self.status is SessionStatus.RUNNING:
            return status is not SessionStatus.RUNNING
        reopens = {SessionStatus.COMPLETED, SessionStatus.CANCELLED}
        return self.status in reopens and status is SessionStatus.RUNNING

    @property
    def costs(self) -> list[tuple[int, Cost]]:
        """Return the ledger."""
        return [(one.sequence, one.cost) for one in self.entries if one.cost is not None]

    @property
    def items(self) -> list[tuple[int, PlanItem]]:
        """Return the plan items."""
        return [(one.sequence, item) for one in self.entries for item in one.items]

    @property
    def first_seen(self) -> dict[Producer, int]:
        """Return each producer with its first event."""
        seen: dict[Producer, int] = {}
        for one in self.entries:
            seen.setdefault(one.producer, one.sequence)
        return seen
