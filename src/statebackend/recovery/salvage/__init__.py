"""What can be saved of a damaged session file, into a new one; the damaged one is only read.

No SQLite on the damaged bytes: it follows pointers, and where one is wrong it answers with other
rows, or with none. Here every page is looked at, whoever points to it, and a row counts only if its
header, its lengths and the types of its values fit one of the five tables, and what lies in other
pages is nobody else's (SB-34; specification, "Corruption recovery").
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from statebackend.recovery.salvage import cells, chains, event_columns, event_ids, ownership
from statebackend.recovery.salvage.carving import carve, unexplained
from statebackend.recovery.salvage.derived import derive_producers, save_meta
from statebackend.recovery.salvage.images import LOG, Images
from statebackend.recovery.salvage.order import Number, numbers
from statebackend.recovery.salvage.shapes import SEQUENCED, TABLES, Row, Shape, row
from statebackend.recovery.salvage.survey import (
    index_entries,
    is_id,
    is_near,
    is_row,
    shape_of,
    survey,
    witnesses,
)
from statebackend.recovery.salvage.target import Target
from statebackend.schema.migrate import SESSIONS, Chain, schema_image
from statebackend.values.recorded import SCHEMA_VERSION
from statebackend.values.reports import TableRecovery

_LEAST_ROW_BYTES = 12
_MOST, _FEW = 0.9, 16
_ALIKE = "sqlite_autoindex_producers_1"
_LAST_RESORTS = {"older image", "carved"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """What was saved: by table, which columns of ``session_meta`` were derived, and notes.

    ``has_aside`` tells whether there is a side file, ``uncounted`` why rows may be gone that nobody
    can count. ``version`` is the schema version of the new file.
    """

    version: int
    tables: tuple[TableRecovery, ...]
    derived: tuple[str, ...]
    notes: tuple[str, ...]
    uncounted: tuple[str, ...]
    has_aside: bool

    @property
    def empty(self) -> bool:
        """Tell whether no row at all was saved."""
        return not any(table.routes for table in self.tables if table.routes.keys() - {"derived"})


def salvage(
    source: Path, target: Path, aside: Path, session_id: str, *, descriptor: int | None = None
) -> Salvage:
    """Save what can be read of the session file *source* into the new file *target*.

    Rows that break the schema or contradict others go to *aside*, as lines of JSON. Neither may
    exist yet. Plain file calls on *source*, its log and its journal: only while this process has no
    connection on it. A *descriptor* of the file is used in place of a new one, and left open.
    Raises :class:`OSError` as the system does.
    """
    with Images(source, descriptor) as images:
        notes, uncounted = ownership.lay_sidecars(images, session_id)
        versions = (one for one in images.user_versions() if 0 < one <= SCHEMA_VERSION)
        version = next(versions, SCHEMA_VERSION)
        new = Target(target, aside, schema_image(Chain(SESSIONS.versions, version)))
        try:
            for note in notes:
                new.note(note)
            return _Salvager(images, new, session_id, version, uncounted).run()
        finally:
            new.close()


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A row whose number nothing in its page confirms, and where it is.

    It is read again when it is settled: there may be as many as there are rows.
    """

    place: tuple[int, int]
    shape: Shape
    cell: cells.Cell
    event_id: bytes
    number: Number
    route: str


