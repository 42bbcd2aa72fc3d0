"""SQL text compiled once from the mapped tables."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Insert, Select, Table, Update, bindparam
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import DeclarativeBase

_DIALECT = sqlite.dialect(paramstyle="qmark")


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


def text_of(query: Select[Any] | Update) -> str:
    """Return the text of a statement, with ``?`` for its parameters."""
    return str(query.compile(dialect=_DIALECT))
