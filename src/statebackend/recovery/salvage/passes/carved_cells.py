"""Rows among bytes that no page structure explains."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.evidence import Evidence, header_offset
from statebackend.recovery.salvage.images import WAL, Place
from statebackend.recovery.salvage.last_resort import save_if_missing
from statebackend.recovery.salvage.shapes import Shape
from statebackend.recovery.salvage.target import Target


def run(evidence: Evidence, target: Target) -> None:
    """Save missing rows by the look of their record headers, wherever they lie in a page.

    Answers a page header or a cell pointer that was overwritten.
    """
    for page in evidence.survey.others:
        if not evidence.chains.has_owner(page):
            _carve_page(evidence, target, page, evidence.images.place(page))
    for page in evidence.survey.leaves:
        _carve_page(evidence, target, page, evidence.images.place(page))
    for frame in evidence.images.wal.broken if evidence.images.wal else ():
        _carve_page(evidence, target, frame.page, Place(WAL, frame.offset))


def _carve_page(evidence: Evidence, target: Target, page: int, place: Place) -> None:
    image, header, usable = (
        evidence.images.image(place),
        header_offset(page),
        evidence.images.usable,
    )
    starts: list[int] = []
    if image[header] == cells.LEAF_TABLE:
        starts = cells.pointers(image, header, usable)
        read = [(cell.start, cell.end) for cell in evidence.leaf_cells(page, place)]
        if not cells.has_unread_cells(image, header, read, usable):
            return
        image = _blank_out(image, read)
    # A page that begins with zero may be an overflow page, so its payload may look like rows.
    must_be_indexed = image[0] == 0 and page > 1
    for shape, cell in _carve(image, usable, evidence.shapes.values(), starts):
        if not evidence.images.is_cut(place, cell.end):
            save_if_missing(
                evidence,
                target,
                image,
                shape,
                cell,
                route="carved",
                must_be_indexed=must_be_indexed,
            )


def _blank_out(page: bytes, ranges: Iterable[tuple[int, int]]) -> bytes:
    blanked = bytearray(page)
    for start, end in ranges:
        blanked[start:end] = b"\xff" * (end - start)
    return bytes(blanked)


def _carve(
    page: bytes, usable: int, shapes: Iterable[Shape], starts: Container[int]
) -> Iterator[tuple[Shape, cells.Cell]]:
    """Return the cells anywhere in *page*, by the headers of their records.

    Before the header stands the rowid, and before that the payload size that follows from the
    header: both must be there. *starts* are the cell pointers of the page.
    """
    for shape in shapes:
        for match in shape.pattern().finditer(page, 0, usable):
            cell = _read_cell_before(page, match.start(), usable, starts)
            if cell is not None and shape.fits(cell.types):
                yield shape, cell


def _read_cell_before(
    page: bytes, header: int, usable: int, starts: Container[int]
) -> cells.Cell | None:
    for rowid_bytes in range(1, 10):
        rowid_at = header - rowid_bytes
        if rowid_at < 1 or (rowid_bytes > 1 and page[rowid_at] < 0x80):
            return None
        if cells.read_varint(page, rowid_at)[1] == header:
            cell = _read_cell_at(page, header, rowid_at, usable, starts)
            if cell is not None:
                return cell
    return None


def _read_cell_at(
    page: bytes, header: int, rowid_at: int, usable: int, starts: Container[int]
) -> cells.Cell | None:
    """Return the cell whose payload size ends at *rowid_at*.

    The one that a pointer leads to, else the shortest: the last bytes of a size are a size too,
    which fits a header where the same bit is damaged.
    """
    shortest = None
    for size_bytes in (1, 2, 3, 4, 5):
        start = rowid_at - size_bytes
        if start < 0 or (size_bytes > 1 and page[start] < 0x80):
            break
        if cells.read_varint(page, start)[1] == rowid_at:
            cell = cells.read_cell(page, start, usable)
            if cell is not None and cell.header != header:
                cell = None
            if start in starts:
                return cell
            shortest = shortest or cell
    return shortest