class _Salvager:
    def __init__(
        self,
        images: Images,
        new: Target,
        session_id: str,
        version: int,
        uncounted: tuple[str, ...],
    ) -> None:
        self._images = images
        self._new = new
        self._session_id = session_id
        self._version = version
        self._uncounted = uncounted
        self._survey = survey(images)
        self._chains = chains.Chains(images, self._survey.free)
        self._unended: list[tuple[tuple[int, int], Shape, cells.Cell]] = []
        self._doubts: list[_Doubt] = []
        self._metas: list[tuple[Row, str]] = []
        self._known_missing: dict[int, list[bytes]] = {}
        self._index_is_whole = self._needs_witness = False
        self._bound = images.pages_once() * images.page_size // _LEAST_ROW_BYTES
        self._lost_log = {frame.offset for frame in images.log.behind} if images.log else set()

    def run(self) -> Salvage:
        """Go from the surest source to the last resort, then count what is not there."""
        self._swap_back()
        self._take_pages()
        self._take_unended()
        self._settle_doubts()
        self._put_events_right()
        self._learn_missing()
        if self._known_missing or self._gaps() or not self._metas:
            self._take_older()
            self._carve()
            self._put_events_right()
        derived = save_meta(self._new, self._metas, self._session_id)
        derive_producers(self._new)
        counters = self._counters()
        self._new.set_counters(counters)
        missing = {table: tuple(self._new.missing(table, counters[table])) for table in SEQUENCED}
        self._note_missing_events(missing["events"])
        tables = tuple(self._table(name, missing.get(name, ())) for name in TABLES)
        has_aside = self._new.finish()
        return Salvage(
            version=self._version,
            tables=tables,
            derived=derived,
            notes=tuple(self._new.notes),
            uncounted=self._uncounted,
            has_aside=has_aside,
        )

    # -- pages in each other's place -----------------------------------------------------------

    def _swap_back(self) -> None:
        """Put overflow pages right that were written in each other's place.

        The pages of a chain follow each other as the file grew. Of two that were swapped, each
        leads to where the other one did, which is backwards for one of them. Where pages were
        freed and taken again, sound chains go back and forth, so nothing is told by that.
        """
        leads: dict[int, int] = {}
        for number in self._survey.others:
            behind = int.from_bytes(self._images.page(number)[:4], "big")
            if 0 < behind <= self._images.page_count:
                leads[number] = behind
        swapped = [
            (number, behind - 1)
            for number, behind in leads.items()
            if number < behind - 1
            and leads.get(behind - 1) == number + 1
            and leads.get(number - 1, number) == number
            and leads.get(behind - 2, behind - 1) == behind - 1
        ]
        ahead = sum(behind == number + 1 for number, behind in leads.items())
        if (len(leads) - ahead - 2 * len(swapped)) * _FEW <= ahead:
            for number, other in swapped:
                self._images.swap(number, other)
                self._new.note(f"pages {number} and {other} were in each other's place")

    # -- rows where a page says they are -------------------------------------------------------

    def _take_pages(self) -> None:
        unknown, strays = [], []
        for number in self._survey.leaves:
            if number not in self._survey.bounds and number not in self._survey.roots:
                unknown.append(number)
                continue
            found = self._cells(number, self._images.place(number))
            if self._is_stray(number, found):
                strays.append(number)
            else:
                self._take_page(number, found)
        # Strays are copies of pages that are elsewhere, or hold what is nowhere else.
        for number in unknown + strays:
            self._take_page(number, self._cells(number, self._images.place(number)))

    def _is_stray(self, number: int, found: Sequence[cells.Cell]) -> bool:
        """Tell whether the rows of a page are not those that what points to it says."""
        table = self._survey.roots.get(number)
        if table in TABLES:
            held = {cell.rowid for cell in found if self._table_of(cell) == table}
            return not held or self._goes_on_elsewhere(number, table, held)
        lower, upper = self._survey.bounds.get(number, (None, None))
        outside = sum(
            (lower is not None and cell.rowid <= lower)
            or (upper is not None and cell.rowid > upper)
            for cell in found
        )
        return outside * 2 > len(found)

    def _goes_on_elsewhere(self, root: int, table: str, held: set[int]) -> bool:
        """Tell whether another leaf has other rows of *table* than its *root*, a leaf itself.

        The root is a leaf only while it is the whole table, so this one is a copy or an older
        image.
        """
        return table in SEQUENCED and any(
            cell.rowid not in held and self._table_of(cell) == table
            for number in self._survey.leaves
            if number != root
            for cell in islice(self._each_cell(number, self._images.place(number)), 1)
        )

    def _table_of(self, cell: cells.Cell) -> str | None:
        shape = shape_of(self._new.shapes, cell.types)
        return shape.table if shape is not None else None

    def _take_page(self, number: int, all_cells: Sequence[cells.Cell]) -> None:
        place = self._images.place(number)
        page = self._images.image(*place)
        route = "log" if place[0] == LOG and place[1] in self._lost_log else "page"
        bounds = self._survey.bounds.get(number, (None, None))
        for shape, found in self._by_shape(all_cells):
            self._take_cells(place, page, shape, found, route, bounds)

    def _by_shape(self, found: Sequence[cells.Cell]) -> Iterable[tuple[Shape, list[cells.Cell]]]:
        """Return the cells of a page by the table that they fit."""
        by_table: dict[str, list[cells.Cell]] = {}
        for cell in found:
            shape = shape_of(self._new.shapes, cell.types)
            if shape is not None:
                by_table.setdefault(shape.table, []).append(cell)
        return [(self._new.shapes[table], one) for table, one in by_table.items()]

    def _cells(self, number: int, place: tuple[int, int]) -> list[cells.Cell]:
        """Return the cells in an image of page *number*; none if it is no leaf of a table."""
        return list(self._each_cell(number, place))

    def _each_cell(self, number: int, place: tuple[int, int]) -> Iterator[cells.Cell]:
        page, header = self._images.image(*place), 100 if number == 1 else 0
        if page[header] == cells.LEAF_TABLE:
            for cell in cells.leaf_cells(page, header, self._images.usable):
                if not self._images.is_cut(*place, cell.end):
                    yield cell

    def _take_cells(  # noqa: PLR0917 - by position, as its callers have them
        self,
        place: tuple[int, int],
        page: bytes,
        shape: Shape,
        found: Sequence[cells.Cell],
        route: str,
        bounds: tuple[int | None, int | None],
    ) -> None:
        if shape.key is None:
            for cell in found:
                self._take_unnumbered(page, shape, cell, route)
            return
        for cell, number in zip(found, numbers([c.rowid for c in found], bounds), strict=True):
            record = self._record(page, cell, shape, place)
            if record is None:
                continue
            one = row(shape, number.value, cell.types, record)
            if number.sure and is_row(number.value):
                self._new.insert(one, route)
            else:
                doubt = _Doubt(place, shape, cell, _stored_id(one), number, route)
                self._doubts.append(doubt)

    def _take_unnumbered(self, page: bytes, shape: Shape, cell: cells.Cell, route: str) -> None:
        record = self._record(page, cell, shape)
        if record is None:
            return
        one = row(shape, cell.rowid, cell.types, record)
        if shape.table == "session_meta":
            self._metas.append((one, route))
        elif route not in _LAST_RESORTS:
            self._new.insert(one, route)
        elif one.unfit is None and self._is_of_an_event(one.values):
            self._new.insert(one, route, only_if_missing=True)

    def _is_of_an_event(self, producer: tuple[Any, ...]) -> bool:
        """Tell whether an event is of this producer: one of a last resort is else not believed."""
        query = (
            "SELECT 1 FROM events WHERE "
            "(producer_category, producer_name, producer_version) = (?, ?, ?) LIMIT 1"
        )
        return self._new.driver.execute(query, producer[:3]).fetchone() is not None

    def _record(
        self, page: bytes, cell: cells.Cell, shape: Shape, place: tuple[int, int] | None = None
    ) -> bytes | None:
        """Return the whole record of *cell*; None if its overflow pages do not add up to it.

        One whose chain leads on is looked at again later, if its *place* is given.
        """
        local = page[cell.header : cell.header + cell.local]
        if cell.local == cell.payload:
            return local
        chain = self._chains.follow(cell, local[-1:])
        if chain is None:
            return None
        if self._chains.leads_on(chain):
            if place is not None:
                self._unended.append((place, shape, cell))
            return None
        owner = (shape.table, cell.rowid)
        rivals = self._chains.rivals(chain, owner)
        if rivals and not self._outdoes(rivals, chain, shape, cell, local):
            return None
        self._chains.claim(chain, owner)
        if chain.behind:  # the page was hit there, and maybe elsewhere
            self._new.doubt(
                shape.table,
                f"{shape.table} {cell.rowid}: its last overflow page {chain.pages[-1]} was damaged",
            )
        return local + chain.content

    def _outdoes(
        self,
        rivals: set[chains.Owner],
        chain: chains.Chain,
        shape: Shape,
        cell: cells.Cell,
        local: bytes,
    ) -> bool:
        """Settle whose the overflow pages are that *cell* shares with saved rows: tell if its own.

        Where nothing says whose they are, none of the rows is kept.
        """
        if len(rivals) == 1 and self._is_copy(shape, cell, local, *rivals):
            return False
        verdicts = [self._chains.outdoes(chain, rival) for rival in rivals]
        if False not in verdicts:
            for table, sequence in rivals - {chains.CONTESTED}:
                self._new.remove(table, sequence, "its overflow pages are claimed by another row")
            if None not in verdicts:
                return True
            self._chains.claim(chain, chains.CONTESTED)
        self._new.note(f"{shape.table} {cell.rowid}: its overflow pages are another row's")
        return False

    def _is_copy(self, shape: Shape, cell: cells.Cell, local: bytes, other: chains.Owner) -> bool:
        """Tell whether a cell is a copy, under another number, of an event that is saved."""
        if shape.table != "events" or other[0] != "events":
            return False
        event_id = cells.first_text(local, cell.types)
        query = "SELECT CAST(id AS BLOB) FROM events WHERE sequence = ?"
        found = self._new.driver.execute(query, (other[1],)).fetchone()
        return found is not None and is_near(found[0], event_id)

    def _take_unended(self) -> None:
        """Look again at rows whose chains led on, now that it is known which row has which page."""
        unended, self._unended = self._unended, []
        for place, shape, cell in unended:
            page = self._images.image(*place)
            self._take_cells(place, page, shape, [cell], "page", (None, None))
        self._unended.clear()

    # -- numbers that nothing confirms ---------------------------------------------------------

    def _settle_doubts(self) -> None:
        """Give each doubtful row the number that an index or its neighbours know it by."""
        doubts, self._doubts = self._doubts, []
        ids_wanted = {one.event_id for one in doubts}
        numbers_wanted = {n for one in doubts for n in (one.number.value, one.number.likely)}
        by_id: dict[bytes, int] = {}
        by_number: defaultdict[int, set[bytes]] = defaultdict(set)
        if doubts:
            for text, sequence in self._witnesses():
                if text in ids_wanted:
                    by_id[text] = sequence
                if sequence in numbers_wanted:
                    by_number[sequence].add(text)
        doubted = {(one.shape.table, one.number.value) for one in doubts}
        for one in doubts:
            self._settle(one, by_id, by_number, doubted)

    def _settle(
        self,
        one: _Doubt,
        by_id: dict[bytes, int],
        by_number: Mapping[int, set[bytes]],
        doubted: set[tuple[str, int]],
    ) -> None:
        shape, number = one.shape, one.number
        record = self._record(self._images.image(*one.place), one.cell, shape)
        if record is None:
            return  # another row claimed its overflow pages meanwhile
        found = row(shape, number.value, one.cell.types, record)
        of_event = shape.table == "events"
        known = by_id.get(one.event_id) if of_event else self._place_by_event(found)
        if known is not None and not self._is_believable(shape, known, doubted):
            known = None  # the number was hit in the index
        believable = self._is_believable(shape, number.value, doubted)
        backed = of_event and _is_backed(found, by_number.get(number.value, set()))
        for wanted in (
            number.value if number.value in {known, number.likely} or backed else None,
            known,
            number.likely if not number.rising else None,
            number.value if believable and number.rising else None,
            number.likely,
            number.value if believable else None,
        ):
            if wanted is None or not is_row(wanted) or self._new.has(shape, wanted):
                continue
            if wanted != known and self._is_out_of_order(found, wanted):
                continue
            others = [text for text in by_number.get(wanted, ()) if of_event and is_id(text)]
            if wanted == known or not others or any(is_near(x, one.event_id) for x in others):
                self._new.insert(_renumbered(found, wanted), one.route)
                return
        if self._new.has(shape, number.value):
            self._new.insert(found, one.route)  # the same row twice, or one that contradicts it
        else:
            self._new.put_aside(found, "nothing confirms its sequence")

    def _is_believable(self, shape: Shape, number: int, doubted: set[tuple[str, int]]) -> bool:
        """Tell whether a number may have been given, though nothing in its page confirms it.

        The counter may be lost, or of an older image than the rows: they follow each other then.
        """
        stated = [*self._stated(shape.table), self._new.highest(shape.table)]
        if not is_row(number) or number <= (max(stated) or self._bound):
            return is_row(number)
        return any(
            (shape.table, near) in doubted or (is_row(near) and self._new.has(shape, near))
            for near in (number - 1, number + 1)
        )

    def _place_by_event(self, one: Row) -> int | None:
        """Return the only free number that its event leaves a ledger or plan row, if it is one.

        Their numbers rise with those of their events.
        """
        table, event = one.shape.table, one.values[1]
        below, above = self._new.around(table, event)
        if above is None:
            above = max(self._stated(table), default=below) + 1
        free = (n for n in range(below + 1, above) if not self._new.has(one.shape, n))
        found = [*islice(free, 2)]
        return found[0] if len(found) == 1 else None

    def _is_out_of_order(self, one: Row, number: int) -> bool:
        """Tell whether a ledger or plan row's event is not between those of its neighbours."""
        if one.shape.table == "events":
            return False
        event = one.values[1]
        (below, above) = self._new.driver.execute(
            f"SELECT (SELECT event_sequence FROM {one.shape.table} WHERE sequence < :number "
            "ORDER BY sequence DESC LIMIT 1), "
            f"(SELECT event_sequence FROM {one.shape.table} WHERE sequence > :number "
            "ORDER BY sequence LIMIT 1)",
            {"number": number},
        ).fetchone()
        return (below is not None and event < below) or (above is not None and event > above)

    def _highest(self, table: str) -> int:
        """Return the highest number that rows may have, by what is known of the table."""
        stated = self._stated(table)
        return max(*stated, self._new.highest(table)) if stated else self._bound

    def _stated(self, table: str) -> list[int]:
        """Return what ``sqlite_sequence`` says of the table, where it can be believed."""
        return [number for number in self._survey.stated[table] if number <= self._bound]

    # -- rows among unexplained bytes, and in images that newer ones hide ------------------------

    def _gaps(self) -> bool:
        """Tell whether anything can be missing."""
        for table in SEQUENCED:
            stated = self._stated(table)
            if not stated or any(True for _range in self._new.missing(table, max(stated))):
                return True
        return False

    def _learn_missing(self) -> None:
        """Ask the indexes what they know of the events that are not there."""
        gaps = list(self._new.missing("events", self._bound))
        starts = [first for first, _last in gaps]
        known = 0
        for text, number in self._witnesses():
            at = bisect_right(starts, number) - 1
            if at < 0 or number > gaps[at][1]:
                known += is_id(text)
            elif number <= self._bound:
                self._known_missing.setdefault(number, []).append(text)
        expected = self._new.routes["events"].total()
        if not expected:  # all are missing, so the counter must say how many ids there were
            known = sum(any(map(is_id, texts)) for texts in self._known_missing.values())
            expected = max(self._survey.stated["events"], default=0)
        self._index_is_whole = known >= _MOST * expected > 0

    def _witnesses(self) -> Iterator[tuple[bytes, int]]:
        """Return what the indexes say, without that of the session's own id."""
        own = self._session_id.encode()
        found = witnesses(self._images, self._survey.indexes)
        return ((text, number) for text, number in found if not is_near(text, own))

    def _put_events_right(self) -> None:
        event_ids.put_right(self._new, self._index_entries)
        event_columns.put_right(self._new, self._index_records)

    def _index_records(self) -> Iterator[list[Any]]:
        """Return what the indexes hold of the events: texts, and last the row's number."""
        # The index of the table of producers has records like that of the events' producers.
        alike = [page for page, name in self._survey.roots.items() if name == _ALIKE]
        lengths = {2, 4} if alike else {2}
        for number in self._survey.indexes:
            if number in alike:
                continue
            for record in cells.index_records(self._images.page(number), 0, self._images.usable):
                if len(record) in lengths and is_row(record[-1]):
                    yield record

    def _index_entries(self) -> Iterator[event_ids.Entries]:
        """Return what the index of ids says, by page, without the session's own id."""
        own = self._session_id.encode()
        for page in index_entries(self._images, self._survey.indexes):
            yield [entry for entry in page if entry[0] != own]

    def _carve(self) -> None:
        for number in self._survey.others:
            if number not in self._chains:
                self._take_carved(number, self._images.place(number))
        for number in self._survey.leaves:
            self._take_carved(number, self._images.place(number))
        for frame in self._images.log.broken if self._images.log else ():
            self._take_carved(frame.page, (LOG, frame.offset))

    def _take_carved(self, number: int, place: tuple[int, int]) -> None:
        page, header = self._images.image(*place), 100 if number == 1 else 0
        starts: list[int] = []
        if page[header] == cells.LEAF_TABLE:
            starts = cells.pointers(page, header, self._images.usable)
            explained = [(cell.start, cell.end) for cell in self._cells(number, place)]
            if not cells.holds_more(page, header, explained, self._images.usable):
                return
            page = unexplained(page, explained)
        # A page that begins with zero may be part of a payload, which may hold likenesses of rows.
        self._needs_witness = page[0] == 0 and number > 1
        for shape, cell in carve(page, self._images.usable, self._new.shapes.values(), starts):
            if not self._images.is_cut(*place, cell.end):
                self._take_if_missing(page, shape, cell, "carved")

    def _take_if_missing(
        self,
        page: bytes,
        shape: Shape,
        cell: cells.Cell,
        route: str,
        judged: Number | None = None,
    ) -> None:
        if shape.key is None:
            self._take_unnumbered(page, shape, cell, route)
            return
        number = cell.rowid
        if judged is not None and judged.likely is not None and not (judged.sure or judged.rising):
            number = judged.likely
        if not 0 < number <= self._bound or self._new.has(shape, number):
            return
        record = self._record(page, cell, shape)
        if record is None:
            return
        one = _renumbered(row(shape, cell.rowid, cell.types, record), number)
        if why := self._contradiction(one, number):
            self._new.put_aside(one, why)
        else:
            self._new.insert(one, route, only_if_missing=True)

    def _contradiction(self, one: Row, number: int) -> str | None:
        """Say what speaks against a row of the last resort: a payload may hold what looks like one.

        None if nothing does.
        """
        if one.shape.table == "events":
            texts = set(self._known_missing.get(number, ()))
            known = [text for text in texts if is_id(text)]
            if known and not any(is_near(text, _stored_id(one)) for text in known):
                return "the index of ids knows another event under its sequence"
            wanted = self._index_is_whole or self._needs_witness
            if wanted and not known and not _is_backed(one, texts):
                return "the index of ids does not know it"
            return None
        if number > self._highest(one.shape.table):
            return "its sequence was never given"
        if self._is_out_of_order(one, number):
            return "its event does not lie between those of its neighbours"
        return None

    def _take_older(self) -> None:
        for number, which, offset in self._older():
            page = self._images.image(which, offset)
            for shape, found in self._by_shape(self._cells(number, (which, offset))):
                for cell, judged in zip(found, numbers([c.rowid for c in found]), strict=True):
                    self._take_if_missing(page, shape, cell, "older image", judged)

    def _older(self) -> Iterator[tuple[int, int, int]]:
        yield from self._images.older
        for number in sorted(self._survey.free):
            yield number, *self._images.place(number)
        if self._images.log:
            for frame in reversed((*self._images.log.stale, *self._images.log.broken)):
                yield frame.page, LOG, frame.offset

    # -- what follows from other rows -----------------------------------------------------------

    def _counters(self) -> dict[str, int]:
        """Return the highest number that any trace shows, by table."""
        highest = {
            table: max([self._new.highest(table), *self._stated(table)]) for table in SEQUENCED
        }
        traces = [
            number
            for number, texts in self._known_missing.items()
            for _text in texts
            if number > highest["events"]
        ]
        for table, column in (
            ("cost_ledger", "event_sequence"),
            ("plan_items", "event_sequence"),
            ("producers", "first_seen_sequence"),
        ):
            query = f"SELECT {column} FROM {table} WHERE {column} > ? AND {column} <= ?"
            traces += [
                number
                for (number,) in self._new.driver.execute(query, (highest["events"], self._bound))
            ]
        highest["events"] = max([highest["events"], *_confirmed(traces)])
        while highest["events"] + 1 in self._known_missing:
            highest["events"] += 1
        for table, numbers_there in self._numbers_in_tail().items():
            while highest[table] + 1 in numbers_there:
                highest[table] += 1
        return highest

    def _numbers_in_tail(self) -> dict[str, set[int]]:
        """Return the sequences, by table, in a last transaction that may have been acknowledged.

        Its rows are not saved, since it may as well have been torn; but nobody may get their
        numbers, and the report counts them as missing.
        """
        found: dict[str, set[int]] = {table: set() for table in SEQUENCED}
        for frame in self._images.log.tail if self._images.log else ():
            page = self._images.image(LOG, frame.offset)
            if frame.page == 1 or page[0] != cells.LEAF_TABLE:
                continue
            for cell in cells.leaf_cells(page, 0, self._images.usable):
                shape = shape_of(self._new.shapes, cell.types)
                if shape is not None and shape.key is not None:
                    found[shape.table].add(cell.rowid)
        return found

    def _note_missing_events(self, missing: Sequence[tuple[int, int]]) -> None:
        """Say what the indexes still know of lost events."""
        numbers = (number for first, last in missing for number in range(first, last + 1))
        for number in islice((one for one in numbers if one in self._known_missing), 50):
            texts = (text.decode(errors="replace") for text in self._known_missing[number])
            self._new.note(f"events sequence {number} is lost; known of it: {', '.join(texts)}")

    def _table(self, name: str, missing: tuple[tuple[int, int], ...]) -> TableRecovery:
        column = {"cost_ledger": "event_sequence", "plan_items": "event_sequence"}.get(name)
        column = "first_seen_sequence" if name == "producers" else column
        (kept,) = self._new.driver.execute(f"SELECT count(*) FROM {name}").fetchone()
        orphaned = 0
        if column:
            (orphaned,) = self._new.driver.execute(
                f"SELECT count(*) FROM {name} WHERE {column} NOT IN (SELECT sequence FROM events)"
            ).fetchone()
        return TableRecovery(
            table=name,
            kept=kept,
            missing=missing,
            routes=dict(self._new.routes[name]),
            repaired=self._new.repaired[name],
            doubtful=self._new.doubtful[name],
            orphaned=orphaned,
            set_aside=self._new.set_aside[name],
        )


def _stored_id(one: Row) -> bytes:
    return str(one.values[1]).encode() if one.shape.table == "events" else b""


def _is_backed(event: Row, known: set[bytes]) -> bool:
    """Tell whether the indexes know an event's number by its kind and its producer, not by an id.

    Then the number in the index of ids is the one that was hit.
    """
    kind, category = event.values[3:5]
    return {str(kind).encode(), str(category).encode()} <= known and not any(map(is_id, known))


def _renumbered(one: Row, number: int) -> Row:
    key = one.shape.key
    assert key is not None
    if one.values[key] == number:
        return one
    values = (*one.values[:key], number, *one.values[key + 1 :])
    repaired = (*one.repaired, f"sequence (was {one.values[key]})")
    return replace(one, values=values, repaired=repaired)


def _confirmed(traces: list[int]) -> list[int]:
    """Return the numbers that more than one trace shows; one alone may be damage itself."""
    return [number for number, count in Counter(traces).items() if count > 1] or [0]
