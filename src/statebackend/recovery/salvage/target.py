"""The new file that saved rows go into, and the side file for those that do not fit."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from statebackend.recovery.salvage.shapes import SEQUENCED, TABLES, Row, Shape, shapes

MAX_NOTES = 100
_MARRED = "{} holds U+FFFD for what was not UTF-8"


class Target:
    """A new session file being filled, without foreign keys: a ledger row outlives its event.

    ``routes`` counts, by table, what saved the rows; ``notes`` holds at most 100 lines. Events that
    have the id of another one wait in ``contested``, with their route, until :meth:`settled`.
    """

    def __init__(self, path: Path, aside: Path, image: bytes) -> None:
        self.path = path
        self._aside_path = aside
        self._aside: TextIO | None = None
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # whatever the umask took away
            file.write(image)
        self.driver = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "foreign_keys = OFF"):
            self.driver.execute(f"PRAGMA {pragma}")
        self.driver.execute("BEGIN")
        self.shapes = {shape.table: shape for shape in shapes(self.driver)}
        self._inserts = {
            (shape.table, count): _insert(shape, count)
            for shape in self.shapes.values()
            for count in range(shape.least, len(shape.columns) + 1)
        }
        self.routes: dict[str, Counter[str]] = {table: Counter() for table in TABLES}
        self.repaired: Counter[str] = Counter()
        self.doubtful: Counter[str] = Counter()
        self._doubts: set[str] = set()
        self.set_aside: Counter[str] = Counter()
        self.contested: list[tuple[Row, str]] = []
        self._settled = False
        self._events_repaired: set[int] = set()
        self.notes: list[str] = []

    def insert(self, row: Row, route: str, *, only_if_missing: bool = False) -> bool:
        """Add *row*, and tell whether it is in the file now.

        One that is there already is no second one. A row that contradicts another is set aside,
        or, with *only_if_missing*, left out.
        """
        table = row.shape.table
        if row.unfit:
            if not only_if_missing:
                self.put_aside(row, row.unfit)
            return False
        try:
            self.driver.execute(self._inserts[table, len(row.values)], row.values)
        except sqlite3.IntegrityError as error:
            if only_if_missing or self._known(row):
                return False
            if self._waits(row):
                self.contested.append((row, route))
                return False
            self.put_aside(row, f"another row contradicts it ({error})")
            return False
        self.routes[table][route] += 1
        self._tell(row)
        return True

    def _tell(self, row: Row) -> None:
        """Count and note what was put right in a row, and what may be wrong in it."""
        table = row.shape.table
        overwritten = [
            column.name
            for column, value in zip(row.shape.columns, row.values, strict=False)
            if isinstance(value, str) and "\0" in value and column.name != "id"
        ]
        if overwritten:  # no text that was stored holds it; of ids, the index tells
            names = ", ".join(overwritten)
            self.doubt(table, f"{table} {_name(row)}: {names} with NUL, so it was overwritten")
        if row.repaired or row.marred:
            self.repaired[table] += 1
            if table == "events":
                self._events_repaired.add(row.values[0])
            if row.repaired:
                self.note(f"{table} {_name(row)}: put right {', '.join(row.repaired)}")
            for name in row.marred:
                self.note(f"{table} {_name(row)}: {_MARRED.format(name)}")

    def has(self, shape: Shape, sequence: int) -> bool:
        """Tell whether a row with this sequence is there."""
        query = f"SELECT 1 FROM {shape.table} WHERE sequence = ?"
        return self.driver.execute(query, (sequence,)).fetchone() is not None

    def highest(self, table: str) -> int:
        """Return the highest sequence in *table*, 0 when it is empty."""
        (found,) = self.driver.execute(f"SELECT max(sequence) FROM {table}").fetchone()
        return found or 0

    def around(self, table: str, event: int) -> tuple[int, int | None]:
        """Return the last number of a row of an earlier event than *event*, 0 if there is none.

        And the first of a later one, None if there is none. Numbers are in the order of events.
        """
        at = (
            f"SELECT event_sequence FROM {table} WHERE sequence <= ? ORDER BY sequence DESC LIMIT 1"
        )
        below, last = 0, self.highest(table)
        while below < last:
            middle = (below + last + 1) // 2
            found = self.driver.execute(at, (middle,)).fetchone()
            if found is None or found[0] < event:
                below = middle
            else:
                last = middle - 1
        (above,) = self.driver.execute(
            f"SELECT min(sequence) FROM {table} WHERE sequence > ? AND event_sequence > ?",
            (below, event),
        ).fetchone()
        return below, above

    # -- ids of events -------------------------------------------------------------------------

    def settled(self) -> list[tuple[Row, str]]:
        """Return the rows that wait, to be inserted now; from now on none does."""
        waited, self.contested, self._settled = self.contested, [], True
        return waited

    def event_id(self, sequence: int) -> str | None:
        """Return the id of an event, None if it is not there."""
        query = "SELECT id FROM events WHERE sequence = ?"
        found = self.driver.execute(query, (sequence,)).fetchone()
        return None if found is None else str(found[0])

    def event_with(self, event_id: str) -> int | None:
        """Return the sequence of the event with this id, None if there is none."""
        query = "SELECT sequence FROM events WHERE id = ?"
        found = self.driver.execute(query, (event_id,)).fetchone()
        return None if found is None else int(found[0])

    def has_copy(self, event: Row) -> bool:
        """Tell whether the event that has the id of *event* is the same in all but its sequence."""
        query = "SELECT * FROM events WHERE id = ?"
        found = self.driver.execute(query, event.values[1:2]).fetchone()
        return found is not None and tuple(found[1:]) == event.values[1:]

    def set_event_id(self, sequence: int, event_id: str, told: str) -> bool:
        """Put the id of an event right; tell whether that was possible: an id is of one event."""
        try:
            self.driver.execute("UPDATE events SET id = ? WHERE sequence = ?", (event_id, sequence))
        except sqlite3.IntegrityError:
            return False
        self._count_repaired(sequence)
        marred = f"events sequence {sequence}: {_MARRED.format('id')}"
        self.notes = [line for line in self.notes if line != marred]
        self.note(f"events sequence {sequence}: put right {told}")
        return True

    def event_columns(self, sequence: int, columns: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return these columns of an event, None if it is not there."""
        query = f"SELECT {', '.join(columns)} FROM events WHERE sequence = ?"
        found: tuple[str, ...] | None = self.driver.execute(query, (sequence,)).fetchone()
        return found

    def set_event_columns(
        self, sequence: int, columns: tuple[str, ...], values: tuple[str, ...]
    ) -> None:
        """Put these columns of an event right."""
        was = self.event_columns(sequence, columns)
        columns_set = ", ".join(f"{column} = ?" for column in columns)
        self.driver.execute(
            f"UPDATE events SET {columns_set} WHERE sequence = ?", (*values, sequence)
        )
        self._count_repaired(sequence)
        marred = {f"events sequence {sequence}: {_MARRED.format(column)}" for column in columns}
        self.notes = [line for line in self.notes if line not in marred]
        names = ", ".join(columns)
        self.note(f"events sequence {sequence}: put right {names}, from the index (was {was!r})")

    def has_producer(self, producer: tuple[str, ...], event: int) -> bool:
        """Tell whether the session has this producer: category, name and version.

        Its row may be lost, so another saved event than *event* is as good.
        """
        query = (
            "SELECT 1 FROM producers WHERE (category, name, version) = (:c, :n, :v) UNION ALL "
            "SELECT 1 FROM events WHERE (producer_category, producer_name, producer_version) = "
            "(:c, :n, :v) AND sequence <> :event LIMIT 1"
        )
        category, name, version = producer
        given = {"c": category, "n": name, "v": version, "event": event}
        return self.driver.execute(query, given).fetchone() is not None

    def doubt(self, table: str, line: str) -> None:
        """Count a row that is kept with a value that may be wrong, and note why, once."""
        if line not in self._doubts:
            self._doubts.add(line)
            self.doubtful[table] += 1
            self.note(line)

    # -- what is not there ---------------------------------------------------------------------

    def remove(self, table: str, sequence: int, why: str) -> None:
        """Take a row out again and set it aside, if its table has sequences."""
        shape = self.shapes[table]
        if shape.key is None:
            return
        found = self.driver.execute(
            f"SELECT * FROM {table} WHERE sequence = ?", (sequence,)
        ).fetchone()
        if found is not None:
            self.driver.execute(f"DELETE FROM {table} WHERE sequence = ?", (sequence,))
            self.routes[table][self.routes[table].most_common(1)[0][0]] -= 1  # most likely
            self.put_aside(Row(shape, found, (), None), why)

    def put_aside(self, row: Row, why: str) -> None:
        """Write *row* to the side file."""
        if self._aside is None:
            descriptor = os.open(
                self._aside_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
            )
            self._aside = os.fdopen(descriptor, "w", encoding="utf-8")
        names = [column.name for column in row.shape.columns]
        form = {
            "table": row.shape.table,
            "why": why,
            "row": dict(zip(names, map(_plain, row.values), strict=False)),
        }
        self._aside.write(json.dumps(form) + "\n")
        self.set_aside[row.shape.table] += 1

    def note(self, line: str) -> None:
        """Keep a line for the report, unless it has its fill."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(line)

    def missing(self, table: str, counter: int) -> Iterator[tuple[int, int]]:
        """Return the ranges of sequences from 1 to *counter* that no row has."""
        expected = 1
        for (sequence,) in self.driver.execute(f"SELECT sequence FROM {table} ORDER BY sequence"):
            if sequence > expected:
                yield expected, sequence - 1
            expected = sequence + 1
        if expected <= counter:
            yield expected, counter

    def set_counters(self, counters: dict[str, int]) -> None:
        """Let each table go on behind the highest number that was ever given."""
        self.driver.execute("DELETE FROM sqlite_sequence")
        for table in SEQUENCED:
            if counters[table]:
                self.driver.execute(
                    "INSERT INTO sqlite_sequence VALUES (?, ?)", (table, counters[table])
                )

    def finish(self) -> bool:
        """Commit, set WAL mode, make it durable; tell whether there is a side file."""
        self.driver.execute("COMMIT")
        self.driver.close()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, b"\2\2", 18)  # the header's write and read version: WAL
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if self._aside is None:
            return False
        self._aside.flush()
        os.fsync(self._aside.fileno())
        self._aside.close()
        return True

    def close(self) -> None:
        """Let go of both files, finished or not."""
        self.driver.close()
        if self._aside is not None:
            self._aside.close()

    def _count_repaired(self, sequence: int) -> None:
        if sequence not in self._events_repaired:
            self._events_repaired.add(sequence)
            self.repaired["events"] += 1

    def _waits(self, row: Row) -> bool:
        """Tell whether a row contradicts another one in its id alone, and may wait."""
        if self._settled or row.shape.table != "events":
            return False
        return self.event_id(row.values[0]) is None

    def _known(self, row: Row) -> bool:
        shape = row.shape
        keys = [at for at, column in enumerate(shape.columns) if at == shape.key]
        if not keys:
            keys = list(range(3)) if shape.table == "producers" else [0]
        where = " AND ".join(f"{shape.columns[at].name} IS ?" for at in keys)
        found = self.driver.execute(
            f"SELECT * FROM {shape.table} WHERE {where}", [row.values[at] for at in keys]
        ).fetchone()
        return found is not None and tuple(found[: len(row.values)]) == row.values


def _insert(shape: Shape, count: int) -> str:
    names = ", ".join(column.name for column in shape.columns[:count])
    return f"INSERT INTO {shape.table} ({names}) VALUES ({', '.join('?' * count)})"


def _name(row: Row) -> str:
    at = row.shape.key or 0
    return f"{row.shape.columns[at].name} {row.values[at]}"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value
