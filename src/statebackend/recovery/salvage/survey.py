"""A first look over all pages: which is what, who points to whom, which numbers were given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.images import Images
from statebackend.recovery.salvage.shapes import SEQUENCED, Shape
from statebackend.values.recorded import EventKind, ProducerCategory

_WORDS = {word.value.encode() for words in (EventKind, ProducerCategory) for word in words}
_LEAST_ID_CHARACTERS = 8
_DAMAGED_CHARACTERS = 4
Bounds = tuple[int | None, int | None]


@dataclass(slots=True)
class Survey:
    """What the first look found.

    ``leaves`` are the pages of tables that hold rows, those first that a tree reaches; ``others``
    are pages of no sound kind. ``bounds`` gives, for a page that one interior page points to, the
    row number below and the highest one in it, None where that page does not say. ``roots`` gives
    the table that ``sqlite_schema`` says begins in a page, ``stated`` what ``sqlite_sequence`` says
    was the last number given.
    """

    leaves: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    others: list[int] = field(default_factory=list)
    free: frozenset[int] = frozenset()
    bounds: dict[int, Bounds] = field(default_factory=dict)
    roots: dict[int, str] = field(default_factory=dict)
    stated: dict[str, list[int]] = field(default_factory=lambda: {one: [] for one in SEQUENCED})


def survey(images: Images) -> Survey:
    """Look at every page that counts."""
    found = Survey(free=images.freelist())
    orphans: list[int] = []
    leaves: list[int] = []
    twice: set[int] = set()
    for number, page in images.pages():
        header = 100 if number == 1 else 0
        kind = page[header]
        if kind == cells.LEAF_TABLE:
            if number not in found.free:
                leaves.append(number)
            if number == 1 or page[3:5] < b"\0\x40":
                _small_leaf(found, page, header, images.usable)
        elif kind == cells.INTERIOR_TABLE and _look_down(found, twice, page, header, images):
            pass
        elif kind in {cells.LEAF_INDEX, cells.INTERIOR_INDEX}:
            found.indexes.append(number)
        elif number not in found.free:
            found.others.append(number)
    for child in twice:
        found.bounds.pop(child, None)
    for number in leaves:
        (found.leaves if number in found.bounds or number in found.roots else orphans).append(
            number
        )
    found.leaves += orphans
    return found


def _small_leaf(found: Survey, page: bytes, header: int, usable: int) -> None:
    """Take roots from ``sqlite_schema`` and counters from ``sqlite_sequence``."""
    for cell in cells.leaf_cells(page, header, usable):
        if cell.local < cell.payload:
            continue
        if len(cell.types) == 2:
            read_counter(found, cell, page)
        elif len(cell.types) == 5 and header:
            record = page[cell.header : cell.header + cell.local]
            _kind, name, _table, root, _sql = cells.values(record, cell.types)
            if isinstance(root, int) and isinstance(name, bytes):
                found.roots[root] = name.decode(errors="replace")


def read_counter(found: Survey, cell: cells.Cell, page: bytes) -> None:
    """Note a row of ``sqlite_sequence``, if the cell is one."""
    record = page[cell.header : cell.header + cell.local]
    name, number = cells.values(record, cell.types)
    if isinstance(name, bytes) and isinstance(number, int) and number > 0:
        table = name.decode(errors="replace")
        if table in found.stated:
            found.stated[table].append(number)


def _look_down(found: Survey, twice: set[int], page: bytes, header: int, images: Images) -> bool:
    """Take the bounds of the pages below an interior one; tell whether it is a sound one."""
    below = cells.children(page, header, images.usable)
    if len(below) < 2 or any(not 1 < child <= images.page_count for child, _key in below):
        return False
    lower: int | None = None
    for child, key in below:
        if child in found.bounds:
            twice.add(child)
        found.bounds[child] = (lower, key)
        lower = key
    return True


def witnesses(images: Images, indexes: list[int]) -> Iterator[tuple[bytes, int]]:
    """Return (text, row number) out of the indexes: the text is an id, a kind or a category."""
    for number in indexes:
        page = images.page(number)
        for record in cells.index_records(page, 100 if number == 1 else 0, images.usable):
            if len(record) in {2, 4} and isinstance(record[0], bytes) and is_row(record[-1]):
                yield record[0], record[-1]


def index_entries(images: Images, indexes: list[int]) -> Iterator[list[tuple[bytes, int]]]:
    """Return the entries (text, row number) of each page of an index of ids, in their order.

    A page whose first two entries have no id is of another index, and not read on.
    """
    for number in indexes:
        records = cells.index_records(images.page(number), 0, images.usable)
        first = list(islice(records, 2))
        if any(map(_is_of_ids, first)):
            yield [(one[0], one[1]) for one in chain(first, records) if _is_of_ids(one)]


def _is_of_ids(record: list[Any]) -> bool:
    if len(record) != 2:
        return False
    text, number = record
    return isinstance(text, bytes) and is_row(number) and not is_word(text)


def is_word(text: bytes) -> bool:
    """Tell whether an index's text is a kind of event or a producer's category, not an id."""
    return text in _WORDS


def is_id(text: bytes) -> bool:
    """Tell whether an index's text is an event's id."""
    return len(text) >= _LEAST_ID_CHARACTERS and not is_word(text)


def is_near(one: bytes | str, other: bytes | str) -> bool:
    """Tell whether two texts are the same but for a few damaged characters."""
    differing = sum(a != b for a, b in zip(one, other, strict=False))
    return len(one) == len(other) and differing <= _DAMAGED_CHARACTERS


def shape_of(shapes: dict[str, Shape], types: tuple[int, ...]) -> Shape | None:
    """Return the table whose rows look like this; None if none does."""
    return next((shape for shape in shapes.values() if shape.fits(types)), None)


def is_row(value: Any) -> bool:
    """Tell whether *value* can be a sequence."""
    return isinstance(value, int) and 0 < value < 1 << 63
