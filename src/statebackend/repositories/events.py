"""``events``: the append-only log."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from statebackend.repositories.pending import PendingEvent
from statebackend.repositories.statements import insert_rows, insert_text, table_of, text_of
from statebackend.schema import models
from statebackend.values import rows, timestamps
from statebackend.values.recorded import Event, EventHeader

_INSERT = insert_text(models.Event)
_table = table_of(models.Event)
_c = _table.c
_SELECT_SEQUENCE = text_of(select(_c.sequence).where(_c.id == bindparam("id")))
_HEADER_COLUMNS = [column for column in _table.columns if column is not _c.payload]


def insert(driver: sqlite3.Connection, pending: PendingEvent) -> int:
    """Add one row and return the sequence that SQLite gave it."""
    cursor = driver.execute(_INSERT, _row(pending))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def insert_many(driver: sqlite3.Connection, pending: Sequence[PendingEvent]) -> range:
    """Add several rows in one transaction and return the sequences that SQLite gave them."""
    insert_rows(driver, _INSERT, [_row(each) for each in pending])
    first, last = (
        driver.execute(_SELECT_SEQUENCE, (each.id,)).fetchone()[0]
        for each in (pending[0], pending[-1])
    )
    sequences = range(first, last + 1)
    assert len(sequences) == len(pending)  # AUTOINCREMENT leaves no gap within a transaction
    return sequences


def select_sequence(driver: sqlite3.Connection, event_id: str) -> int | None:
    """Return the sequence of the event with this id, None when there is none."""
    row = driver.execute(_SELECT_SEQUENCE, (event_id,)).fetchone()
    return None if row is None else int(row[0])


def _row(pending: PendingEvent) -> tuple[str | bytes, ...]:
    producer = pending.producer
    return (
        pending.id,
        timestamps.to_text(pending.timestamp),
        pending.kind,
        producer.category,
        producer.name,
        producer.version,
        pending.schema_version,
        pending.payload,
    )


def select_page(
    connection: Connection,
    *,
    after_sequence: int,
    kinds: Collection[str] | None,
    limit: int,
    limit_bytes: int,
    payloads: bool,
) -> Sequence[EventHeader]:
    """Return the next rows in sequence order.

    At most *limit* rows, fewer once their payloads reach *limit_bytes*; empty at the end.
    """
    columns = list(_table.columns) if payloads else _HEADER_COLUMNS
    query = (
        _of_kinds(select(*columns), kinds)
        .where(_c.sequence > after_sequence)
        .order_by(_c.sequence)
        .limit(limit)
    )
    page: list[EventHeader] = []
    size = 0
    build = rows.event if payloads else rows.event_header
    with connection.execute(query) as result:
        assert result.cursor is not None
        # The driver's own rows: SQLAlchemy's row objects are slower, and not needed here.
        driver_rows: Iterable[Sequence[Any]] = result.cursor  # type: ignore[assignment]
        for row in driver_rows:
            event = build(row)
            page.append(event)
            if isinstance(event, Event):
                size += len(event.payload)
                if size >= limit_bytes:
                    break
    return page


def select_by_id(connection: Connection, event_id: str) -> Event | None:
    """Return the event with this id, None when there is none."""
    row = connection.execute(select(_table).where(_c.id == event_id)).first()
    return None if row is None else rows.event(row)


def sequence_before_last(connection: Connection, kinds: Collection[str] | None, count: int) -> int:
    """Return the sequence before the last *count* events."""
    query = (
        _of_kinds(select(_c.sequence), kinds)
        .order_by(_c.sequence.desc())
        .limit(1)
        .offset(count - 1)
    )
    first = connection.execute(query).scalar()
    return 0 if first is None else int(first) - 1


def count_by_kind(connection: Connection) -> dict[str, int]:
    """Return the number of events of each kind, most frequent first."""
    query = select(_c.kind, func.count()).group_by(_c.kind)
    counted: Counter[str] = Counter()
    for kind, count in connection.execute(query):
        counted[rows.as_text(kind)] += int(count)  # two foreign words may decode to the same text
    return dict(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))


def _of_kinds(query: Select[Any], kinds: Collection[str] | None) -> Select[Any]:
    if kinds is None:
        return query
    if len(kinds) == 1:
        return query.where(_c.kind == next(iter(kinds)))
    # An expression keeps SQLite off the index of kinds, where it would collect and sort the entries
    # of all kinds again for every page.
    return query.where(_c.kind.concat("").in_(sorted(kinds)))
