"""The kinds of damage to a session's files, each a function of the files and of a random generator.

A kind raises :class:`Unfit` when a base lacks what it damages: a WAL, an overflow page.
"""

from __future__ import annotations

import random
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from tests.damage import bases
from tests.damage.bases import Base
from tests.damage.layout import COUNTED, TABLES, Files


class Unfit(Exception):
    """This kind of damage does not apply to this base."""


class Hurt:
    """The files of one case, to be damaged."""

    def __init__(self, base: Base, foreign: Base, dice: random.Random) -> None:
        self.base, self.foreign, self.dice = base, foreign, dice
        self.files = {ending: bytearray(content) for ending, content in base.files.items()}
        self.size = base.layout.page_size

    @property
    def main(self) -> bytearray:
        """Return the session file itself."""
        return self.files[""]

    @property
    def wal(self) -> bytearray:
        """Return the WAL, which must have frames."""
        if len(self.files.get("-wal", b"")) < 32 + 24 + self.size:
            raise Unfit
        return self.files["-wal"]

    def pages(self, count: int) -> list[int]:
        """Draw up to *count* pages of the main file, page 1 included."""
        there = len(self.main) // self.size
        return self.dice.sample(range(1, there + 1), min(count, there))

    def role(self, *beginnings: str) -> list[int]:
        """Return all pages with such a role."""
        found = self.base.layout.with_role(*beginnings)
        if not found:
            raise Unfit
        return found

    def place(self, page: int) -> tuple[bytearray, int]:
        """Return the file that holds the newest bytes of a page, and where they begin."""
        name, start = self.base.layout.pages[page]
        if name not in self.files:  # an earlier damage removed it
            raise Unfit
        return self.files[name], start

    def spoil(self, pages: Iterable[int]) -> None:
        """Overwrite the newest images of pages: with zeros, or with noise in all or a part."""
        how = self.dice.randrange(4)
        for page in pages:
            data, start = self.place(page)
            if how == 0:
                data[start : start + self.size] = bytes(self.size)
            elif how == 1:
                data[start : start + self.size] = self.dice.randbytes(self.size)
            elif how == 2:
                sector = start + 512 * self.dice.randrange(self.size // 512)
                data[sector : sector + 512] = self.dice.randbytes(512)
            else:
                data[start : start + 8] = self.dice.randbytes(8)


def _some(hurt: Hurt, pages: list[int], most: int = 3) -> list[int]:
    return hurt.dice.sample(pages, min(len(pages), hurt.dice.randint(1, most)))


def truncated(hurt: Hurt) -> None:
    """Cut at any place."""
    del hurt.main[hurt.dice.randrange(len(hurt.main)) :]


def truncated_to_little(hurt: Hurt) -> None:
    """Cut to almost nothing."""
    del hurt.main[hurt.dice.choice((0, 1, 100, 511)) :]


def truncated_at_a_page(hurt: Hurt) -> None:
    """Cut between two pages."""
    del hurt.main[hurt.size * hurt.dice.randrange(1, len(hurt.main) // hurt.size) :]


def tail_of_zeros(hurt: Hurt) -> None:
    """Put zeros up to the end: a crash kept the new size, not the data."""
    start = hurt.dice.randrange(len(hurt.main))
    hurt.main[start:] = bytes(len(hurt.main) - start)


def zeroed_pages(hurt: Hurt) -> None:
    """Put zeros in pages."""
    for page in hurt.pages(hurt.dice.randint(1, 6)):
        hurt.main[(page - 1) * hurt.size : page * hurt.size] = bytes(hurt.size)


def noisy_pages(hurt: Hurt) -> None:
    """Put noise in pages."""
    for page in hurt.pages(hurt.dice.randint(1, 6)):
        hurt.main[(page - 1) * hurt.size : page * hurt.size] = hurt.dice.randbytes(hurt.size)


def torn_pages(hurt: Hurt) -> None:
    """Put zeros, noise or bytes of another place in single sectors."""
    for _number in range(hurt.dice.randint(1, 4)):
        start = 512 * hurt.dice.randrange(len(hurt.main) // 512)
        other = 512 * hurt.dice.randrange(len(hurt.main) // 512)
        new = hurt.dice.choice((bytes(512), hurt.dice.randbytes(512), hurt.main[other:][:512]))
        hurt.main[start : start + 512] = new


def swapped_pages(hurt: Hurt) -> None:
    """Put two pages in each other's place."""
    first, second = ((page - 1) * hurt.size for page in hurt.pages(2))
    a, b = hurt.main[first : first + hurt.size], hurt.main[second : second + hurt.size]
    hurt.main[first : first + hurt.size], hurt.main[second : second + hurt.size] = b, a


def misdirected_writes(hurt: Hurt) -> None:
    """Overwrite pages by a copy of another."""
    for _number in range(hurt.dice.randint(1, 3)):
        target, source = ((page - 1) * hurt.size for page in hurt.pages(2))
        hurt.main[target : target + hurt.size] = hurt.main[source : source + hurt.size]


def lost_writes(hurt: Hurt) -> None:
    """Put older images of pages in their place."""
    old, found = hurt.base.earlier[""], False
    for page in hurt.pages(len(hurt.main) // hurt.size):
        start = (page - 1) * hurt.size
        earlier = old[start : start + hurt.size]
        if len(earlier) == hurt.size and earlier != hurt.main[start : start + hurt.size]:
            hurt.main[start : start + hurt.size] = earlier
            found = True
            if hurt.dice.random() < 0.5:
                return
    if not found:
        raise Unfit


def _flips(count: int) -> Callable[[Hurt], None]:
    def flip(hurt: Hurt) -> None:
        # With several flips in every row, nothing could identify a row.
        for _number in range(min(count, len(hurt.main) // 512)):
            bit = hurt.dice.randrange(8 * len(hurt.main))
            hurt.main[bit // 8] ^= 1 << bit % 8

    flip.__doc__ = f"Flip {count} bits, one in 512 bytes at most."
    return flip


def flipped_rows(hurt: Hurt) -> None:
    """Flip bits in the first bytes of rows: sizes, rowids, types."""
    rows = [row for table in hurt.base.rows.values() for row in table.values()]
    for row in hurt.dice.sample(rows, min(len(rows), hurt.dice.randint(1, 8))):
        name, start, end = row.own[0]
        place = hurt.dice.randrange(start, min(end, start + 14))
        hurt.files[name][place] ^= 1 << hurt.dice.randrange(8)


def flipped_ids(hurt: Hurt) -> None:
    """Flip bits in ids of events, not in their index."""
    rows = list(hurt.base.rows["events"].values())
    for row in hurt.dice.sample(rows, min(len(rows), hurt.dice.randint(1, 4))):
        name, start, end = row.columns[1].pieces[0]
        for place in hurt.dice.sample(range(start, end), hurt.dice.choice((1, 1, 2))):
            hurt.files[name][place] ^= 1 << hurt.dice.randrange(8)


def flipped_index_of_ids(hurt: Hurt) -> None:
    """Flip bits in the index of ids, not in the rows."""
    for page in _some(hurt, hurt.role("index sqlite_autoindex_events_1")):
        data, start = hurt.place(page)
        data[start + hurt.dice.randrange(8, hurt.size)] ^= 1 << hurt.dice.randrange(8)


def header_magic(hurt: Hurt) -> None:
    """Change the first 16 bytes."""
    hurt.main[:16] = hurt.dice.choice((bytes(16), hurt.dice.randbytes(16), b"SQLite format 4\0"))


def header_page_size(hurt: Hurt) -> None:
    """Change the page size, to an impossible or another possible one."""
    wrong = hurt.dice.choice([n for n in (0, 3, 1, 512, 1024, 4096, 8192) if n != hurt.size])
    hurt.main[16:18] = wrong.to_bytes(2, "big")


def header_version(hurt: Hurt) -> None:
    """Zero the schema version."""
    if any(page == 1 and name for page, (name, _at) in hurt.base.layout.pages.items()):
        raise Unfit
    hurt.main[60:64] = bytes(4)


def header_encoding(hurt: Hurt) -> None:
    """Change the text encoding and the schema format."""
    hurt.main[44:48] = hurt.dice.randbytes(4)
    hurt.main[56:60] = struct.pack(">I", hurt.dice.choice((0, 2, 3, 9)))


def header_page_count(hurt: Hurt) -> None:
    """Change the number of pages, with the change counter that makes it valid."""
    count = hurt.dice.choice((0, 1, 2, 10**6, hurt.dice.randrange(1 << 32)))
    hurt.main[28:32] = struct.pack(">I", count)
    hurt.main[92:96] = hurt.main[24:28]


def header_whole(hurt: Hurt) -> None:
    """Change all 100 bytes of the header."""
    hurt.main[:100] = hurt.dice.choice((bytes(100), hurt.dice.randbytes(100)))


def schema_page(hurt: Hurt) -> None:
    """Overwrite the tables' definitions, with or without the file's header."""
    data, start = hurt.place(1)
    first = hurt.dice.choice((0, 100, 100))
    length = hurt.size - first
    new = hurt.dice.choice((bytes(length), hurt.dice.randbytes(length)))
    data[start + first : start + hurt.size] = new


def interior_pages(hurt: Hurt) -> None:
    """Damage interior pages."""
    hurt.spoil(_some(hurt, hurt.role("inner")))


def root_page(hurt: Hurt) -> None:
    """Damage the root of a table."""
    table = hurt.dice.choice(TABLES)
    with closing(sqlite3.connect(":memory:")) as driver:
        driver.deserialize(_checkpoint(hurt.base))
        ((root,),) = driver.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
    hurt.spoil([root])


def leaf_pages(hurt: Hurt) -> None:
    """Damage leaves of the tables, where their newest image is."""
    hurt.spoil(_some(hurt, hurt.role("leaf"), 5))


def index_pages(hurt: Hurt) -> None:
    """Damage indexes only."""
    hurt.spoil(_some(hurt, hurt.role("index"), 4))


def overflow_pages(hurt: Hurt) -> None:
    """Damage overflow pages: their content, or the pointer to the next."""
    pages = _some(hurt, hurt.role("overflow"), 4)
    if hurt.dice.random() < 0.5:
        return hurt.spoil(pages)
    for page in pages:
        data, start = hurt.place(page)
        data[start : start + 4] = struct.pack(">I", hurt.dice.choice([*pages, page, 0, 1, 10**6]))
    return None


def freelist(hurt: Hurt) -> None:
    """Damage the freelist, or its pointer in the header."""
    if hurt.dice.random() < 0.5:
        hurt.spoil(_some(hurt, hurt.role("free trunk")))
    else:
        data, start = hurt.place(1)
        data[start + 32 : start + 40] = struct.pack(">II", hurt.dice.choice(hurt.role("leaf")), 3)


def _counter(statement: str) -> Callable[[Hurt], None]:
    def change(hurt: Hurt) -> None:
        if hurt.base.plan.has_wal:
            raise Unfit
        table = hurt.dice.choice(COUNTED)
        if (table,) not in hurt.base.layout.rows["sqlite_sequence"]:
            raise Unfit
        value = hurt.dice.choice((1 << 40, (1 << 63) - 1, 10**12))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.sqlite"
            bases.put(hurt.base.files, path)
            with closing(sqlite3.connect(path)) as driver, driver:
                driver.execute(statement, {"table": table, "value": value})
            hurt.files[""] = bytearray(path.read_bytes())

    return change


def wal_noisy(hurt: Hurt) -> None:
    """Put noise in the middle of the WAL."""
    start = hurt.dice.randrange(32, len(hurt.wal))
    length = min(hurt.dice.choice((1, 16, 512, hurt.size, 3 * hurt.size)), len(hurt.wal) - start)
    hurt.wal[start : start + length] = hurt.dice.randbytes(length)


def wal_torn(hurt: Hurt) -> None:
    """Leave a part of some frames unwritten."""
    frame = 24 + hurt.size
    for _number in range(hurt.dice.randint(1, 3)):
        start = 32 + frame * hurt.dice.randrange((len(hurt.wal) - 32) // frame)
        first = start + hurt.dice.randrange(frame)
        hurt.wal[first : start + frame] = bytes(start + frame - first)


def wal_cut(hurt: Hurt) -> None:
    """Cut the WAL anywhere."""
    del hurt.wal[hurt.dice.randrange(len(hurt.wal)) :]


def wal_header(hurt: Hurt) -> None:
    """Change the header of the WAL: magic, page size, salts, all."""
    first, last = hurt.dice.choice(((0, 4), (8, 12), (16, 24), (24, 32), (0, 32)))
    hurt.wal[first:last] = hurt.dice.randbytes(last - first)


def wal_frame_headers(hurt: Hurt) -> None:
    """Change page numbers, salts or sums of frames."""
    frame = 24 + hurt.size
    for _number in range(hurt.dice.randint(1, 3)):
        start = 32 + frame * hurt.dice.randrange((len(hurt.wal) - 32) // frame)
        first, last = hurt.dice.choice(((0, 4), (4, 8), (8, 16), (16, 24)))
        hurt.wal[start + first : start + last] = hurt.dice.randbytes(last - first)


def wal_foreign(hurt: Hurt) -> None:
    """Put the WAL of another session beside it."""
    if len(hurt.foreign.files.get("-wal", b"")) < 100:
        raise Unfit
    hurt.files["-wal"] = bytearray(hurt.foreign.files["-wal"])
    hurt.files.pop("-shm", None)


def wal_older(hurt: Hurt) -> None:
    """Put an older WAL of its own beside it."""
    older = hurt.base.earlier.get("-wal", b"")
    if len(older) < 100 or older == hurt.base.files.get("-wal"):
        raise Unfit
    hurt.files["-wal"] = bytearray(older)
    hurt.files.pop("-shm", None)


def wal_missing(hurt: Hurt) -> None:
    """Remove the WAL, and sometimes its shm."""
    del hurt.wal[:]
    del hurt.files["-wal"]
    if hurt.dice.random() < 0.3:
        hurt.files.pop("-shm", None)


def main_empty_beside_a_wal(hurt: Hurt) -> None:
    """Empty the session file, and keep its WAL."""
    assert hurt.wal
    del hurt.main[hurt.dice.choice((0, 0, 1)) :]


def main_damaged_beside_a_wal(hurt: Hurt) -> None:
    """Damage the session file, and keep the newest commits in the WAL."""
    assert hurt.wal
    kind = (truncated, zeroed_pages, noisy_pages, header_whole, header_magic, swapped_pages)
    hurt.dice.choice(kind)(hurt)


def journal_foreign(hurt: Hurt) -> None:
    """Put a hot rollback journal of another session beside it."""
    original = bytes(hurt.foreign.files[""])
    size = hurt.foreign.layout.page_size
    nonce = hurt.dice.randrange(1 << 32)
    pages = hurt.dice.sample(range(1, len(original) // size + 1), min(5, len(original) // size))
    head = bytes.fromhex("d9d505f920a163d7")
    head += struct.pack(">IIIII", len(pages), nonce, len(original) // size, 512, size)
    body = b""
    for page in pages:
        content = original[(page - 1) * size : page * size]
        checked = nonce + sum(content[n] for n in range(size - 200, 0, -200))
        body += struct.pack(">I", page) + content + struct.pack(">I", checked & 0xFFFFFFFF)
    hurt.files["-journal"] = bytearray(head.ljust(512, b"\0") + body)


def journal_garbage(hurt: Hurt) -> None:
    """Put a rollback journal of noise beside it."""
    hurt.files["-journal"] = bytearray(b"\1" + hurt.dice.randbytes(hurt.dice.randrange(9_000)))


def meta_page(hurt: Hurt) -> None:
    """Damage the page of session_meta, in the file and in the WAL."""
    for page in hurt.role("leaf session_meta"):
        data, start = hurt.place(page)
        new = hurt.dice.choice((bytes(hurt.size), hurt.dice.randbytes(hurt.size)))
        data[start : start + hurt.size] = new
        first = (page - 1) * hurt.size
        if first < len(hurt.main):
            hurt.main[first : first + hurt.size] = new


def twice(hurt: Hurt) -> None:
    """Do two kinds at once."""
    for kind in hurt.dice.sample(_DOUBLED, 2):
        try:
            kind(hurt)
        except ValueError as error:  # nothing is left to damage
            raise Unfit from error


_DOUBLED = [
    truncated,
    zeroed_pages,
    noisy_pages,
    torn_pages,
    misdirected_writes,
    _flips(16),
    _flips(256),
    header_whole,
    schema_page,
    leaf_pages,
    index_pages,
    meta_page,
    wal_torn,
    wal_noisy,
    wal_foreign,
    wal_missing,
]

KINDS: dict[str, Callable[[Hurt], None]] = {
    function.__name__.replace("_", " "): function
    for function in (
        truncated,
        truncated_to_little,
        truncated_at_a_page,
        tail_of_zeros,
        zeroed_pages,
        noisy_pages,
        torn_pages,
        swapped_pages,
        misdirected_writes,
        lost_writes,
        flipped_rows,
        flipped_ids,
        flipped_index_of_ids,
        header_magic,
        header_page_size,
        header_version,
        header_encoding,
        header_page_count,
        header_whole,
        schema_page,
        interior_pages,
        root_page,
        leaf_pages,
        index_pages,
        overflow_pages,
        freelist,
        wal_noisy,
        wal_torn,
        wal_cut,
        wal_header,
        wal_frame_headers,
        wal_foreign,
        wal_older,
        wal_missing,
        main_empty_beside_a_wal,
        main_damaged_beside_a_wal,
        journal_foreign,
        journal_garbage,
        meta_page,
        twice,
    )
} | {
    "1 bit": _flips(1),
    "16 bits": _flips(16),
    "256 bits": _flips(256),
    "4096 bits": _flips(4096),
    "counter lowered": _counter("UPDATE sqlite_sequence SET seq = seq / 2 WHERE name = :table"),
    "counter raised": _counter("UPDATE sqlite_sequence SET seq = :value WHERE name = :table"),
    "counter removed": _counter("DELETE FROM sqlite_sequence WHERE name = :table"),
}


def damage(kind: str, base: Base, foreign: Base, dice: random.Random) -> Files:
    """Return the files of *base* after damage of this kind."""
    hurt = Hurt(base, foreign, dice)
    try:
        KINDS[kind](hurt)
    except (ValueError, IndexError) as error:  # the files are too small
        raise Unfit from error
    return {ending: bytes(content) for ending, content in hurt.files.items()}


def _checkpoint(base: Base) -> bytes:
    """Return a base's newest pages as one file out of WAL mode, which SQLite reads in memory."""
    pages = base.layout.pages
    image = bytearray(b"".join(base.layout.page(number) for number in sorted(pages)))
    image[18:20] = b"\1\1"
    return bytes(image)
