"""Damage to a closed session file, as disks, copies and other programs cause it.

Close the session in this process first: these functions open and close its file, which drops
the locks that SQLite holds on it.
"""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

from statebackend.files.paths import SessionFiles, sqlite_uri


def damage_page(path: Path, page: int | str = "events", content: bytes | None = None) -> int:
    """Overwrite one page of the SQLite file *path* and return its number.

    *page* is a page number, from 1, or the name of a table or index for its root page. *content*
    replaces the beginning of the page; without it the whole page becomes noise, the same in each
    run. Raises :exc:`LookupError` if there is no such page, table or index.
    """
    number = page if isinstance(page, int) else _root_page(path, page)
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(18)[16:], "big")
        size = 65536 if size == 1 else size
        if not 0 < number * size <= os.fstat(file.fileno()).st_size:
            raise LookupError(f"{path} has no page {number}")
        file.seek((number - 1) * size)
        file.write(random.Random(number).randbytes(size) if content is None else content)  # noqa: S311
    return number


def truncate(path: Path, size: int) -> int:
    """Cut the file *path* to *size* bytes, or cut off that many if *size* is negative.

    A shorter file is left unchanged. Returns the file's size in bytes.
    """
    before = path.stat().st_size
    after = min(before, size) if size >= 0 else max(0, before + size)
    os.truncate(path, after)
    return after


def flip_bits(
    path: Path, count: int = 1, *, seed: int = 0, first: int = 0, last: int | None = None
) -> list[int]:
    """Flip *count* different bits of the file *path*, chosen by *seed*.

    The bits are in the bytes *first* to *last*, inclusive (None: to the end of the file). Returns
    the offsets of their bytes in ascending order. Raises :exc:`ValueError` if there are fewer bits.
    """
    content = bytearray(path.read_bytes())
    end = len(content) if last is None else min(last + 1, len(content))
    bits = sorted(random.Random(seed).sample(range(first * 8, end * 8), count))  # noqa: S311
    for bit in bits:
        content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return [bit // 8 for bit in bits]


def _root_page(path: Path, name: str) -> int:
    mode = "mode=ro" if SessionFiles(path).wal.exists() else "mode=ro&immutable=1"
    query = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
    with closing(sqlite3.connect(sqlite_uri(path, mode), uri=True)) as driver:
        row = driver.execute(query, (name,)).fetchone()
    if row is None:
        raise LookupError(f"{path} has no table or index {name}")
    return int(row[0])
