"""The part of the catalogue's tables that holds the text of events."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from statebackend.catalogue.folding import TOKENIZER
from statebackend.errors import StorageUnsupported

DDL: tuple[str, ...] = (
    # How far a session is in the index, by its `number` in `sessions`: its last event that was
    # looked at, the rows this made, and the bytes of their text; of the events up to there, a sum
    # and the bytes that were read, and the `read_at_ns` in `sessions` of the state of the file that
    # is known to have this sum.
    """CREATE TABLE text_progress (
        number INTEGER PRIMARY KEY,
        sequence INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
        events_sum INTEGER NOT NULL, events_bytes INTEGER NOT NULL, read_at_ns INTEGER NOT NULL)""",
)
"""The statements that make it, in their order; the index itself is made by the first search."""

ROW_BITS = 32
"""A row of ``texts`` is ``number << 32 | n``, the *n*-th of its session: 1, 2, 3 …."""

# `folded` has the words in the form that they are compared in, `shown` is the text as it was, NULL
# if it is the same. In a plain table beside it, the text would take the same room.
_TEXTS = f"""CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5(
    sequence UNINDEXED, kind UNINDEXED, category UNINDEXED, name UNINDEXED, version UNINDEXED,
    timestamp UNINDEXED, shown UNINDEXED, folded, tokenize = "{TOKENIZER}")"""
_HAS_FTS5 = "SELECT count(*) FROM pragma_module_list WHERE name = 'fts5'"
_HAS_TEXTS = "SELECT count(*) FROM sqlite_schema WHERE name = 'texts'"


def has_index(driver: sqlite3.Connection) -> bool:
    """Tell whether the index has been made."""
    return bool(driver.execute(_HAS_TEXTS).fetchone()[0])


def make_index(driver: sqlite3.Connection, path: Path) -> None:
    """Make the index, if it is not there. Raises :class:`StorageUnsupported` without FTS5."""
    if driver.execute(_HAS_FTS5).fetchone() == (0,):
        raise StorageUnsupported(
            path,
            f"full-text search needs SQLite's extension FTS5, which is not in SQLite "
            f"{sqlite3.sqlite_version} of this Python; use one that has it",
        )
    driver.execute(_TEXTS)


def text_bytes(driver: sqlite3.Connection) -> int:
    """Return how many bytes of text are indexed; the index takes about twice the room."""
    return int(driver.execute("SELECT total(bytes) FROM text_progress").fetchone()[0])
