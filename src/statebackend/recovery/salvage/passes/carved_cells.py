"""Rows among bytes that no page structure explains."""

from __future__ import annotations

from collections.abc import Container

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.images import WAL, Place
from statebackend.recovery.salvage.records import save_if_missing
from statebackend.recovery.salvage.survey import header_offset
from statebackend.recovery.salvage.target import Target


def run(evidence: Evidence, target: Target) -> None:
    """Save missing rows by the pattern of their record headers, anywhere in a page.

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
    usable, header = evidence.images.usable, header_offset(page)
    image = evidence.images.image(place)
    starts: list[int] = []
    if image[header] == cells.LEAF_TABLE:
        starts = cells.pointers(image, header, usable)
        read = list(evidence.leaf_cells(page, place))
        if not cells.has_unread_cells(image, header, read, usable):
            return
        blanked = bytearray(image)
        for known in read:
            blanked[known.start : known.end] = b"\xff" * (known.end - known.start)
        image = bytes(blanked)
    # A page that begins with zero may be an overflow page, so its payload may look like rows.
    must_be_indexed = image[0] == 0 and page > 1
    for shape in evidence.shapes.values():
        for match in shape.pattern().finditer(image, 0, usable):
            cell = _read_cell_before(image, match.start(), usable, starts)
            if (
                cell is not None
                and shape.fits(cell.types)
                and not evidence.images.is_cut(place, cell.end)
            ):
                save_if_missing(
                    evidence,
                    target,
                    shape,
                    cell,
                    route="carved",
                    sequence=cell.rowid,
                    must_be_indexed=must_be_indexed,
                )


def _read_cell_before(
    page: bytes, header: int, usable: int, starts: Container[int]
) -> cells.Cell | None:
    """Return the cell of the record header at *header*, None if there is none."""
    # Before the header stands the rowid, and before that the payload size that follows from the
    # header: both must be there. *starts* are the cell pointers of the page.
    for rowid_at in range(header - 1, max(header - 10, 0), -1):
        if rowid_at < header - 1 and page[rowid_at] < 0x80:
            return None
        if cells.read_varint(page, rowid_at)[1] == header:
            cell = _read_cell_at(page, rowid_at, usable, starts)
            if cell is not None:
                return cell
    return None


def _read_cell_at(
    page: bytes, rowid_at: int, usable: int, starts: Container[int]
) -> cells.Cell | None:
    """Return the cell whose payload size ends at *rowid_at*."""
    # The cell that a pointer leads to, else the shortest: the last bytes of a size are a size too,
    # which fits a header where the same bit is damaged.
    shortest = None
    for start in range(rowid_at - 1, max(rowid_at - 6, -1), -1):
        if start < rowid_at - 1 and page[start] < 0x80:
            break
        if cells.read_varint(page, start)[1] == rowid_at:
            cell = cells.read_cell(page, start, usable)
            if start in starts:
                return cell
            shortest = shortest or cell
    return shortest
