"""SQL text compiled once from the mapped tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Insert, Select, Table, Update, bindparam
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import DeclarativeBase

_DIALECT = sqlite.dialect(paramstyle="qmark")
# Rows of one statement: 64 have fewer parameters than any SQLite allows, and with exact numbers
# only for less than 16, few statements are compiled.
_ROWS = (64, 16)


def table_of(model: type[DeclarativeBase]) -> Table:
    """Return the table that *model* is mapped to."""
    assert isinstance(model.__table__, Table)
    return model.__table__


def insert_text(model: type[DeclarativeBase], *, ignore_known: bool = False) -> str:
    """Return an INSERT for every column but ``sequence``, with one ``?`` each, in table order.

    With *ignore_known*, a row whose key exists already is left as it is.
    """
    table = table_of(model)
    columns = [column.name for column in table.columns if column.name != "sequence"]
    statement: Insert = table.insert().values({name: bindparam(name) for name in columns})
    if ignore_known:
        statement = (
            sqlite.insert(table)
            .values({name: bindparam(name) for name in columns})
            .on_conflict_do_nothing()
        )
    compiled = statement.compile(dialect=_DIALECT)
    assert compiled.positiontup == columns
    return str(compiled)


def insert_rows(
    driver: sqlite3.Connection, insert: str, rows: Sequence[tuple[object, ...]]
) -> None:
    """Add *rows* in their order; *insert* is an :func:`insert_text`.

    Several go into one statement, which takes SQLite two thirds of the time of one each. If one is
    refused, some may be in already: it is for a transaction that is then rolled back.
    """
    at = 0
    while left := len(rows) - at:
        count = next((count for count in _ROWS if count <= left), left)
        values = [value for row in rows[at : at + count] for value in row]
        driver.execute(_of_rows(insert, count), values)
        at += count


@cache
def _of_rows(insert: str, count: int) -> str:
    head, values, marks = insert.partition(" VALUES ")
    return head + values + ", ".join([marks] * count)


def text_of(query: Select[Any] | Update) -> str:
    """Return the text of a statement, with ``?`` for its parameters."""
    return str(query.compile(dialect=_DIALECT))
