"""The cells of b-tree pages and the records in them, read from bytes that may be damaged.

A cell counts only if its lengths add up. The format is SQLite's ("Database File Format", parts 1.6
and 2).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

LEAF_TABLE, INTERIOR_TABLE, LEAF_INDEX, INTERIOR_INDEX = 0x0D, 0x05, 0x0A, 0x02
TREE_PAGES = frozenset({LEAF_TABLE, INTERIOR_TABLE, LEAF_INDEX, INTERIOR_INDEX})

_FRAGMENTS = 64
_SMALL_BYTES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_REAL, _ZERO, _ONE = 7, 8, 9


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table leaf, which lies in its page from ``start`` to ``end`` (bytes).

    ``record`` is the part of its record in the page, ``types`` are the serial types in that, and
    ``payload`` is the size of the whole record (bytes). ``overflow`` is the first page of the
    overflow chain, 0 without one.
    """

    start: int
    end: int
    rowid: int
    types: tuple[int, ...]
    payload: int
    record: bytes
    overflow: int


def read_varint(page: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer at *at* and where it ends; IndexError past the page."""
    value = 0
    for count in range(8):
        byte = page[at + count]
        if byte < 0x80:
            return (value << 7) | byte, at + count + 1
        value = (value << 7) | (byte & 0x7F)
    value = (value << 8) | page[at + 8]
    return (value - (1 << 64) if value >> 63 else value), at + 9


def local_size(payload: int, usable: int, *, index: bool = False) -> int:
    """Return how many bytes of a record of *payload* bytes lie in its own page."""
    most = ((usable - 12) * 64 // 255 - 23) if index else usable - 35
    if payload <= most:
        return payload
    least = (usable - 12) * 32 // 255 - 23
    wanted = least + (payload - least) % (usable - 4)
    return wanted if wanted <= most else least


def value_bytes(serial_type: int) -> int:
    """Return how many bytes a value of *serial_type* takes."""
    return (serial_type - 12) >> 1 if serial_type >= 12 else _SMALL_BYTES[serial_type]


def read_cell(page: bytes, start: int, usable: int) -> Cell | None:
    """Return the cell of a table leaf at *start*, None if the bytes are not a cell."""
    overflow = 0
    try:
        payload, at = read_varint(page, start)
        rowid, at = read_varint(page, at)
        if payload < 2:
            return None
        local = local_size(payload, usable)
        end = at + local
        if local < payload:
            (overflow,) = struct.unpack_from(">I", page, end)
            end += 4
        types = _read_types(page, at, at + local, payload) if end <= usable else None
    except (IndexError, struct.error):
        return None
    if not types:
        return None
    return Cell(start, end, rowid, types, payload, page[at : at + local], overflow)


def _read_types(page: bytes, header: int, limit: int, payload: int) -> tuple[int, ...] | None:
    """Return the serial types of the record at *header*, None unless the lengths add up."""
    size, at = read_varint(page, header)
    end = header + size
    if end > limit or size < 2:
        return None
    types, body = [], 0
    while at < end:
        serial_type, at = read_varint(page, at)
        if serial_type < 0 or serial_type in {10, 11}:
            return None
        body += value_bytes(serial_type)
        types.append(serial_type)
    return tuple(types) if at == end and size + body == payload else None


def read_values(record: bytes, types: tuple[int, ...]) -> list[Any]:
    """Return the values of a whole *record*; texts stay bytes."""
    at, _end = read_varint(record, 0)
    result: list[Any] = []
    for serial_type in types:
        raw = record[at : at + value_bytes(serial_type)]
        at += len(raw)
        if serial_type >= 12:
            result.append(raw)
        elif serial_type == 0:
            result.append(None)
        elif serial_type == _REAL:
            result.append(struct.unpack(">d", raw)[0])
        elif serial_type in (_ZERO, _ONE):
            result.append(serial_type - _ZERO)
        else:
            result.append(int.from_bytes(raw, "big", signed=True))
    return result


def pointers(page: bytes, header: int, usable: int) -> list[int]:
    """Return the cell pointers of a b-tree page whose header is at *header* (100 on page 1)."""
    first = header + (12 if page[header] in (INTERIOR_TABLE, INTERIOR_INDEX) else 8)
    (count,) = struct.unpack_from(">H", page, header + 3)
    count = min(count, (usable - first) // 2)
    starts = struct.unpack_from(f">{count}H", page, first)
    return [start for start in starts if first + 2 * count <= start < usable]


def leaf_cells(page: bytes, header: int, usable: int) -> Iterator[Cell]:
    """Return the valid cells of a table leaf, in the order of its pointers."""
    cells = (read_cell(page, start, usable) for start in pointers(page, header, usable))
    return (cell for cell in cells if cell is not None)


def first_text(cell: Cell) -> bytes:
    """Return the first text of a cell as it is stored; columns without bytes precede it."""
    at, _end = read_varint(cell.record, 0)
    serial_type = next((serial_type for serial_type in cell.types if serial_type >= 12), 12)
    return cell.record[at : at + value_bytes(serial_type)]


def has_unread_cells(page: bytes, header: int, read: Sequence[Cell], usable: int) -> bool:
    """Return whether a table leaf holds bytes of other cells than those *read*."""
    count, content = struct.unpack_from(">HH", page, header + 3)
    covered = sum(cell.end - cell.start for cell in read)
    return count != len(read) or usable - (content or 65536) > covered + _FRAGMENTS


def index_records(page: bytes, header: int, usable: int) -> Iterator[list[Any]]:
    """Return the records of an index page that have no overflow pages."""
    skip = 4 if page[header] == INTERIOR_INDEX else 0
    for start in pointers(page, header, usable):
        try:
            payload, at = read_varint(page, start + skip)
            if local_size(payload, usable, index=True) < payload or at + payload > usable:
                continue
            types = _read_types(page, at, at + payload, payload)
        except IndexError:
            continue
        if types:
            yield read_values(page[at : at + payload], types)


def children(page: bytes, header: int, usable: int) -> list[tuple[int, int | None]]:
    """Return the children of an interior table page, each with the highest rowid below it.

    The last one's is None: the page does not bound it.
    """
    result: list[tuple[int, int | None]] = []
    for start in pointers(page, header, usable):
        with suppress(IndexError):
            key, _end = read_varint(page, start + 4)
            result.append((int.from_bytes(page[start : start + 4], "big"), key))
    result.append((int.from_bytes(page[header + 8 : header + 12], "big"), None))
    return result
