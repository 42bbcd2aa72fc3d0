"""The first reading of all pages: their kinds, the b-trees above them, counters and rowids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.images import Images
from statebackend.values.tables import SEQUENCED

Bounds = tuple[int | None, int | None]


@dataclass(slots=True)
class Survey:
    """What the pages say about each other.

    ``leaves`` are the table leaves, those first that a tree reaches; ``others`` are pages of no
    valid kind. ``bounds`` gives, for a page that exactly one interior page points to, the rowid
    before its first and its highest rowid, None where that page does not say. ``roots`` names the
    table or index whose root is a page, by ``sqlite_schema``. ``counters`` are the values in
    ``sqlite_sequence``.
    """

    leaves: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    others: list[int] = field(default_factory=list)
    free: frozenset[int] = frozenset()
    bounds: dict[int, Bounds] = field(default_factory=dict)
    roots: dict[int, str] = field(default_factory=dict)
    counters: dict[str, list[int]] = field(
        default_factory=lambda: {table: [] for table in SEQUENCED}
    )

    def is_reached(self, page: int) -> bool:
        """Return whether an interior page or ``sqlite_schema`` points to a page."""
        return page in self.bounds or page in self.roots


def survey(images: Images) -> Survey:
    """Read the current image of every page."""
    result = Survey(free=images.freelist())
    bounds: defaultdict[int, list[Bounds]] = defaultdict(list)
    for number in range(1, images.page_count + 1):
        page, header = images.page(number), header_offset(number)
        kind = page[header]
        if kind == cells.LEAF_TABLE:
            if number not in result.free:
                result.leaves.append(number)
            if number == 1 or page[3:5] < b"\0\x40":
                _read_system_tables(result, page, header, images.usable)
        elif kind == cells.INTERIOR_TABLE and (children := _read_children(images, page, header)):
            lower = None
            for child, upper in children:
                bounds[child].append((lower, upper))
                lower = upper
        elif kind in {cells.LEAF_INDEX, cells.INTERIOR_INDEX}:
            result.indexes.append(number)
        elif number not in result.free:
            result.others.append(number)
    result.bounds = {child: given[0] for child, given in bounds.items() if len(given) == 1}
    result.leaves.sort(key=lambda number: not result.is_reached(number))
    return result


def header_offset(page: int) -> int:
    """Return where the b-tree header of *page* starts: page 1 begins with the file's header."""
    return 100 if page == 1 else 0


def _read_system_tables(result: Survey, page: bytes, header: int, usable: int) -> None:
    """Take roots from ``sqlite_schema`` and counters from ``sqlite_sequence``."""
    for cell in cells.leaf_cells(page, header, usable):
        if len(cell.record) < cell.payload:
            continue
        values = cells.read_values(cell.record, cell.types)
        if len(values) == 2:
            name, number = values
            table = name.decode(errors="replace") if isinstance(name, bytes) else ""
            if isinstance(number, int) and number > 0 and table in result.counters:
                result.counters[table].append(number)
        elif len(values) == 5 and header:
            _kind, name, _table, root, _sql = values
            if isinstance(root, int) and isinstance(name, bytes):
                result.roots[root] = name.decode(errors="replace")


def _read_children(images: Images, page: bytes, header: int) -> list[tuple[int, int | None]]:
    """Return the children of an interior page and their bounds, none unless all are valid."""
    children = cells.children(page, header, images.usable)
    valid = len(children) > 1 and all(1 < child <= images.page_count for child, _key in children)
    return children if valid else []


@dataclass(frozen=True, slots=True)
class PageRowid:
    """A rowid, and whether the rowids beside it confirm it: in an undamaged file they rise by one.

    ``confirmed`` if a neighbour or the bounds of the page confirm it. ``expected`` is the rowid
    that follows from both neighbours, or from the only one; None if they do not agree.
    ``ascending`` if it is above the rowid before and below the one after it.
    """

    value: int
    confirmed: bool
    expected: int | None
    ascending: bool


def judge_rowids(rowids: Sequence[int], bounds: Bounds = (None, None)) -> list[PageRowid]:
    """Compare the rowids of one page, in the order of its cells, with each other."""
    lower, upper = bounds
    judged = []
    for at, value in enumerate(rowids):
        before = rowids[at - 1] if at else None
        after = rowids[at + 1] if at + 1 < len(rowids) else None
        adjacent = before == value - 1 or after == value + 1
        ascending = (before is None or before < value) and (after is None or value < after)
        within = lower is not None and upper is not None and lower < value <= upper
        confirmed = adjacent or (within and ascending)
        judged.append(PageRowid(value, confirmed, _expect(before, after), ascending))
    return judged


def _expect(before: int | None, after: int | None) -> int | None:
    if before is not None and after is not None:
        return before + 1 if after - before == 2 else None
    if before is not None:
        return before + 1
    return None if after is None else after - 1
