"""The new file that saved rows go into, and the side file for rows that do not fit."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from statebackend.recovery.salvage.shapes import Row, Shape, read_shapes
from statebackend.values.tables import TABLES

MAX_NOTES = 100
_NOT_UTF8 = "{} holds U+FFFD for what was not UTF-8"


class Target:
    """A new session file being filled, without foreign keys: a ledger row outlives its event.

    By table: ``routes`` counts the saved rows by what saved them, ``repaired`` those with a
    corrected value, ``doubtful`` those with a value that may be wrong, ``set_aside`` those in the
    side file; ``missing_ranges`` are the sequences of lost rows. ``derived`` names the columns of
    ``session_meta`` that were derived; ``notes`` holds at most 100 lines. Events with the id of
    another event are ``contested``, with their route, until :meth:`release_contested`.
    """

    def __init__(self, path: Path, aside: Path, image: bytes) -> None:
        self.path = path
        self._aside = aside
        self._aside_file: TextIO | None = None
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # despite the umask
            file.write(image)
        self.driver = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "foreign_keys = OFF"):
            self.driver.execute(f"PRAGMA {pragma}")
        self.driver.execute("BEGIN")
        self.shapes = read_shapes(self.driver)
        self.routes: dict[str, Counter[str]] = {table: Counter() for table in TABLES}
        self.repaired: Counter[str] = Counter()
        self.doubtful: Counter[str] = Counter()
        self.set_aside: Counter[str] = Counter()
        self.missing_ranges: dict[str, tuple[tuple[int, int], ...]] = {}
        self.derived: tuple[str, ...] = ()
        self.notes: list[str] = []
        self.contested: list[tuple[Row, str]] = []
        self._holds_back = True
        self._doubts: set[str] = set()
        self._repaired_events: set[int] = set()

    def insert(self, row: Row, route: str, *, only_if_missing: bool = False) -> None:
        """Add *row*, unless the same row is there.

        A row that contradicts another goes to the side file, or, with *only_if_missing*, nowhere.
        """
        table = row.shape.table
        if row.unfit:
            if not only_if_missing:
                self.set_row_aside(row, row.unfit)
            return
        try:
            self.driver.execute(_insert_statement(row.shape, len(row.values)), row.values)
        except sqlite3.IntegrityError as error:
            if only_if_missing or self._has_same(row):
                return
            if self._holds_back and table == "events" and self.event_id(row.values[0]) is None:
                self.contested.append((row, route))
            else:
                self.set_row_aside(row, f"another row contradicts it ({error})")
            return
        self.routes[table][route] += 1
        self._note_values(row)

    def release_contested(self) -> list[tuple[Row, str]]:
        """Return the contested events, to be inserted now; no event is held back any more."""
        contested, self.contested, self._holds_back = self.contested, [], False
        return contested

    def remove(self, table: str, sequence: int, why: str) -> None:
        """Move a row to the side file, if its table has sequences."""
        shape = self.shapes[table]
        if shape.key is None:
            return
        where = f"FROM {table} WHERE sequence = ?"
        values = self.driver.execute(f"SELECT * {where}", (sequence,)).fetchone()
        if values is not None:
            self.driver.execute(f"DELETE {where}", (sequence,))
            self.routes[table][self.routes[table].most_common(1)[0][0]] -= 1  # most likely
            self.set_row_aside(Row(shape, values, (), None), why)

    def set_row_aside(self, row: Row, why: str) -> None:
        """Write *row* to the side file, as a line of JSON; the first one creates the file."""
        if self._aside_file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._aside_file = os.fdopen(os.open(self._aside, flags, 0o600), "w", encoding="utf-8")
        names = (column.name for column in row.shape.columns)
        values = dict(zip(names, map(_to_json, row.values), strict=False))
        line = {"table": row.shape.table, "why": why, "row": values}
        self._aside_file.write(json.dumps(line) + "\n")
        self.set_aside[row.shape.table] += 1

    def has(self, shape: Shape, sequence: int) -> bool:
        """Return whether a row with this sequence is there."""
        query = f"SELECT 1 FROM {shape.table} WHERE sequence = ?"
        return self.driver.execute(query, (sequence,)).fetchone() is not None

    def event_id(self, sequence: int) -> str | None:
        """Return the id of an event, None if it is not there."""
        query = "SELECT id FROM events WHERE sequence = ?"
        row = self.driver.execute(query, (sequence,)).fetchone()
        return None if row is None else str(row[0])

    def _has_same(self, row: Row) -> bool:
        shape = row.shape
        keys = range(3 if shape.table == "producers" else 1)
        where = " AND ".join(f"{shape.columns[at].name} IS ?" for at in keys)
        values = self.driver.execute(
            f"SELECT * FROM {shape.table} WHERE {where}", [row.values[at] for at in keys]
        ).fetchone()
        return values is not None and tuple(values[: len(row.values)]) == row.values

    def highest(self, table: str) -> int:
        """Return the highest sequence in *table*, 0 when it is empty."""
        (highest,) = self.driver.execute(f"SELECT max(sequence) FROM {table}").fetchone()
        return highest or 0

    def missing(self, table: str, counter: int) -> Iterator[tuple[int, int]]:
        """Return the ranges of sequences from 1 to *counter* that no row has."""
        expected = 1
        for (sequence,) in self.driver.execute(f"SELECT sequence FROM {table} ORDER BY sequence"):
            if sequence > expected:
                yield expected, sequence - 1
            expected = sequence + 1
        if expected <= counter:
            yield expected, counter

    def note(self, line: str) -> None:
        """Keep a line for the report, up to 100 of them."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(line)

    def note_doubtful(self, table: str, line: str) -> None:
        """Count a row whose value may be wrong, and note why, once."""
        if line not in self._doubts:
            self._doubts.add(line)
            self.doubtful[table] += 1
            self.note(line)

    def note_index_repair(self, event: int, columns: tuple[str, ...], stored: object) -> None:
        """Count an event whose *columns* were set from an index, and note what was *stored*."""
        if event not in self._repaired_events:
            self._repaired_events.add(event)
            self.repaired["events"] += 1
        outdated = {f"events sequence {event}: {_NOT_UTF8.format(name)}" for name in columns}
        self.notes = [line for line in self.notes if line not in outdated]
        names = ", ".join(columns)
        self.note(f"events sequence {event}: put right {names}, from the index (was {stored!r})")

    def _note_values(self, row: Row) -> None:
        """Count and note what was corrected in a row, and what may be wrong in it."""
        table = row.shape.table
        name = f"{table} {row.shape.columns[0].name} {row.values[0]}"
        with_nul = [
            column.name
            for column, value in zip(row.shape.columns, row.values, strict=False)
            if isinstance(value, str) and "\0" in value and column.name != "id"
        ]
        if with_nul:  # no stored text holds NUL; ids are compared with their index
            names = ", ".join(with_nul)
            self.note_doubtful(table, f"{name}: {names} with NUL, so it was overwritten")
        if row.repaired or row.not_utf8:
            self.repaired[table] += 1
            if table == "events":
                self._repaired_events.add(row.values[0])
            if row.repaired:
                self.note(f"{name}: put right {', '.join(row.repaired)}")
            for column_name in row.not_utf8:
                self.note(f"{name}: {_NOT_UTF8.format(column_name)}")

    def finish(self) -> bool:
        """Commit, set WAL mode, sync; return whether there is a side file."""
        self.driver.execute("COMMIT")
        self.driver.close()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, b"\2\2", 18)  # the header's write and read version: WAL
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if self._aside_file is not None:
            self._aside_file.flush()
            os.fsync(self._aside_file.fileno())
            self._aside_file.close()
        return self._aside_file is not None

    def close(self) -> None:
        """Close both files, finished or not."""
        self.driver.close()
        if self._aside_file is not None:
            self._aside_file.close()


@cache
def _insert_statement(shape: Shape, count: int) -> str:
    names = ", ".join(column.name for column in shape.columns[:count])
    return f"INSERT INTO {shape.table} ({names}) VALUES ({', '.join('?' * count)})"


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value
