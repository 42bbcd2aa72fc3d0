"""Tools for the tests of programs that use this package.

``temporary_backend``, ``fixed_clock`` and ``fixed_ids`` give sessions that are the same in every
run; ``damage_page``, ``truncate`` and ``flip_bits`` damage a session's file, as disks, copies and
other programs do. Close the session in this process first: they open and close its file, which
drops the locks that SQLite holds on it::

    with temporary_backend() as backend, fixed_clock(), fixed_ids():
        with backend.create("default") as session:
            session.append_prompt(payload=b"hello", schema_version="1")
        damage_page(session.path, "events")
"""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from statebackend.backend import StateBackend
from statebackend.files.paths import SessionFiles, sqlite_uri
from statebackend.recording import appends
from statebackend.values import ids, timestamps

__all__ = [
    "damage_page",
    "fixed_clock",
    "fixed_ids",
    "flip_bits",
    "temporary_backend",
    "truncate",
]

_START = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def temporary_backend() -> Iterator[StateBackend]:
    """Give a backend on a new folder; the folder and its sessions are deleted at the end."""
    with TemporaryDirectory(prefix="statebackend-") as folder:
        yield StateBackend(folder)


@contextmanager
def fixed_clock(
    start: datetime = _START, step: timedelta = timedelta(milliseconds=1)
) -> Iterator[None]:
    """Replace the current time, in all threads, by *start*, then *step* later at each reading.

    *start* is aware UTC. The current time becomes the ``started_at`` of new sessions and the
    timestamp of events that are appended without one.
    """
    ticks = itertools.count()
    with _replace(timestamps, "now", lambda: start + next(ticks) * step):
        yield


@contextmanager
def fixed_ids() -> Iterator[None]:
    """Count new session and event ids up from zero, in all threads."""
    sessions, events = itertools.count(), itertools.count()

    def session_id(started_at: datetime) -> str:
        return ids.session_id_from(started_at, next(sessions).to_bytes(10, "big"))

    with (
        _replace(ids, "new_session_id", session_id),
        _replace(appends, "new_event_id", lambda: f"event-{next(events):08}"),
    ):
        yield


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


@contextmanager
def _replace(module: ModuleType, name: str, function: Callable[..., Any]) -> Iterator[None]:
    original = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, original)
