"""The bytes of every row of a healthy session file: a small b-tree walker for the tests.

It shares no code with the package, so that each can check the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Files = dict[str, bytes]
"""The bytes of one session's files by the ending behind ``.sqlite``: ``""``, ``"-wal"``, …"""
Piece = tuple[str, int, int]
"""A run of bytes: ending of the file, first offset, offset behind the last."""
Values = tuple[Any, ...]

TABLES = ("events", "session_meta", "cost_ledger", "plan_items", "producers")
COUNTED = ("events", "cost_ledger", "plan_items")
"""The tables whose rows are numbered by a sequence, their first column."""

_LEAF_TABLE, _INNER_TABLE, _INNER_INDEX = 13, 5, 2
_WAL_HEADER, _FRAME_HEADER = 32, 24


@dataclass(frozen=True, slots=True)
class Column:
    """One stored value: its serial type, that type's own bytes, and the value's bytes."""

    serial: int
    named: tuple[Piece, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its values as stored, and all bytes that it is made of.

    ``own`` holds the cell and its overflow pages, ``voucher`` the frame headers without which a
    row in the WAL does not count.
    """

    table: str
    values: Values
    columns: tuple[Column, ...]
    own: tuple[Piece, ...]
    voucher: tuple[Piece, ...]

    @property
    def key(self) -> Values:
        """Return the key of the row in its table."""
        if self.table in COUNTED or self.table in {"session_meta", "sqlite_sequence"}:
            return self.values[:1]
        return self.values[:3]


@dataclass(slots=True)
class Layout:
    """The pages of a healthy session: their roles, their newest images, and its rows."""

    files: Files
    page_size: int = 0
    pages: dict[int, tuple[str, int]] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    rows: dict[str, dict[Values, Row]] = field(default_factory=dict)
    commits: list[tuple[int, int]] = field(default_factory=list)
    _vouchers: dict[int, tuple[Piece, ...]] = field(default_factory=dict)

    def page(self, number: int) -> bytes:
        """Return the newest bytes of a page."""
        name, start = self.pages[number]
        return self.files[name][start : start + self.page_size]

    def with_role(self, *beginnings: str) -> list[int]:
        """Return the pages whose role begins with one of these."""
        return sorted(page for page, role in self.roles.items() if role.startswith(beginnings))


def read(files: Files) -> Layout:
    """Walk a healthy session's files."""
    found = Layout(files)
    main = files[""]
    found.page_size = int.from_bytes(main[16:18], "big")
    found.page_size = 65536 if found.page_size == 1 else found.page_size
    for page in range(len(main) // found.page_size):
        found.pages[page + 1] = ("", page * found.page_size)
    _read_wal(found)
    schema = _table(found, "sqlite_schema", 1)
    for _rowid, row in schema:
        kind, name, _of, root, _sql = row.values
        if kind == "table" and name in (*TABLES, "sqlite_sequence"):
            found.rows[name] = {row.key: row for _number, row in _table(found, name, root)}
        elif root:
            _index(found, name, root)
    _free(found)
    return found


def _read_wal(found: Layout) -> None:
    wal = found.files.get("-wal", b"")
    salts, position, waiting = wal[16:24], _WAL_HEADER, {}
    headers: list[Piece] = []
    started = position
    while position + _FRAME_HEADER + found.page_size <= len(wal):
        page, pages_after = struct.unpack(">II", wal[position : position + 8])
        if wal[position + 8 : position + 16] != salts:
            break  # written before the last reset of the WAL
        waiting[page] = ("-wal", position + _FRAME_HEADER)
        headers.append(("-wal", position, position + _FRAME_HEADER))
        position += _FRAME_HEADER + found.page_size
        if pages_after:
            found.pages.update(waiting)
            for _name, start in waiting.values():
                # The whole last frame: without it, the WAL may end here after a power cut.
                whole = ("-wal", headers[-1][1], position)
                found._vouchers[start] = (("-wal", start - _FRAME_HEADER, start), whole)
            found.pages = {n: place for n, place in found.pages.items() if n <= pages_after}
            found.commits.append((started, position))
            waiting, headers, started = {}, [], position
    if found.commits:
        # A last transaction with a gap is what a power cut leaves: it was not acknowledged.
        start, end = found.commits[-1]
        for place in found._vouchers:
            if start <= place < end:
                found._vouchers[place] = (("-wal", start, end),)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = data[position + count]
        if count == 8:
            return value << 8 | byte, position + 9
        value = value << 7 | byte & 127
        if byte < 128:
            return value, position + count + 1
    raise AssertionError


def _cells(found: Layout, number: int) -> tuple[bytes, int, list[int], int]:
    """Return a b-tree page, its type, where its cells begin, and its right-most child."""
    data = found.page(number)
    head = 100 if number == 1 else 0
    kind, count = data[head], int.from_bytes(data[head + 3 : head + 5], "big")
    inner = kind in {_INNER_TABLE, _INNER_INDEX}
    first = head + (12 if inner else 8)
    places = struct.unpack(f">{count}H", data[first : first + 2 * count])
    right = int.from_bytes(data[head + 8 : head + 12], "big") if inner else 0
    return data, kind, list(places), right


def _table(found: Layout, table: str, root: int) -> Iterator[tuple[int, Row]]:
    data, kind, places, right = _cells(found, root)
    if kind == _LEAF_TABLE:
        found.roles[root] = f"leaf {table}"
        for place in places:
            yield _row(found, table, root, data, place)
        return
    assert kind == _INNER_TABLE, (table, root, kind)
    for place in places:
        yield from _table(found, table, int.from_bytes(data[place : place + 4], "big"))
    yield from _table(found, table, right)
    found.roles[root] = f"inner {table}"


def _index(found: Layout, name: str, root: int) -> None:
    data, kind, places, right = _cells(found, root)
    found.roles[root] = f"index {name}"
    if kind == _INNER_INDEX:
        for place in places:
            _index(found, name, int.from_bytes(data[place : place + 4], "big"))
        _index(found, name, right)


def _free(found: Layout) -> None:
    trunk = int.from_bytes(found.page(1)[32:36], "big")
    while trunk:
        data = found.page(trunk)
        found.roles[trunk] = "free trunk"
        following, count = struct.unpack(">II", data[:8])
        for leaf in struct.unpack(f">{count}I", data[8 : 8 + 4 * count]):
            found.roles[leaf] = "free leaf"
        trunk = following


def _row(found: Layout, table: str, number: int, data: bytes, place: int) -> tuple[int, Row]:
    size, position = _varint(data, place)
    key_start = position
    rowid, position = _varint(data, position)
    name, start = found.pages[number]
    local = _local(found.page_size, size)
    content = [(name, start + position, start + position + local)]
    own = [(name, start + place, start + position + local)]
    voucher = list(found._vouchers.get(start, ()) if name else ())
    if local < size:
        own[0] = (name, start + place, start + position + local + 4)
        following = int.from_bytes(data[position + local : position + local + 4], "big")
        left = size - local
        while left:
            found.roles[following] = f"overflow {table}"
            name, page = found.pages[following]
            taken = min(left, found.page_size - 4)
            content.append((name, page + 4, page + 4 + taken))
            own.append((name, page, page + 4 + taken))
            voucher += found._vouchers.get(page, ()) if name else ()
            following = int.from_bytes(found.page(following)[:4], "big")
            left -= taken
    record = b"".join(found.files[file][a:b] for file, a, b in content)
    values, columns = _record(record, content)
    if table not in {"session_meta", "producers", "sqlite_schema", "sqlite_sequence"}:
        name, start = found.pages[number]
        key = ((name, start + key_start, start + position),)
        values = (rowid, *values[1:])
        columns = (Column(0, key, key), *columns[1:])
    return rowid, Row(table, values, columns, tuple(own), tuple(dict.fromkeys(voucher)))


def _local(page_size: int, size: int) -> int:
    most, least = page_size - 35, (page_size - 12) * 32 // 255 - 23
    if size <= most:
        return size
    wanted = least + (size - least) % (page_size - 4)
    return wanted if wanted <= most else least


def _record(record: bytes, content: list[Piece]) -> tuple[Values, tuple[Column, ...]]:
    end, position = _varint(record, 0)
    values, columns, at = [], [], end
    while position < end:
        before = position
        serial, position = _varint(record, position)
        length = _length(serial)
        values.append(decoded(serial, record[at : at + length]))
        named = _pieces(content, before, position)
        columns.append(Column(serial, named, _pieces(content, at, at + length)))
        at += length
    assert at == len(record)
    return tuple(values), tuple(columns)


def _pieces(content: list[Piece], first: int, last: int) -> tuple[Piece, ...]:
    found, position = [], 0
    for name, start, end in content:
        a, b = max(first, position), min(last, position + end - start)
        if a < b:
            found.append((name, start + a - position, start + b - position))
        position += end - start
    return tuple(found)


def _length(serial: int) -> int:
    return (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[serial] if serial < 10 else (serial - 12) // 2


def decoded(serial: int, content: bytes) -> Any:
    """Return the value that these bytes are under this serial type; invalid text as bytes."""
    if serial == 0:
        return None
    if serial < 10:
        return _number(serial, content)
    if serial % 2 == 0:
        return content
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _number(serial: int, content: bytes) -> float:
    if serial > 7:
        return serial - 8
    if serial == 7:
        return float(struct.unpack(">d", content)[0])
    return int.from_bytes(content, "big", signed=True)


def taken(files: Files, pieces: tuple[Piece, ...]) -> bytes:
    """Return the bytes of some pieces, that the files have."""
    return b"".join(files.get(name, b"")[start:end] for name, start, end in pieces)


def untouched(row: Row, before: Files, after: Files) -> bool:
    """Tell whether all bytes of a row are undamaged, its frame headers included."""
    return all(
        before[name][start:end] == after.get(name, b"")[start:end]
        for name, start, end in (*row.own, *row.voucher)
    )
