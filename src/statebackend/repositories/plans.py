"""``plan_items``: what was decided about each planned call."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from statebackend.repositories.statements import insert_rows, insert_text, table_of
from statebackend.schema import models
from statebackend.values import rows
from statebackend.values.recorded import PlanEntry, PlanItem

_INSERT = insert_text(models.PlanItem)
_table = table_of(models.PlanItem)
_c = _table.c


def insert(driver: sqlite3.Connection, plans: Iterable[tuple[int, Iterable[PlanItem]]]) -> None:
    """Add the rows of each plan's sequence and items, in order."""
    insert_rows(
        driver,
        _INSERT,
        [
            (
                sequence,
                item.turn_id,
                item.tool_call_id,
                item.provider_name,
                item.tool_name,
                item.decision,
                item.decided_by,
            )
            for sequence, items in plans
            for item in items
        ],
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
    return PlanEntry(
        row.sequence,
        row.event_sequence,
        PlanItem(
            turn_id=rows.as_text(row.turn_id),
            tool_call_id=rows.as_text(row.tool_call_id),
            provider_name=rows.as_text(row.provider_name),
            tool_name=rows.as_text(row.tool_name),
            decision=rows.as_text(row.decision),
            decided_by=rows.as_text(row.decided_by),
        ),
    )
