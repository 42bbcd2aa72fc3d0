"""How rows and their texts are stored: number and types of the values show the table."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from statebackend.recovery.salvage import cells
from statebackend.values.recorded import EventKind, ProducerCategory
from statebackend.values.tables import COLUMNS, SEQUENCED

REFERENCES = {
    "cost_ledger": "event_sequence",
    "plan_items": "event_sequence",
    "producers": "first_seen_sequence",
}
"""The column of each table that names the sequence of an event."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Stands for bytes that are not UTF-8."""
MAX_DAMAGED_CHARACTERS = 4
_LEAST_ID_CHARACTERS = 8
_WORDS = {word.value.encode() for words in (EventKind, ProducerCategory) for word in words}

_EMPTY = {0, 8, 9}
# Serial types as they are stored: a text or blob, an integer, a real, nothing.
_LONG = rb"(?:[\x0c-\x7f]|[\x80-\xff]{1,3}[\x00-\x7f])"
_INTEGER = rb"[\x01-\x06\x08\x09]"
_PATTERNS = {"TEXT": _LONG, "BLOB": _LONG, "INTEGER": _INTEGER, "REAL": rb"[\x01-\x09]"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its declared type, and whether it may be NULL."""

    name: str
    kind: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """A table as its rows are stored.

    ``key`` is the position of the column that is the rowid, ``least`` the number of columns that
    every row has.
    """

    table: str
    columns: tuple[Column, ...]
    key: int | None
    least: int

    def fits(self, types: Sequence[int]) -> bool:
        """Return whether a record of these serial types is a row of the table.

        One value of a wrong type is accepted: the row then goes to the side file.
        """
        if not self.least <= len(types) <= len(self.columns):
            return False
        wrong = 0
        for at, (column, serial_type) in enumerate(zip(self.columns, types, strict=False)):
            if at == self.key:
                if serial_type not in _EMPTY:  # the rowid stands for it
                    return False
            elif serial_type == 0:
                wrong += not column.nullable
            else:
                wrong += not _fits_kind(column.kind, serial_type)
        return wrong <= 1

    @cache  # noqa: B019 - of five tables
    def pattern(self) -> re.Pattern[bytes]:
        """Return a pattern of the record header of a stored row."""
        parts = [rb"[\x03-\x40]"]
        for at, column in enumerate(self.columns):
            part = rb"\x00" if at == self.key else _PATTERNS[column.kind]
            if at != self.key and (column.nullable or at >= self.least):
                part = b"(?:" + part + b"|\x00)"
            parts.append(part + b"?" if at >= self.least else part)
        return re.compile(b"(?=" + b"".join(parts) + b")", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Row:
    """A row to insert, its values in the order of the columns.

    ``repaired`` says what the salvage corrected, ``not_utf8`` names the texts that hold U+FFFD for
    bytes that were not UTF-8. ``unfit`` says why the table cannot hold the row, None if it can.
    """

    shape: Shape
    values: tuple[Any, ...]
    repaired: tuple[str, ...]
    unfit: str | None
    not_utf8: tuple[str, ...] = ()

    @property
    def event_id(self) -> bytes:
        """The id of an event as it is stored, empty for another row."""
        return str(self.values[1]).encode() if self.shape.table == "events" else b""

    def with_sequence(self, sequence: int) -> Row:
        """Return the row under another sequence."""
        if self.values[0] == sequence:
            return self
        repaired = (*self.repaired, f"sequence (was {self.values[0]})")
        return replace(self, values=(sequence, *self.values[1:]), repaired=repaired)


def read_shapes(driver: sqlite3.Connection) -> dict[str, Shape]:
    """Return the shape of each table of *driver*, a session file of some version."""
    return {table: _read_shape(driver, table) for table in COLUMNS}


def read_row(shape: Shape, cell: cells.Cell, record: bytes) -> Row:
    """Return the row in *record*, the whole one of *cell*."""
    types = cell.types
    values = cells.read_values(record, types)
    repaired: list[str] = []
    not_utf8: list[str] = []
    unfit = None
    for at, (column, value) in enumerate(zip(shape.columns, values, strict=False)):
        if at == shape.key:
            values[at] = cell.rowid
        elif value is None:
            if not column.nullable:
                unfit = f"{column.name} is NULL"
        elif not _fits_kind(column.kind, types[at]):
            unfit = f"{column.name} is of another type"
        elif column.kind == "TEXT":
            values[at] = value.decode(errors="replace")
            valid = values[at].encode() == value
            if not valid or types[at] % 2 == 0:
                (repaired if valid else not_utf8).append(column.name)
        elif column.kind == "BLOB" and types[at] % 2:
            repaired.append(column.name)
        elif column.kind == "REAL" and value != value:  # noqa: PLR0124 - only NaN differs from itself
            values[at], unfit = None, f"{column.name} is not a number"
    return Row(shape, tuple(values), tuple(repaired), unfit, tuple(not_utf8))


def is_sequence(value: Any) -> bool:
    """Return whether *value* can be a sequence."""
    return isinstance(value, int) and 0 < value < 1 << 63


def _read_shape(driver: sqlite3.Connection, table: str) -> Shape:
    columns: list[Column] = []
    key, least = None, 0
    for at, name, kind, not_null, default, in_key in driver.execute(f"PRAGMA table_info({table})"):
        if table in SEQUENCED and in_key:
            key = at
        if in_key or (not_null and default is None):
            least = at + 1
        columns.append(Column(name, kind.upper(), not not_null and not in_key))
    return Shape(table, tuple(columns), key, least)


def _fits_kind(kind: str, serial_type: int) -> bool:
    if kind in {"TEXT", "BLOB"}:
        # Text and blob of one length differ by a bit; the column says which is meant.
        return serial_type >= 12
    if kind == "INTEGER":
        return serial_type in {1, 2, 3, 4, 5, 6, 8, 9}
    return serial_type in {1, 2, 3, 4, 5, 7, 8, 9}  # a real is stored as an integer of 48 bits


def is_word(text: bytes) -> bool:
    """Return whether the text of an index entry is a kind of event or a producer's category."""
    return text in _WORDS


def is_id(text: bytes) -> bool:
    """Return whether the text of an index entry is an event's id."""
    return len(text) >= _LEAST_ID_CHARACTERS and not is_word(text)


def almost_equal(text: bytes | str, other: bytes | str) -> bool:
    """Return whether two texts differ in a few damaged characters at most."""
    differing = sum(a != b for a, b in zip(text, other, strict=False))
    return len(text) == len(other) and differing <= MAX_DAMAGED_CHARACTERS
