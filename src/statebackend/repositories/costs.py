"""``cost_ledger``: the spend of each model turn."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, select

from statebackend.repositories.statements import insert_rows, insert_text, table_of
from statebackend.schema import models
from statebackend.values import rows
from statebackend.values.recorded import Cost, CostEntry, CostTotals

_INSERT = insert_text(models.CostLedger)
_table = table_of(models.CostLedger)
_c = _table.c
_values = attrgetter("provider_name", "model_id", *rows.COUNTERS)
_TOKENS = _c.input_tokens + _c.output_tokens + _c.cache_write_tokens + _c.cache_read_tokens


def insert(driver: sqlite3.Connection, costs: Iterable[tuple[int, Cost]]) -> None:
    """Add one row for each message's sequence and cost, the numbers exactly as given."""
    insert_rows(driver, _INSERT, [_row(sequence, cost) for sequence, cost in costs])


def insert_one(driver: sqlite3.Connection, event_sequence: int, cost: Cost) -> None:
    """Add the row of one message."""
    driver.execute(_INSERT, _row(event_sequence, cost))


def _row(event_sequence: int, cost: Cost) -> tuple[int | str | float, ...]:
    # float, as the driver refuses an int over 63 bits
    return (event_sequence, *_values(cost), float(cost.cost_usd))


def select_page(connection: Connection, *, after_sequence: int, limit: int) -> Sequence[CostEntry]:
    """Return the next rows in sequence order, empty at the end."""
    query = select(_table).where(_c.sequence > after_sequence).order_by(_c.sequence).limit(limit)
    return [_entry(row) for row in connection.execute(query)]


def select_of_event(connection: Connection, event_sequence: int) -> Cost | None:
    """Return the cost of one message, None when it has no row."""
    row = connection.execute(select(_table).where(_c.event_sequence == event_sequence)).first()
    return None if row is None else _entry(row).cost


def select_totals(connection: Connection) -> CostTotals:
    """Return the sums over all rows."""
    halves = [
        func.sum(half)
        for name in rows.COUNTERS
        for half in (_c[name].bitwise_rshift(32), _c[name].bitwise_and(0xFFFFFFFF))
    ]
    query = select(func.count(), func.sum(_c.cost_usd), unpriced_count(), *halves)
    return rows.cost_totals(tuple(connection.execute(query).one()))


def unpriced_count() -> ColumnElement[int]:
    """Return the count of the rows that hold tokens but cost 0.0."""
    return func.count().filter(_c.cost_usd == 0, _TOKENS > 0)


def _entry(row: Row[Any]) -> CostEntry:
    return CostEntry(
        row.sequence,
        row.event_sequence,
        Cost(
            provider_name=rows.as_text(row.provider_name),
            model_id=rows.as_text(row.model_id),
            cost_usd=row.cost_usd,
            **{name: getattr(row, name) for name in rows.COUNTERS},
        ),
    )
