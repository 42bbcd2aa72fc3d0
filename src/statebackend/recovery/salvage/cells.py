"""The cells of b-tree pages and the records in them, read from bytes that may be damaged.

Nothing here believes a length: what does not add up is not a cell. The format is SQLite's
("Database File Format", parts 1.6 and 2).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

LEAF_TABLE, INTERIOR_TABLE, LEAF_INDEX, INTERIOR_INDEX = 0x0D, 0x05, 0x0A, 0x02
TREE_PAGES = frozenset({LEAF_TABLE, INTERIOR_TABLE, LEAF_INDEX, INTERIOR_INDEX})

_FRAGMENTS = 64
_SMALL_BYTES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_REAL, _ZERO, _ONE = 7, 8, 9


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table's leaf: where it is in its page (bytes), and the parts of its record.

    ``types`` are the record's serial types. ``body`` is where the values start in the page,
    ``payload`` the size of the whole record in bytes, ``local`` how much of it is in the page;
    ``overflow`` is the page where it goes on, 0 when it does not.
    """

    start: int
    end: int
    rowid: int
    header: int
    types: tuple[int, ...]
    payload: int
    local: int
    overflow: int


def varint(page: bytes, at: int) -> tuple[int, int]:
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


def cell(page: bytes, start: int, usable: int) -> Cell | None:
    """Return the cell of a table's leaf at *start*; None where the bytes are none."""
    try:
        payload, at = varint(page, start)
        rowid, at = varint(page, at)
        if payload < 2:
            return None
        local = local_size(payload, usable)
        end = at + local
        overflow = 0
        if local < payload:
            (overflow,) = struct.unpack_from(">I", page, end)
            end += 4
        if end > usable:
            return None
        types = _types(page, at, at + local, payload)
    except (IndexError, struct.error):
        return None
    if not types:
        return None
    return Cell(start, end, rowid, at, types, payload, local, overflow)


def _types(page: bytes, header: int, limit: int, payload: int) -> tuple[int, ...] | None:
    """Return the serial types of the record at *header*, None unless the lengths add up."""
    size, at = varint(page, header)
    end = header + size
    if end > limit or size < 2:
        return None
    types = []
    body = 0
    while at < end:
        serial_type = page[at]
        if serial_type < 0x80:
            at += 1
        else:
            serial_type, at = varint(page, at)
        if serial_type >= 12:
            body += (serial_type - 12) >> 1
        elif serial_type < 0 or serial_type in {10, 11}:
            return None
        else:
            body += _SMALL_BYTES[serial_type]
        types.append(serial_type)
    return tuple(types) if at == end and size + body == payload else None


def values(record: bytes, types: tuple[int, ...]) -> list[Any]:
    """Return the values of a whole *record*; texts come as they are stored, as bytes."""
    at, _end = varint(record, 0)
    found: list[Any] = []
    for serial_type in types:
        size = value_bytes(serial_type)
        raw = record[at : at + size]
        if serial_type >= 12:
            found.append(raw)
        elif serial_type == 0:
            found.append(None)
        elif serial_type == _REAL:
            found.append(struct.unpack(">d", raw)[0])
        elif serial_type in (_ZERO, _ONE):
            found.append(serial_type - _ZERO)
        else:
            found.append(int.from_bytes(raw, "big", signed=True))
        at += size
    return found


def pointers(page: bytes, header: int, usable: int) -> list[int]:
    """Return the cell pointers of a b-tree page whose header is at *header* (100 on page 1)."""
    head = 12 if page[header] in (INTERIOR_TABLE, INTERIOR_INDEX) else 8
    (count,) = struct.unpack_from(">H", page, header + 3)
    first = header + head
    count = min(count, (usable - first) // 2)
    found = struct.unpack_from(f">{count}H", page, first)
    return [at for at in found if first + 2 * count <= at < usable]


def leaf_cells(page: bytes, header: int, usable: int) -> Iterator[Cell]:
    """Return the cells of a table's leaf that are sound, in the order of its pointers."""
    for start in pointers(page, header, usable):
        found = cell(page, start, usable)
        if found is not None:
            yield found


def first_text(record: bytes, types: tuple[int, ...]) -> bytes:
    """Return the first text of a *record* as it is stored, which columns without bytes precede."""
    at, _end = varint(record, 0)
    serial_type = next((one for one in types if one >= 12), 12)
    return record[at : at + value_bytes(serial_type)]


def holds_more(page: bytes, header: int, found: Sequence[tuple[int, int]], usable: int) -> bool:
    """Tell whether a table's leaf holds bytes of cells beside those *found* (start, end)."""
    (count, content) = struct.unpack_from(">HH", page, header + 3)
    covered = sum(end - start for start, end in found)
    return count != len(found) or usable - (content or 65536) > covered + _FRAGMENTS


def index_records(page: bytes, header: int, usable: int) -> Iterator[list[Any]]:
    """Return the records of an index page that lie wholly in it."""
    skip = 4 if page[header] == INTERIOR_INDEX else 0
    for start in pointers(page, header, usable):
        try:
            payload, at = varint(page, start + skip)
            if local_size(payload, usable, index=True) < payload or at + payload > usable:
                continue
            types = _types(page, at, at + payload, payload)
        except IndexError:
            continue
        if types:
            yield values(page[at : at + payload], types)


def children(page: bytes, header: int, usable: int) -> list[tuple[int, int | None]]:
    """Return the children of a table's interior page, each with the highest row number below it.

    The last one's is None: it is not bounded here.
    """
    found: list[tuple[int, int | None]] = []
    for start in pointers(page, header, usable):
        try:
            key, _end = varint(page, start + 4)
        except IndexError:
            continue
        found.append((int.from_bytes(page[start : start + 4], "big"), key))
    found.append((int.from_bytes(page[header + 8 : header + 12], "big"), None))
    return found
