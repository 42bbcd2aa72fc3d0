"""What must hold after a damaged session was opened; each check returns findings as lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from statebackend.values.tables import COLUMNS
from tests.damage import layout
from tests.damage.bases import Base
from tests.damage.layout import COUNTED, TABLES, Files, Row, Values
from tests.damage.plain import Rows

_META_COLUMNS = COLUMNS["session_meta"]


class Judge:
    """One damaged session: its rows before, its damaged files, and its rows now."""

    def __init__(self, base: Base, foreign: Base, damaged: Files) -> None:
        self.base, self.foreign, self.damaged = base, foreign, damaged
        self.untouched = {
            table: {key for key, row in rows.items() if layout.untouched(row, base.files, damaged)}
            for table, rows in base.rows.items()
        }
        self._folded = layout.read({"": base.files[""]}).rows
        self._ids_whole = self._index_of_ids_is_whole()
        self.altered = 0
        self.saved = 0
        self._recovery: Any = None
        self._found: Rows = {}

    def rows(self, found: Rows, recovery: Any) -> Iterator[str]:
        """Report rows that differ from before, and rows that did not exist."""
        self._recovery, self._found = recovery, found
        for table in TABLES:
            given = self.base.rows[table]
            for key, values in found[table].items():
                was = given.get(key)
                if was is not None and was.values == values:
                    self.saved += 1
                elif self._explained(table, values, was):
                    self.altered += was is not None
                    if table == "events" and was is not None:
                        yield from self._id(values, was)
                else:
                    yield self._wrong(table, values, was)
        yield from self._meta(found)

    def _index_of_ids_is_whole(self) -> bool:
        """Tell whether the index of ids is undamaged, and page 1 that points to it."""
        found = self.base.layout
        return all(
            found.files[name][start : start + found.page_size]
            == self.damaged.get(name, b"")[start : start + found.page_size]
            for name, start in (
                found.pages[page]
                for page in (1, *found.with_role("index sqlite_autoindex_events_1"))
            )
        )

    def _id(self, values: Values, was: Row) -> Iterator[str]:
        """Report a wrong id that no note names, though its index is undamaged.

        An id that is in order and like all others cannot be told from the right one.
        """
        if values[1] == was.values[1] or not self._ids_whole:
            return
        if self._recovery is None:
            yield f"events {was.key}: its id is {values[1]!r}, and nothing was noticed"
            return
        noted = f"events sequence {was.values[0]}: its id is {values[1]!r} in its row and "
        if not any(
            note.startswith(noted) and repr(was.values[1]) in note for note in self._recovery.notes
        ):
            yield f"events {was.key}: its id is {_short(values[1])}, not {was.values[1]!r}"

    def _explained(self, table: str, values: Values, was: Row | None) -> bool:
        if table == "session_meta":
            return self._meta_explained(values, was)
        if self._recovery is None:
            # SQLite's check passed it, and no file was moved: the row is what SQLite reads.
            return was is not None and was.key not in self.untouched[table]
        marks = next((marks for marks in self._recovery.tables if marks.table == table), None)
        repaired = marks is not None and marks.repaired > 0
        if table == "producers":
            derived = marks is not None and marks.routes.get("derived", 0) > 0
            return self._producer_explained(values, was, derived=derived, repaired=repaired)
        return was is not None and self._hit(was, values, marked=repaired)

    def _producer_explained(
        self, values: Values, was: Row | None, *, derived: bool, repaired: bool
    ) -> bool:
        """Tell whether a row of producers follows from the events, or from damage to itself."""
        given, whole = self.base.rows["producers"], self.untouched["producers"]
        if was is not None and was.key in whole:
            return False
        users = {event[4:7] for event in self._found["events"].values()}
        return (derived and values[:3] in users) or any(
            self._hit(row, values, marked=repaired)
            for row in given.values()
            if row.key not in whole
        )

    def _hit(self, was: Row, values: Values, *, marked: bool) -> bool:
        """Tell whether every changed value follows from the damaged bytes.

        If its newest bytes cannot be read any more, an older copy of the row or the value counts.
        """
        older = self._folded.get(was.table, {}).get(was.key)
        lost = older is not was and was.key not in self.untouched[was.table]
        if older is not None and lost and self._hit(older, values, marked=marked):
            return True
        differing = [n for n, value in enumerate(values) if value != was.values[n]]
        return all(self._column_hit(was.columns[n], values[n], marked=marked) for n in differing)

    def _column_hit(self, column: layout.Column, value: object, *, marked: bool) -> bool:
        after = layout.taken(self.damaged, column.pieces)
        if marked and not column.pieces:
            return True
        if column.serial in {8, 9}:  # the value is its type
            named = layout.taken(self.damaged, column.named)
            return named != bytes([column.serial]) and value in {0, 1}
        if after == layout.taken(self.base.files, column.pieces):
            return False
        if len(after) == sum(end - start for _name, start, end in column.pieces):
            shown = layout.decoded(column.serial, after)
            if shown == value:
                return True
        if isinstance(value, str | bytes) and self._is_a_hit_copy(value, column):
            return True
        return marked

    def _is_a_hit_copy(self, value: str | bytes, column: layout.Column) -> bool:
        """Tell whether a value is anywhere in the files, and differs little from the stored one."""
        content = value.encode() if isinstance(value, str) else value
        was = layout.taken(self.base.files, column.pieces)
        changed = sum(a != b for a, b in zip(content, was, strict=False))
        return (
            len(content) == len(was)
            and changed <= 1 + len(was) // 4
            and any(content in damaged for damaged in self.damaged.values())
        )

    def _meta_explained(self, values: Values, was: Row | None) -> bool:
        if was is None or was.key in self.untouched["session_meta"]:
            return False
        if self._recovery is None:
            return True  # SQLite's check passed it, and no file was moved
        if values in self.base.metas:
            return True
        derived = {name.rpartition(".")[2] for name in getattr(self._recovery, "derived", ())}
        noted = bool(getattr(self._recovery, "notes", ()))
        underived = [
            n
            for n, value in enumerate(values)
            if value != was.values[n] and _META_COLUMNS[n] not in derived
        ]
        return all(self._column_hit(was.columns[n], values[n], marked=noted) for n in underived)

    def _wrong(self, table: str, values: Values, was: Row | None) -> str:
        if values in self._foreign(table):
            return f"{table}: a row of another session: {_short(values)}"
        for row in self.base.rows[table].values():
            if table in COUNTED and values[1:] == row.values[1:]:
                number = layout.taken(self.damaged, row.columns[0].pieces)
                same = number == layout.taken(self.base.files, row.columns[0].pieces)
                state = "undamaged" if same else "damaged"
                moved = f"row {row.values[0]} under the number {values[0]}"
                return f"{table}: {moved} (its number is {state})"
        if was is None:
            return f"{table}: a row that did not exist: {_short(values)}"
        state = "undamaged" if was.key in self.untouched[table] else "damaged"
        n = next(n for n, value in enumerate(values) if value != was.values[n])
        return (
            f"{table} {was.key}: column {n} is {_short(values[n])}, was {_short(was.values[n])} "
            f"(its bytes are {state})"
        )

    def _foreign(self, table: str) -> set[Values]:
        return {row.values for row in self.foreign.rows[table].values()}

    def _meta(self, found: Rows) -> Iterator[str]:
        if set(found["session_meta"]) != {(self.base.session_id,)}:
            yield f"session_meta holds {sorted(found['session_meta'])}"

    def lost(self, found: Rows) -> list[str]:
        """Name missing rows whose bytes are undamaged."""
        return [
            f"{table} {key}"
            for table in TABLES
            for key in sorted(self.untouched[table] - set(found[table]))
        ]

    def called_complete(self, found: Rows, *, wal: bool) -> Iterator[str]:
        """Report missing rows of a session whose report says that it is complete.

        *wal* tells whether its own WAL is gone. Rows in a torn WAL may not have been committed.
        """
        for table in TABLES:
            gone = set(self.base.rows[table]) - set(found[table])
            if gone and (wal or gone & self.untouched[table]):
                yield f"{table}: {len(gone)} rows are missing, and it is called complete"
        for key, row in self.base.rows["events"].items():
            there = found["events"].get(key)
            if there is not None and there[1] != row.values[1] and self._ids_whole:
                yield f"events {key}: its id is wrong, and the session is called complete"

    def less_than_plain(self, found: Rows, plain: dict[str, set[Values]]) -> Iterator[str]:
        """Report rows that a plain connection still reads right and that are not there now."""
        for table in TABLES:
            given = self.base.rows[table]
            for key in sorted(plain[table]):
                if found[table].get(key) != given[key].values:
                    yield f"{table} {key}: SQLite alone reads it, it is not there now"
                    break

    # -- counters ------------------------------------------------------------------------------

    def floor(self, table: str, found: Rows) -> int:
        """Return the highest number of a table that undamaged bytes show."""
        rows = self.base.rows
        traces = [key[0] for key in (*self.untouched[table], *found[table])]
        if table == "events":
            for other in ("cost_ledger", "plan_items"):
                traces += [rows[other][key].values[1] for key in self.untouched[other]]
            traces += [rows["producers"][key].values[3] for key in self.untouched["producers"]]
        counter = self.base.layout.rows["sqlite_sequence"].get((table,))
        if counter is not None and layout.untouched(counter, self.base.files, self.damaged):
            traces.append(counter.values[1])
        return max(traces, default=0)

    def counted(self, found: Rows, counters: dict[str, int], recovery: Any) -> Iterator[str]:
        """Compare the counters and what the report calls missing with the rows that are there."""
        tables = {} if recovery is None else {part.table: part for part in recovery.tables}
        for table in COUNTED:
            floor = self.floor(table, found)
            if counters[table] < floor and not (recovery is None and floor == _top(found[table])):
                yield f"{table}: the counter is {counters[table]}, {floor} was given"
            if table in tables:
                yield from self._missing(table, tables[table], found, floor)

    def _missing(self, table: str, report: Any, found: Rows, floor: int) -> Iterator[str]:
        kept = {key[0] for key in found[table]}
        ranges = list(report.missing)
        top = max([floor, *(last for _first, last in ranges), *kept])
        given = max((key[0] for key in self.base.rows[table]), default=0)
        counter = self.base.layout.rows["sqlite_sequence"].get((table,))
        counter_hit = counter is not None and not layout.untouched(
            counter, self.base.files, self.damaged
        )
        if top > given:
            if not counter_hit:
                yield f"{table}: {top} is called missing, no more than {given} were given"
            return
        expected = _ranges(sorted(set(range(1, top + 1)) - kept))
        if ranges != expected:
            yield f"{table}: missing are {_short(ranges)}, not {_short(expected)}"

    def report(self, found: Rows, recovery: Any) -> Iterator[str]:
        """Compare the report's numbers with the file."""
        if {part.table for part in recovery.tables} != set(TABLES):
            yield f"the report has the tables {[part.table for part in recovery.tables]}"
        for part in recovery.tables:
            if part.kept != len(found[part.table]):
                yield f"{part.table}: kept is {part.kept}, the file has {len(found[part.table])}"
            if sum(part.routes.values()) != part.kept:
                yield f"{part.table}: the routes {part.routes} do not add up to {part.kept}"
        for named in (recovery.original, recovery.report):
            if named is None or not Path(named).is_file():
                yield f"the report names {named}, which is not a file"

    # -- evidence ------------------------------------------------------------------------------

    def evidence(self, path: Path) -> Iterator[str]:
        """Report damaged files whose bytes were not kept."""
        for ending in ("", "-wal", "-journal"):
            content = self.damaged.get(ending)
            if content is None or (ending and not content):
                continue
            name = re.compile(re.escape(path.name) + r"(\.corrupt(\.\d+)?)?" + ending)
            places = [place for place in path.parent.iterdir() if name.fullmatch(place.name)]
            if not any(place.read_bytes() == content for place in places):
                yield f"the bytes of the damaged file{ending} are gone: {_names(path)}"


def renamed(path: Path) -> bool:
    """Tell whether a file in the folder shows that a recovery took place."""
    return any(".corrupt" in place.name for place in path.parent.iterdir())


def _names(path: Path) -> list[str]:
    return sorted(place.name for place in path.parent.iterdir())


def _top(rows: dict[Values, Values]) -> int:
    return max((key[0] for key in rows), default=0)


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:150]}… ({len(text)} characters)"
