"""The tables of the catalogue that hold the text of events."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from statebackend.catalogue.transactions import CatalogueDamaged
from statebackend.errors import StorageUnsupported

TOKENIZER = "unicode61 remove_diacritics 2 categories 'L* N* M*'"
"""SQLite's tokenizer: words consist of letters, numbers and marks."""

DDL: tuple[str, ...] = (
    # The last event of a session that was indexed, by its `number` in `sessions`, with the rows and
    # the bytes of text of its events; a checksum of these events, the bytes that were read, and the
    # `read_at_ns` in `sessions` of the state of the file that is known to have this checksum.
    """CREATE TABLE text_progress (
        number INTEGER PRIMARY KEY,
        sequence INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
        events_sum INTEGER NOT NULL, events_bytes INTEGER NOT NULL, read_at_ns INTEGER NOT NULL)""",
)
"""The statements that create them, in their order; the first search creates the index."""

ROW_BITS = 32
"""A row of ``texts`` is ``number << 32 | n``, the *n*-th of its session: 1, 2, 3 …."""

# `folded` is the text in the form in which words are compared, `shown` the original, NULL if it is
# the same. In a plain table beside the index, the text would take the same room.
_TEXTS = f"""CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5(
    sequence UNINDEXED, kind UNINDEXED, category UNINDEXED, name UNINDEXED, version UNINDEXED,
    timestamp UNINDEXED, shown UNINDEXED, folded, tokenize = "{TOKENIZER}")"""
_HAS_FTS5 = "SELECT count(*) FROM pragma_module_list WHERE name = 'fts5'"
_HAS_TEXTS = "SELECT count(*) FROM sqlite_schema WHERE name = 'texts'"


def has_index(driver: sqlite3.Connection) -> bool:
    """Tell whether the index exists."""
    return bool(driver.execute(_HAS_TEXTS).fetchone()[0])


def create_index(driver: sqlite3.Connection, path: Path) -> None:
    """Create the index unless it exists. Raises :class:`StorageUnsupported` without FTS5."""
    if driver.execute(_HAS_FTS5).fetchone() == (0,):
        raise StorageUnsupported(
            path,
            f"full-text search needs the FTS5 extension, which SQLite {sqlite3.sqlite_version} of "
            "this Python does not have; use a Python whose SQLite has it",
        )
    driver.execute(_TEXTS)


def check_text_count(driver: sqlite3.Connection) -> None:
    """Refuse an index that lost texts: a part of them is never searched as all."""
    (stored,) = driver.execute("SELECT total(rows) FROM text_progress").fetchone()
    (texts,) = driver.execute("SELECT count(*) FROM texts_docsize").fetchone()
    if stored != texts:
        raise CatalogueDamaged(f"{texts:,} texts are indexed, not {stored:,.0f}")


def text_bytes(driver: sqlite3.Connection) -> int:
    """Return how many bytes of text are indexed; the index takes about twice as much."""
    return int(driver.execute("SELECT total(bytes) FROM text_progress").fetchone()[0])
