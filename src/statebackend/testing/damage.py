"""Damage to a closed session file, as disks, copies and other programs do it.

Not while this process has the file open as a session: closing a file drops SQLite's locks.
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

    *page* is its number, the first being 1, or the name of a table or index, whose first page is
    meant. Without *content* the whole page becomes noise, the same each time; else its beginning
    becomes *content*. Raises LookupError for a table or page that is not there.
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
    """Cut the file *path* to *size* bytes, or by so many when *size* is negative.

    Returns how many bytes are left.
    """
    left = size if size >= 0 else max(0, path.stat().st_size + size)
    os.truncate(path, min(left, path.stat().st_size))
    return path.stat().st_size


def flip_bits(
    path: Path, count: int = 1, *, seed: int = 0, first: int = 0, last: int | None = None
) -> list[int]:
    """Flip *count* different bits of the file *path*, chosen by *seed*.

    They lie in the bytes *first* … *last* (the end of the file when None). Returns the offsets of
    the bytes, in order. Raises ValueError when there are fewer bits.
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
        found = driver.execute(query, (name,)).fetchone()
    if found is None:
        raise LookupError(f"{path} has no table or index {name}")
    return int(found[0])
