"""What both sides write: events prepared as values for ours and as rows for the bare loop."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from statebackend import Cost, EventKind, Producer, Session, StateBackend
from statebackend.values.ids import event_id_from

START = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = Producer("model", "sample-model", "1.4.0")
TOOL = Producer("tool", "shell", "2.1.0")
# Short, so that the bytes, which cost both sides the same, do not hide what we add.
PAYLOAD_BYTES = 500
TABLES = ("events", "session_meta", "cost_ledger", "plan_items", "producers")


@dataclass(frozen=True, slots=True)
class Sample:
    """One event: the arguments for our methods, and the same as rows of columns.

    ``event_row`` leaves out ``sequence``; ``cost_row`` leaves out ``sequence`` and
    ``event_sequence``, and is empty for an event without cost.
    """

    kind: EventKind
    producer: Producer
    payload: bytes
    cost: Cost | None
    event_id: str
    timestamp: datetime
    event_row: tuple[str | bytes, ...]
    cost_row: tuple[str | int | float, ...]


def append_each(session: Session, samples: Sequence[Sample]) -> None:
    """Append messages with their cost, one by one."""
    for one in samples:
        session.append_message(
            producer=one.producer,
            payload=one.payload,
            cost=one.cost,
            event_id=one.event_id,
            timestamp=one.timestamp,
        )


def messages(seed: int = 0) -> Iterator[Sample]:
    """Return an endless, seeded stream of messages that each have a cost row."""
    rng = random.Random(seed)
    return (_message(rng, number) for number in count())


def mixed(seed: int = 0) -> Iterator[Sample]:
    """Return an endless, seeded stream of messages with cost, tool calls and results in turn."""
    rng = random.Random(seed)
    kinds = (EventKind.MESSAGE, EventKind.TOOL_CALL, EventKind.TOOL_RESULT)
    for number in count():
        kind = kinds[number % 3]
        yield (
            _message(rng, number)
            if kind is EventKind.MESSAGE
            else _sample(rng, number, kind, TOOL, None)
        )


def text(moment: datetime) -> str:
    """Return the stored form of a time in UTC."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(rng: random.Random, number: int) -> Sample:
    cost = Cost(
        provider_name="sample-provider",
        model_id="sample-model-large",
        input_tokens=rng.randrange(20_000),
        output_tokens=rng.randrange(2_000),
        cache_write_tokens=rng.randrange(5_000),
        cache_read_tokens=rng.randrange(100_000),
        cost_usd=rng.randrange(1, 100_000) / 1e6,
    )
    return _sample(rng, number, EventKind.MESSAGE, MODEL, cost)


def _sample(
    rng: random.Random, number: int, kind: EventKind, producer: Producer, cost: Cost | None
) -> Sample:
    timestamp = START + timedelta(milliseconds=37 * number)
    event_id = event_id_from(int(timestamp.timestamp() * 1000), rng.randbytes(10))
    payload = rng.randbytes(PAYLOAD_BYTES)
    source = (producer.category, producer.name, producer.version)
    return Sample(
        kind,
        producer,
        payload,
        cost,
        event_id,
        timestamp,
        (event_id, text(timestamp), kind.value, *source, "1", payload),
        () if cost is None else _cost_row(cost),
    )


def _cost_row(cost: Cost) -> tuple[str | int | float, ...]:
    return (
        cost.provider_name,
        cost.model_id,
        cost.input_tokens,
        cost.output_tokens,
        cost.cache_write_tokens,
        cost.cache_read_tokens,
        cost.cost_usd,
    )


def new_session(backend: StateBackend, samples: list[Sample]) -> str:
    """Create a session through the API that holds *samples*, close it and return its id."""
    with backend.create("default", started_at=START) as session:
        if samples:
            write_batch(session, samples)
        return session.session_id


def write_batch(session: Session, samples: list[Sample]) -> None:
    """Append *samples* through the API, in one transaction."""
    with session.batch() as batch:
        for one in samples:
            if one.cost is None:
                batch.append(
                    one.kind,
                    producer=one.producer,
                    payload=one.payload,
                    schema_version="1",
                    event_id=one.event_id,
                    timestamp=one.timestamp,
                )
            else:
                batch.append_message(
                    producer=one.producer,
                    payload=one.payload,
                    cost=one.cost,
                    event_id=one.event_id,
                    timestamp=one.timestamp,
                )


def stored_rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return every row of a session file, by table."""
    driver = sqlite3.connect(path)
    try:
        return {
            name: driver.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall()
            for name in TABLES
        }
    finally:
        driver.close()
