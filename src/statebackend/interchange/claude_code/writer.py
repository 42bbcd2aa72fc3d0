"""Writes what a transcript has and its session has not yet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from statebackend.interchange.claude_code.events import Draft, Line, MessageDraft, Transcript
from statebackend.interchange.claude_code.fields import Counters
from statebackend.interchange.claude_code.identity import RecordKeys, event_id, message_group
from statebackend.interchange.claude_code.prices import ModelPrice
from statebackend.interchange.jsonl import SourceObject, read_objects
from statebackend.values.recorded import (
    Cost,
    Event,
    EventKind,
    PlanItem,
    Producer,
    SessionInfo,
    SessionStatus,
)

if TYPE_CHECKING:
    from statebackend.recording.session import Session

SCHEMA_VERSION = "claude-code-jsonl"
"""``schema_version`` of every imported event: its payload is bytes of this source format."""

_BATCH_EVENTS = 500
_BATCH_BYTES = 8_000_000
_PROVIDER = "anthropic"


@dataclass(slots=True)
class Stored:
    """What a session holds already.

    ``lines`` and ``spent`` tell, for each model's message, which of its lines are in and what was
    entered in the ledger. ``last_id`` is the last event's id, ``last_lines`` its lines if it is a
    model's message.
    """

    ids: set[str] = field(default_factory=set)
    lines: dict[str, set[str]] = field(default_factory=dict)
    spent: dict[str, Counters] = field(default_factory=dict)
    last_id: str | None = None
    last_lines: set[str] = field(default_factory=set)


def read_stored(session: Session) -> Stored:
    """Read back what earlier imports have written into *session*."""
    stored = Stored()
    for header in session.events(payloads=False):
        stored.ids.add(header.id)
        stored.last_id = header.id
    if not stored.ids:
        return stored
    costs = {entry.event_sequence: entry.cost for entry in session.costs()}
    keys = RecordKeys()
    for event in session.events(kinds=[EventKind.MESSAGE]):
        if event.producer.category == "model" and event.schema_version == SCHEMA_VERSION:
            _read_message(stored, keys, event, costs.get(event.sequence))
    return stored


def _read_message(stored: Stored, keys: RecordKeys, event: Event, cost: Cost | None) -> None:
    lines = [
        line for line in read_objects(event.payload.split(b"\n")) if isinstance(line, SourceObject)
    ]
    if not lines:
        return
    group = message_group(lines[0].value, lines[0].data)
    found = {key for line in lines if (key := keys.key(line.value, line.data, group)) is not None}
    stored.lines.setdefault(group, set()).update(found)
    if event.id == stored.last_id:
        stored.last_lines = found
    if cost is not None:
        spent = Counters(
            cost.input_tokens, cost.output_tokens, cost.cache_write_tokens, cost.cache_read_tokens
        )
        stored.spent[group] = stored.spent.get(group, Counters()).plus(spent)


@dataclass(frozen=True, slots=True)
class _Ready:
    """One event with everything that is to be written."""

    id: str
    kind: EventKind
    producer: Producer
    payload: bytes
    timestamp: datetime
    cost: Cost | None = None
    item: PlanItem | None = None


@dataclass(slots=True)
class Writer:
    """Appends a transcript's missing events to its session, in batches.

    ``file`` is the descriptor from which payloads are read. After :meth:`write`, the counters say
    what was done, and ``reaches_end`` whether the session's last earlier event is in this
    transcript: only then does its end say how the session ended.
    """

    session: Session
    transcript: Transcript
    source_id: str
    started_at: datetime
    file: int
    prices: Mapping[str, ModelPrice]
    added: Counter[str] = field(default_factory=Counter)
    unpriced_turns: int = 0
    odd_counters: int = 0
    reaches_end: bool = False

    def write(self) -> None:
        """Append what is missing; a session that has ended is re-opened first."""
        stored = read_stored(self.session)
        self.reaches_end = stored.last_id is None
        ended = self.session.info.status != SessionStatus.RUNNING
        for batch in _batches(self._missing(stored)):
            if ended:
                self.session.set_status(SessionStatus.RUNNING)
                ended = False
            self._append(batch)
            self.added.update(str(ready.kind) for ready in batch)

    def _missing(self, stored: Stored) -> Iterator[_Ready]:
        for draft in self.transcript.drafts:
            if isinstance(draft, MessageDraft):
                ready = self._message(draft, stored)
            else:
                ready = self._other(draft, stored)
            if ready is not None:
                yield ready

    def _other(self, draft: Draft, stored: Stored) -> _Ready | None:
        line = draft.line
        identity = event_id(self.source_id, line.key, draft.part)
        self.reaches_end |= identity == stored.last_id
        if identity in stored.ids:
            return None
        payload = self._bytes([line])
        return _Ready(
            identity, draft.kind, draft.producer, payload, self._time(line), item=draft.item
        )

    def _message(self, draft: MessageDraft, stored: Stored) -> _Ready | None:
        """Return the message, or what its lines add to it since the last import."""
        known = stored.lines.get(draft.group, set())
        lines = [line for line in draft.lines if line.key not in known]
        if stored.last_lines and stored.last_lines <= {line.key for line in draft.lines}:
            self.reaches_end = True
        if not lines:
            return None
        first = lines[0]
        return _Ready(
            event_id(self.source_id, first.key, "message"),
            EventKind.MESSAGE,
            Producer("model", _PROVIDER, first.version),
            self._bytes(lines),
            self._time(first),
            cost=self._cost(draft, stored.spent.get(draft.group)),
        )

    def _cost(self, draft: MessageDraft, spent: Counters | None) -> Cost | None:
        if draft.usage is None:
            return None
        added, lower = draft.usage.growth_since(spent or Counters())
        self.odd_counters += draft.odd_counters + lower
        if spent is not None and added == Counters():
            return None  # all of it is in the ledger
        price = self.prices.get(draft.model)
        self.unpriced_turns += price is None and added != Counters()
        return Cost(
            provider_name=_PROVIDER,
            model_id=draft.model,
            input_tokens=added.input,
            output_tokens=added.output,
            cache_write_tokens=added.cache_write,
            cache_read_tokens=added.cache_read,
            cost_usd=0.0 if price is None else _usd(added, price),
        )

    def _time(self, line: Line) -> datetime:
        return line.timestamp or self.started_at

    def _bytes(self, lines: list[Line]) -> bytes:
        return b"\n".join(self._piece(line) for line in lines)

    def _piece(self, line: Line) -> bytes:
        data = os.pread(self.file, line.size, line.start)
        if len(data) != line.size:
            raise OSError("was cut short while it was being read")
        return data

    def _append(self, events: list[_Ready]) -> None:
        with self.session.batch() as batch:
            for ready in events:
                if ready.item is not None:
                    batch.append_plan(
                        producer=ready.producer,
                        payload=ready.payload,
                        items=[ready.item],
                        schema_version=SCHEMA_VERSION,
                        event_id=ready.id,
                        timestamp=ready.timestamp,
                    )
                elif ready.kind is not EventKind.MESSAGE:
                    batch.append(
                        ready.kind,
                        producer=ready.producer,
                        payload=ready.payload,
                        schema_version=SCHEMA_VERSION,
                        event_id=ready.id,
                        timestamp=ready.timestamp,
                    )
                elif ready.producer.category == "kernel":
                    batch.append_prompt(
                        payload=ready.payload,
                        schema_version=SCHEMA_VERSION,
                        event_id=ready.id,
                        timestamp=ready.timestamp,
                    )
                else:
                    batch.append_message(
                        producer=ready.producer,
                        payload=ready.payload,
                        cost=ready.cost,
                        schema_version=SCHEMA_VERSION,
                        event_id=ready.id,
                        timestamp=ready.timestamp,
                    )


def _usd(tokens: Counters, price: ModelPrice) -> float:
    return (
        tokens.input * price.input
        + tokens.output * price.output
        + tokens.cache_write * price.cache_write
        + tokens.cache_read * price.cache_read
    ) / 1e6


def _batches(events: Iterator[_Ready]) -> Iterator[list[_Ready]]:
    batch: list[_Ready] = []
    size = 0
    for ready in events:
        batch.append(ready)
        size += len(ready.payload)
        if len(batch) == _BATCH_EVENTS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def settle(writer: Writer, before: SessionInfo) -> bool:
    """Set the session's status to what the transcript's end says; tell whether that changed it.

    *before* is the session from before the import.
    """
    found = writer.transcript.turns.status
    was_running = before.status == SessionStatus.RUNNING
    if not writer.reaches_end:
        # An older copy, or the session has gone on elsewhere: this end is not the session's.
        if not writer.added or was_running:
            return False
        found = SessionStatus(before.status)
    elif not writer.added and not was_running:
        # Only records that make no events can be new, and they can tell that the turn ended.
        if before.status != SessionStatus.CANCELLED or found is not SessionStatus.COMPLETED:
            return False
        writer.session.set_status(SessionStatus.RUNNING)
    latest = writer.transcript.latest or writer.started_at
    if isinstance(before.ended_at, datetime):
        latest = max(latest, before.ended_at)
    writer.session.set_status(found, ended_at=latest)
    return True
