"""What must hold after a damaged session was opened; each check returns findings in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.damage import layout
from tests.damage.bases import Base
from tests.damage.layout import COUNTED, TABLES, Files, Row, Values
from tests.damage.plain import Rows

_META_COLUMNS = (
    "session_id",
    "parent_session_id",
    "profile",
    "status",
    "depth",
    "started_at",
    "ended_at",
)


class Judge:
    """One damaged session: what it was, what was done to it, and what is there now."""

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
        """Find rows that are not as they were, and rows that never were."""
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
        """Tell whether the damage left the index of ids alone, and what leads to its pages."""
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
        """Find an id that is not as it was, though its index was left alone, and not a word of it.

        Where it is in order and like all others, nothing tells it from the right one.
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
            # SQLite's check passed it, and nothing was moved: it is what SQLite makes of it.
            return was is not None and was.key not in self.untouched[table]
        told = self._recovery.tables
        marks = next((one for one in told if one.table == table), None)
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
        """Tell whether every changed value is what the damage made of its own bytes.

        If its newest bytes cannot be used any more, an older copy counts, of a row as of a value.
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
        """Tell whether a value stands somewhere, and differs little from what was stored."""
        content = value.encode() if isinstance(value, str) else value
        was = layout.taken(self.base.files, column.pieces)
        changed = sum(one != other for one, other in zip(content, was, strict=False))
        return (
            len(content) == len(was)
            and changed <= 1 + len(was) // 4
            and any(content in damaged for damaged in self.damaged.values())
        )

    def _meta_explained(self, values: Values, was: Row | None) -> bool:
        if was is None or was.key in self.untouched["session_meta"]:
            return False
        if self._recovery is None:
            return True  # SQLite's check passed it, and nothing was moved
        if values in self.base.metas:
            return True
        derived = {name.rpartition(".")[2] for name in getattr(self._recovery, "derived", ())}
        noted = bool(getattr(self._recovery, "notes", ()))
        left = [
            n
            for n, value in enumerate(values)
            if value != was.values[n] and _META_COLUMNS[n] not in derived
        ]
        return all(self._column_hit(was.columns[n], values[n], marked=noted) for n in left)

    def _wrong(self, table: str, values: Values, was: Row | None) -> str:
        if values in self._foreign(table):
            return f"{table}: a row of another session: {_short(values)}"
        for row in self.base.rows[table].values():
            if table in COUNTED and values[1:] == row.values[1:]:
                number = layout.taken(self.damaged, row.columns[0].pieces)
                same = number == layout.taken(self.base.files, row.columns[0].pieces)
                told = "its number was not hit" if same else "its number was hit"
                return f"{table}: row {row.values[0]} under the number {values[0]} ({told})"
        if was is None:
            return f"{table}: a row that never was: {_short(values)}"
        hit = "its bytes were hit" if was.key not in self.untouched[table] else "bytes not hit"
        n = next(n for n, value in enumerate(values) if value != was.values[n])
        return (
            f"{table} {was.key}: column {n} is {_short(values[n])}, was {_short(was.values[n])} "
            f"({hit})"
        )

    def _foreign(self, table: str) -> set[Values]:
        return {row.values for row in self.foreign.rows[table].values()}

    def _meta(self, found: Rows) -> Iterator[str]:
        if set(found["session_meta"]) != {(self.base.session_id,)}:
            yield f"session_meta holds {sorted(found['session_meta'])}"

    def lost(self, found: Rows) -> list[str]:
        """Name rows whose bytes the damage left alone and that are gone."""
        return [
            f"{table} {key}"
            for table in TABLES
            for key in sorted(self.untouched[table] - set(found[table]))
        ]

    def called_complete(self, found: Rows, *, log: bool) -> Iterator[str]:
        """Find that not everything is there as it was, though the report says so.

        *log* tells whether its own log is gone; a torn one, else, may have held what it held.
        """
        for table in TABLES:
            gone = set(self.base.rows[table]) - set(found[table])
            if gone and (log or gone & self.untouched[table]):
                yield f"{table}: {len(gone)} rows are gone, and it is called complete"
        for key, row in self.base.rows["events"].items():
            there = found["events"].get(key)
            if there is not None and there[1] != row.values[1] and self._ids_whole:
                yield f"events {key}: its id is another one, and it is called complete"

    def less_than_plain(self, found: Rows, plain: dict[str, set[Values]]) -> Iterator[str]:
        """Find rows that a plain connection still reads right and that are not as they were."""
        for table in TABLES:
            given = self.base.rows[table]
            for key in sorted(plain[table]):
                if found[table].get(key) != given[key].values:
                    yield f"{table} {key}: SQLite alone reads it, it is not there now"
                    break

    # -- counters ------------------------------------------------------------------------------

    def floor(self, table: str, found: Rows) -> int:
        """Return the highest number of a table of which a trace is sure to be left."""
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
        tables = {} if recovery is None else {one.table: one for one in recovery.tables}
        for table in COUNTED:
            floor = self.floor(table, found)
            if counters[table] < floor and not (recovery is None and floor == _top(found[table])):
                yield f"{table}: the counter is {counters[table]}, {floor} was given"
            if table in tables:
                yield from self._missing(table, tables[table], found, floor)

    def _missing(self, table: str, told: Any, found: Rows, floor: int) -> Iterator[str]:
        kept = {key[0] for key in found[table]}
        ranges = list(told.missing)
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
        if {one.table for one in recovery.tables} != set(TABLES):
            yield f"the report has the tables {[one.table for one in recovery.tables]}"
        for one in recovery.tables:
            if one.kept != len(found[one.table]):
                yield f"{one.table}: kept is {one.kept}, the file holds {len(found[one.table])}"
            if sum(one.routes.values()) != one.kept:
                yield f"{one.table}: the routes {one.routes} do not add up to {one.kept}"
        for named in (recovery.original, recovery.report):
            if named is None or not Path(named).is_file():
                yield f"the report names {named}, which is no file"

    # -- evidence ------------------------------------------------------------------------------

    def evidence(self, path: Path) -> Iterator[str]:
        """Find damaged files whose bytes are nowhere any more."""
        for ending in ("", "-wal", "-journal"):
            content = self.damaged.get(ending)
            if content is None or (ending and not content):
                continue
            name = re.compile(re.escape(path.name) + r"(\.corrupt(\.\d+)?)?" + ending)
            places = [place for place in path.parent.iterdir() if name.fullmatch(place.name)]
            if not any(place.read_bytes() == content for place in places):
                yield f"the bytes of the damaged file{ending} are gone: {_names(path)}"


def renamed(path: Path) -> bool:
    """Tell whether anything in the folder says that a recovery took place."""
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
