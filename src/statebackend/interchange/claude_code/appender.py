"""Appends the events of a transcript that its session does not have yet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from statebackend.interchange.claude_code.drafts import (
    EventDraft,
    MessageDraft,
    SourceLine,
    Transcript,
)
from statebackend.interchange.claude_code.prices import ModelPrice
from statebackend.interchange.claude_code.record_fields import Counters
from statebackend.interchange.claude_code.source_ids import RecordKeys, event_id, message_group
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
class StoredEvents:
    """The events that earlier imports stored in a session.

    ``lines`` and ``spent`` are, for each model's message, its stored lines and its counters in the
    ledger. ``last_id`` is the last event's id, ``last_lines`` its lines if it is a model's message.
    """

    ids: set[str] = field(default_factory=set)
    lines: dict[str, set[str]] = field(default_factory=dict)
    spent: dict[str, Counters] = field(default_factory=dict)
    last_id: str | None = None
    last_lines: set[str] = field(default_factory=set)


def read_stored(session: Session) -> StoredEvents:
    """Read what earlier imports stored in *session*."""
    stored = StoredEvents()
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


def _read_message(stored: StoredEvents, keys: RecordKeys, event: Event, cost: Cost | None) -> None:
    lines = [
        line for line in read_objects(event.payload.split(b"\n")) if isinstance(line, SourceObject)
    ]
    if not lines:
        return
    group = message_group(lines[0].value, lines[0].data)
    line_keys = {
        key for line in lines if (key := keys.key(line.value, line.data, group)) is not None
    }
    stored.lines.setdefault(group, set()).update(line_keys)
    if event.id == stored.last_id:
        stored.last_lines = line_keys
    if cost is not None:
        stored.spent[group] = stored.spent.get(group, Counters()).plus_cost(cost)


@dataclass(frozen=True, slots=True)
class _ImportedEvent:
    """One event with all its values."""

    id: str
    kind: EventKind
    producer: Producer
    payload: bytes
    timestamp: datetime
    cost: Cost | None = None
    item: PlanItem | None = None


@dataclass(slots=True)
class Appender:
    """Appends a transcript's missing events to its session, in batches.

    ``file`` is the descriptor that payloads are read from. After :meth:`append_missing` the
    counters hold what was appended; ``reaches_end`` means that the last event that the session
    had before is in this transcript, as only then the transcript's end is the session's.
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

    def append_missing(self) -> None:
        """Append the missing events; a session that has ended is re-opened first."""
        stored = read_stored(self.session)
        self.reaches_end = stored.last_id is None
        ended = self.session.info.status != SessionStatus.RUNNING
        for batch in _batches(self._missing(stored)):
            if ended:
                self.session.set_status(SessionStatus.RUNNING)
                ended = False
            self._append(batch)
            self.added.update(str(event.kind) for event in batch)

    def _missing(self, stored: StoredEvents) -> Iterator[_ImportedEvent]:
        for draft in self.transcript.drafts:
            if isinstance(draft, MessageDraft):
                event = self._pending_message(draft, stored)
            else:
                event = self._pending_other(draft, stored)
            if event is not None:
                yield event

    def _pending_other(self, draft: EventDraft, stored: StoredEvents) -> _ImportedEvent | None:
        line = draft.line
        identity = event_id(self.source_id, line.key, draft.part)
        self.reaches_end |= identity == stored.last_id
        if identity in stored.ids:
            return None
        payload, timestamp = self._read_lines([line]), line.timestamp or self.started_at
        return _ImportedEvent(
            identity, draft.kind, draft.producer, payload, timestamp, item=draft.item
        )

    def _pending_message(self, draft: MessageDraft, stored: StoredEvents) -> _ImportedEvent | None:
        """Return the message, or the lines that it gained since the last import."""
        known = stored.lines.get(draft.group, set())
        lines = [line for line in draft.lines if line.key not in known]
        if stored.last_lines and stored.last_lines <= {line.key for line in draft.lines}:
            self.reaches_end = True
        if not lines:
            return None
        first = lines[0]
        return _ImportedEvent(
            event_id(self.source_id, first.key, "message"),
            EventKind.MESSAGE,
            Producer("model", _PROVIDER, first.version),
            self._read_lines(lines),
            first.timestamp or self.started_at,
            cost=self._pending_cost(draft, stored.spent.get(draft.group)),
        )

    def _pending_cost(self, draft: MessageDraft, spent: Counters | None) -> Cost | None:
        if draft.usage is None:
            return None
        added, lower = draft.usage.increase_since(spent or Counters())
        self.odd_counters += draft.odd_counters + lower
        if spent is not None and added == Counters():
            return None  # the ledger has all of it
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

    def _read_lines(self, lines: list[SourceLine]) -> bytes:
        return b"\n".join(self._read_line(line) for line in lines)

    def _read_line(self, line: SourceLine) -> bytes:
        data = os.pread(self.file, line.size, line.start)
        if len(data) != line.size:
            raise OSError("became shorter while it was read")
        return data

    def _append(self, events: list[_ImportedEvent]) -> None:
        with self.session.batch() as batch:
            for event in events:
                values: dict[str, Any] = {
                    "payload": event.payload,
                    "schema_version": SCHEMA_VERSION,
                    "event_id": event.id,
                    "timestamp": event.timestamp,
                }
                if event.item is not None:
                    batch.append_plan(producer=event.producer, items=[event.item], **values)
                elif event.kind is not EventKind.MESSAGE:
                    batch.append(event.kind, producer=event.producer, **values)
                elif event.producer.category == "kernel":
                    batch.append_prompt(**values)
                else:
                    batch.append_message(producer=event.producer, cost=event.cost, **values)


def _usd(tokens: Counters, price: ModelPrice) -> float:
    prices = (price.input, price.output, price.cache_write, price.cache_read)
    return sum(count * usd for count, usd in zip(tokens, prices, strict=True)) / 1e6


def _batches(events: Iterator[_ImportedEvent]) -> Iterator[list[_ImportedEvent]]:
    batch: list[_ImportedEvent] = []
    size = 0
    for event in events:
        batch.append(event)
        size += len(event.payload)
        if len(batch) == _BATCH_EVENTS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def set_final_status(appender: Appender, before: SessionInfo) -> bool:
    """Set the session's status from the end of the transcript; return whether that changed it.

    *before* is the session before the import.
    """
    status = appender.transcript.turns.status
    was_running = before.status == SessionStatus.RUNNING
    if not appender.reaches_end:
        # An older copy, or the session was continued elsewhere: this end is not the session's.
        if not appender.added or was_running:
            return False
        status = SessionStatus(before.status)
    elif not appender.added and not was_running:
        # Only records without events can be new; they can still show that the turn ended.
        if before.status != SessionStatus.CANCELLED or status is not SessionStatus.COMPLETED:
            return False
        appender.session.set_status(SessionStatus.RUNNING)
    latest = appender.transcript.latest or appender.started_at
    if isinstance(before.ended_at, datetime):
        latest = max(latest, before.ended_at)
    appender.session.set_status(status, ended_at=latest)
    return True
