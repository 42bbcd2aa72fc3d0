"""The first reading of all pages: their kinds, the b-trees above them, the counters."""

from __future__ import annotations

from dataclasses import dataclass, field

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.images import Images
from statebackend.recovery.salvage.shapes import SEQUENCED

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
        """Tell whether an interior page or ``sqlite_schema`` points to a page."""
        return page in self.bounds or page in self.roots


def survey(images: Images) -> Survey:
    """Read the current image of every page."""
    result = Survey(free=images.freelist())
    leaves: list[int] = []
    ambiguous: set[int] = set()
    for number, page in images.pages():
        header = 100 if number == 1 else 0
        kind = page[header]
        if kind == cells.LEAF_TABLE:
            if number not in result.free:
                leaves.append(number)
            if number == 1 or page[3:5] < b"\0\x40":
                _read_system_tables(result, page, header, images.usable)
        elif kind == cells.INTERIOR_TABLE and _read_bounds(result, ambiguous, page, header, images):
            pass
        elif kind in {cells.LEAF_INDEX, cells.INTERIOR_INDEX}:
            result.indexes.append(number)
        elif number not in result.free:
            result.others.append(number)
    for child in ambiguous:
        result.bounds.pop(child, None)
    result.leaves = sorted(leaves, key=lambda number: not result.is_reached(number))
    return result


def _read_system_tables(result: Survey, page: bytes, header: int, usable: int) -> None:
    """Take roots from ``sqlite_schema`` and counters from ``sqlite_sequence``."""
    for cell in cells.leaf_cells(page, header, usable):
        if cell.local < cell.payload:
            continue
        record = page[cell.header : cell.header + cell.local]
        if len(cell.types) == 2:
            _read_counter(result, *cells.read_values(record, cell.types))
        elif len(cell.types) == 5 and header:
            _kind, name, _table, root, _sql = cells.read_values(record, cell.types)
            if isinstance(root, int) and isinstance(name, bytes):
                result.roots[root] = name.decode(errors="replace")


def _read_counter(result: Survey, name: object, number: object) -> None:
    if isinstance(name, bytes) and isinstance(number, int) and number > 0:
        table = name.decode(errors="replace")
        if table in result.counters:
            result.counters[table].append(number)


def _read_bounds(
    result: Survey, ambiguous: set[int], page: bytes, header: int, images: Images
) -> bool:
    """Take the bounds of an interior page's children; tell whether the page is valid."""
    children = cells.children(page, header, images.usable)
    if len(children) < 2 or any(not 1 < child <= images.page_count for child, _key in children):
        return False
    lower: int | None = None
    for child, key in children:
        if child in result.bounds:
            ambiguous.add(child)
        result.bounds[child] = (lower, key)
        lower = key
    return True
