"""What all passes share: the pages, and what they say about each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.cells import Cell
from statebackend.recovery.salvage.images import Images, Place
from statebackend.recovery.salvage.overflow import OverflowChains
from statebackend.recovery.salvage.shapes import Row, Shape, almost_equal, is_sequence, is_word
from statebackend.recovery.salvage.survey import PageRowid, Survey, header_offset, survey

IdEntries = list[tuple[bytes, int]]
"""The entries (id, sequence) of one page of the index of ids, in its order."""

_LEAST_ROW_BYTES = 12
_PRODUCERS_INDEX = "sqlite_autoindex_producers_1"


@dataclass(frozen=True, slots=True)
class UnconfirmedRow:
    """A row whose rowid its page does not confirm; ``start`` is where its cell lies in the page.

    The cell is read again when the rowid is settled: a session may have many such rows.
    """

    place: Place
    start: int
    shape: Shape
    event_id: bytes
    rowid: PageRowid
    route: str


@dataclass(slots=True)
class Evidence:
    """The bytes of a damaged session, what they say about each other, and what passes leave open.

    ``max_sequence`` is the highest sequence that a file of this size can hold.

    Passes leave to later ones: ``unconfirmed`` rows; the rows of ``session_meta`` (``metas``), the
    most reliable first; the index texts of each sequence in ``missing_events``; whether the index
    of ids is complete; and whether the session is incomplete, so that last resorts run.
    """

    session_id: str
    images: Images
    shapes: dict[str, Shape]
    survey: Survey
    chains: OverflowChains
    max_sequence: int
    unconfirmed: list[UnconfirmedRow] = field(default_factory=list)
    metas: list[tuple[Row, str]] = field(default_factory=list)
    missing_events: dict[int, list[bytes]] = field(default_factory=dict)
    ids_complete: bool = False
    incomplete: bool = False

    def leaf_cells(self, page: int, place: Place | None = None) -> Iterator[Cell]:
        """Return the cells in an image of *page*, the current one by default, if it is a leaf."""
        place = place or self.images.place(page)
        image, header = self.images.image(place), header_offset(page)
        if image[header] == cells.LEAF_TABLE:
            for cell in cells.leaf_cells(image, header, self.images.usable):
                if not self.images.is_cut(place, cell.end):
                    yield cell

    def find_shape(self, cell: Cell) -> Shape | None:
        """Return the table that a cell fits, None if there is none."""
        return next((shape for shape in self.shapes.values() if shape.fits(cell.types)), None)

    def group_by_table(self, page_cells: Iterable[Cell]) -> Iterable[tuple[Shape, list[Cell]]]:
        """Return the cells of a page by the table that they fit."""
        by_table: dict[Shape, list[Cell]] = {}
        for cell in page_cells:
            if (shape := self.find_shape(cell)) is not None:
                by_table.setdefault(shape, []).append(cell)
        return by_table.items()

    def index_records(self, page: int) -> Iterator[list[Any]]:
        """Return the records of an index page: texts, then the sequence."""
        image = self.images.page(page)
        for record in cells.index_records(image, header_offset(page), self.images.usable):
            if len(record) in {2, 4} and is_sequence(record[-1]):
                yield record

    def first_index_texts(self) -> Iterator[tuple[bytes, int]]:
        """Return (text, sequence) of all index entries: the text is an id, a kind or a category."""
        own = self.session_id.encode()
        for page in self.survey.indexes:
            for text, *_texts, sequence in self.index_records(page):
                if isinstance(text, bytes) and not almost_equal(text, own):
                    yield text, sequence

    def id_entries(self) -> Iterator[IdEntries]:
        """Return the entries of each page of the index of ids.

        A page whose first two records hold no id belongs to another index.
        """
        own = self.session_id.encode()
        for page in self.survey.indexes:
            image = self.images.page(page)
            records = cells.index_records(image, 0, self.images.usable)
            first = list(islice(records, 2))
            if any(map(_has_id, first)):
                entries = [tuple(record) for record in chain(first, records) if _has_id(record)]
                yield [(text, sequence) for text, sequence in entries if text != own]

    def event_records(self) -> Iterator[list[Any]]:
        """Return the records of the indexes of events."""
        # The records of the index of producers look like those of the events' producers.
        alike = [page for page, name in self.survey.roots.items() if name == _PRODUCERS_INDEX]
        for page in self.survey.indexes:
            if page not in alike:
                for record in self.index_records(page):
                    if alike or len(record) == 2:
                        yield record

    def counters(self, table: str) -> list[int]:
        """Return the plausible values of a table's counter in ``sqlite_sequence``."""
        return [number for number in self.survey.counters[table] if number <= self.max_sequence]


def gather(images: Images, shapes: dict[str, Shape], session_id: str) -> Evidence:
    """Read the current images once, and return the evidence."""
    pages, page_count = survey(images), images.page_count
    if images.stated_pages <= 64 * max(page_count, 1024):  # otherwise the header is damaged
        page_count = max(page_count, images.stated_pages)
    return Evidence(
        session_id=session_id,
        images=images,
        shapes=shapes,
        survey=pages,
        chains=OverflowChains(images, pages.free),
        max_sequence=page_count * images.page_size // _LEAST_ROW_BYTES,
    )


def _has_id(record: list[Any]) -> bool:
    if len(record) != 2:
        return False
    text, sequence = record
    return isinstance(text, bytes) and is_sequence(sequence) and not is_word(text)
