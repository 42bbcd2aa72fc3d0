"""Rows among bytes that no page structure explains."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.shapes import Shape


def carve(
    page: bytes, usable: int, shapes: Iterable[Shape], starts: Container[int] = ()
) -> Iterator[tuple[Shape, cells.Cell]]:
    """Return the cells that *page* holds anywhere, found by the headers of their records.

    Before the header stands the number of the row, and before that the size that follows from the
    header: both must be there. *starts* are places where the page says that a cell starts.
    """
    for shape in shapes:
        for matched in shape.pattern().finditer(page, 0, usable):
            found = _cell_before(page, matched.start(), usable, starts)
            if found is not None and shape.fits(found.types):
                yield shape, found


def _cell_before(
    page: bytes, header: int, usable: int, starts: Container[int]
) -> cells.Cell | None:
    for rowid_bytes in range(1, 10):
        rowid_at = header - rowid_bytes
        if rowid_at < 1 or (rowid_bytes > 1 and page[rowid_at] < 0x80):
            return None
        if cells.varint(page, rowid_at)[1] == header:
            found = _cell_of_size(page, header, rowid_at, usable, starts)
            if found is not None:
                return found
    return None


def _cell_of_size(
    page: bytes, header: int, rowid_at: int, usable: int, starts: Container[int]
) -> cells.Cell | None:
    """Return the cell whose size ends at *rowid_at*: the shortest that fits, if none is to start.

    The last bytes of a size are a size as well, which fits a header where the same bit is gone.
    """
    shortest = None
    for size_bytes in (1, 2, 3, 4, 5):
        start = rowid_at - size_bytes
        if start < 0 or (size_bytes > 1 and page[start] < 0x80):
            break
        if cells.varint(page, start)[1] == rowid_at:
            found = cells.cell(page, start, usable)
            if found is not None and found.header != header:
                found = None
            if start in starts:
                return found
            shortest = shortest or found
    return shortest


def unexplained(page: bytes, explained: Iterable[tuple[int, int]]) -> bytes:
    """Return *page* with its explained ranges (start, end) blanked out."""
    blanked = bytearray(page)
    for start, end in explained:
        blanked[start:end] = b"\xff" * (end - start)
    return bytes(blanked)
