"""Which table a record belongs to: the number and the types of its values tell the five apart."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from statebackend.recovery.salvage import cells

TABLES = ("events", "session_meta", "cost_ledger", "plan_items", "producers")
SEQUENCED = ("events", "cost_ledger", "plan_items")

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What stands for bytes that are not UTF-8."""
_EMPTY = {0, 8, 9}
# Serial types as they are stored: a text or blob, an integer, a real, nothing.
_LONG = rb"(?:[\x0c-\x7f]|[\x80-\xff]{1,3}[\x00-\x7f])"
_INTEGER = rb"[\x01-\x06\x08\x09]"
_PATTERNS = {"TEXT": _LONG, "BLOB": _LONG, "INTEGER": _INTEGER, "REAL": rb"[\x01-\x09]"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its declared type, whether it may be NULL, and whether a row may lack it."""

    name: str
    kind: str
    nullable: bool
    optional: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """A table as its rows are stored; ``key`` is the column that the row number stands for."""

    table: str
    columns: tuple[Column, ...]
    key: int | None
    least: int

    def fits(self, types: Sequence[int]) -> bool:
        """Tell whether a record of these serial types is a row of the table.

        One value that the column may not have is let pass: such a row is set aside, not overlooked.
        """
        if not self.least <= len(types) <= len(self.columns):
            return False
        wrong = 0
        for at, (column, serial_type) in enumerate(zip(self.columns, types, strict=False)):
            if at == self.key:
                if serial_type not in _EMPTY:  # the row's number stands for it
                    return False
            elif serial_type == 0:
                wrong += not column.nullable
            else:
                wrong += not _suits(column.kind, serial_type)
        return wrong <= 1

    @cache  # noqa: B019 - of five tables
    def pattern(self) -> re.Pattern[bytes]:
        """Return what the header of a stored row looks like, to find one among other bytes."""
        parts = [rb"[\x03-\x40]"]
        for at, column in enumerate(self.columns):
            part = rb"\x00" if at == self.key else _PATTERNS[column.kind]
            if at >= self.least:
                part = b"(?:" + part + b"|\x00)?"
            elif at != self.key and column.nullable:
                part = b"(?:" + part + b"|\x00)"
            parts.append(part)
        return re.compile(b"(?=" + b"".join(parts) + b")", re.DOTALL)


def shapes(driver: sqlite3.Connection) -> tuple[Shape, ...]:
    """Return the shapes of the tables of *driver*, a session file of some version."""
    return tuple(_shape(driver, table) for table in TABLES)


def _shape(driver: sqlite3.Connection, table: str) -> Shape:
    found = driver.execute(f"PRAGMA table_info({table})").fetchall()
    columns = []
    key = None
    least = 0
    for at, name, kind, not_null, default, in_key in found:
        if table in SEQUENCED and in_key:
            key = at
        optional = not in_key and (not not_null or default is not None)
        if not optional:
            least = at + 1
        columns.append(Column(name, kind.upper(), not not_null and not in_key, optional))
    return Shape(table, tuple(columns), key, least)


def _suits(kind: str, serial_type: int) -> bool:
    if kind in {"TEXT", "BLOB"}:
        # Text and blob of one length differ by a bit, and the column says which is meant.
        return serial_type >= 12
    if kind == "INTEGER":
        return serial_type in {1, 2, 3, 4, 5, 6, 8, 9}
    return serial_type in {1, 2, 3, 4, 5, 7, 8, 9}  # a real is stored as an integer of 48 bits


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it will be inserted, by column.

    ``repaired`` says what had to be put right, ``marred`` names the texts that hold U+FFFD for what
    was not UTF-8. ``unfit`` says why it cannot go into its table, None if it can.
    """

    shape: Shape
    values: tuple[Any, ...]
    repaired: tuple[str, ...]
    unfit: str | None
    marred: tuple[str, ...] = ()


def row(shape: Shape, rowid: int, types: tuple[int, ...], record: bytes) -> Row:
    """Return the row that *record* holds."""
    found = cells.values(record, types)
    repaired: list[str] = []
    marred: list[str] = []
    unfit = None
    for at, (column, value) in enumerate(zip(shape.columns, found, strict=False)):
        if at == shape.key:
            found[at] = rowid
        elif value is None:
            if not column.nullable:
                unfit = f"{column.name} is NULL"
        elif not _suits(column.kind, types[at]):
            unfit = f"{column.name} is of another type"
        elif column.kind == "TEXT":
            found[at], sound = _text(value)
            if not sound or types[at] % 2 == 0:
                (repaired if sound else marred).append(column.name)
        elif column.kind == "BLOB" and types[at] % 2:
            repaired.append(column.name)
        elif column.kind == "REAL" and value != value:  # noqa: PLR0124 - only NaN differs from itself
            found[at], unfit = None, f"{column.name} is not a number"
    return Row(shape, tuple(found), tuple(repaired), unfit, tuple(marred))


def _text(raw: bytes) -> tuple[str, bool]:
    try:
        return raw.decode(), True
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), False
