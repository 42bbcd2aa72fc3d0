"""SQL text compiled once from the mapped tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, Table, Update, bindparam
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import DeclarativeBase

_DIALECT = sqlite.dialect(paramstyle="qmark")
# Rows a statement: 64 stay below the parameter limit of every SQLite version. A statement of fewer
# than 16 rows is compiled for its exact number, so few statements are compiled.
_ROWS = (64, 16)


def table_of(model: type[DeclarativeBase]) -> Table:
    """Return the table that *model* is mapped to."""
    assert isinstance(model.__table__, Table)
    return model.__table__


def insert_text(model: type[DeclarativeBase], *, ignore_known: bool = False) -> str:
    """Return an INSERT for every column but ``sequence``, with one ``?`` each, in table order.

    With *ignore_known*, a row whose key exists stays as it is.
    """
    table = table_of(model)
    columns = [column.name for column in table.columns if column.name != "sequence"]
    statement = sqlite.insert(table).values({name: bindparam(name) for name in columns})
    if ignore_known:
        statement = statement.on_conflict_do_nothing()
    compiled = statement.compile(dialect=_DIALECT)
    assert compiled.positiontup == columns
    return str(compiled)


def insert_rows(
    driver: sqlite3.Connection, insert: str, rows: Sequence[tuple[object, ...]]
) -> None:
    """Add *rows* in their order; *insert* is an :func:`insert_text`.

    One statement for many rows takes two thirds of the time of a statement each. If a row is
    refused, earlier ones may be inserted: the caller rolls its transaction back.
    """
    at = 0
    while remaining := len(rows) - at:
        count = next((count for count in _ROWS if count <= remaining), remaining)
        values = [value for row in rows[at : at + count] for value in row]
        driver.execute(_repeat_values(insert, count), values)
        at += count


@cache
def _repeat_values(insert: str, count: int) -> str:
    head, values, marks = insert.partition(" VALUES ")
    return head + values + ", ".join([marks] * count)


def text_of(query: Select[Any] | Update) -> str:
    """Return the text of a statement, with ``?`` for its parameters."""
    return str(query.compile(dialect=_DIALECT))
