"""``plan_items``: what was decided about each planned call."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Row, select

from statebackend.repositories.statements import insert_rows, insert_text, table_of
from statebackend.schema import models
from statebackend.values import rows
from statebackend.values.recorded import PlanEntry, PlanItem
from statebackend.values.tables import COLUMNS

_INSERT = insert_text(models.PlanItem)
_table = table_of(models.PlanItem)
_c = _table.c
_FIELDS = COLUMNS["plan_items"][2:]
_values = attrgetter(*_FIELDS)


def insert(driver: sqlite3.Connection, plans: Iterable[tuple[int, Iterable[PlanItem]]]) -> None:
    """Add the rows of each plan's sequence and items, in order."""
    insert_rows(
        driver,
        _INSERT,
        [(sequence, *_values(item)) for sequence, items in plans for item in items],
    )


def select_page(
    connection: Connection, *, after_sequence: int, decision: str | None, limit: int
) -> Sequence[PlanEntry]:
    """Return the next rows in sequence order, empty at the end."""
    query = select(_table).where(_c.sequence > after_sequence).order_by(_c.sequence).limit(limit)
    if decision is not None:
        query = query.where(_c.decision == decision)
    return [_entry(row) for row in connection.execute(query)]


def select_of_event(connection: Connection, event_sequence: int) -> tuple[PlanItem, ...]:
    """Return the items of one plan, in order."""
    query = select(_table).where(_c.event_sequence == event_sequence).order_by(_c.sequence)
    return tuple(_entry(row).item for row in connection.execute(query))


def _entry(row: Row[Any]) -> PlanEntry:
    texts = map(rows.as_text, row[2:])
    return PlanEntry(
        row.sequence, row.event_sequence, PlanItem(**dict(zip(_FIELDS, texts, strict=True)))
    )
