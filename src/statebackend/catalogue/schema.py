"""The tables of the catalogue, transactions on them, and the error that has it rebuilt.

Columns that mirror a session file have no type, so SQLite gives back what that file held, also
where another program stored a number or a blob in a column of text.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statebackend.errors import StorageUnsupported
from statebackend.values.recorded import SCHEMA_VERSION

APPLICATION_ID = 0x53424361
"""``PRAGMA application_id`` of a catalogue: "SBCa"."""

NUMBER = 1000 * 6 + SCHEMA_VERSION
"""``PRAGMA user_version`` of a catalogue. One with another number is rebuilt, so increment the
second factor with each change of a table, or of what is stored in one."""

TOTALS = (
    "ledger_rows, cost_usd, unpriced_rows, input_high, input_low, output_high, output_low, "
    "cache_write_high, cache_write_low, cache_read_high, cache_read_low"
)
"""The columns that :func:`statebackend.values.rows.cost_totals` takes."""

DDL: tuple[str, ...] = (
    # One row. The absolute path is in bytes. `digest` is that of the signatures of all files when
    # the entries were read, and `unread` lists the files without a good entry (a JSON array);
    # `digest` is NULL if the entries have changed since.
    "CREATE TABLE folder (directory BLOB NOT NULL, digest BLOB, unread TEXT)",
    # `number` stays with a file while events are only appended: one that was replaced, or lost
    # events, gets another. The next seven columns say which state of the file the rest describes;
    # `mtime_ns` is NULL if that must not be relied on. `wal` is the signature of the WAL, NULL
    # without one.
    f"""CREATE TABLE sessions (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        stem TEXT NOT NULL UNIQUE,
        inode INTEGER NOT NULL, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, wal TEXT,
        read_at_ns INTEGER NOT NULL,
        parent_session_id, profile, status, depth, started_at, ended_at,
        live INTEGER NOT NULL, incomplete INTEGER NOT NULL,
        {TOTALS},
        title TEXT, events INTEGER NOT NULL, last_sequence INTEGER NOT NULL, last_event_id)""",
    "CREATE INDEX sessions_by_parent ON sessions (parent_session_id)",
    "CREATE INDEX sessions_unsigned ON sessions (stem) WHERE mtime_ns IS NULL",
    f"CREATE TABLE costs (number INTEGER NOT NULL, grouping TEXT NOT NULL, key, {TOTALS})",
    "CREATE INDEX costs_by_number ON costs (number)",
    "CREATE TABLE plan_rules (number INTEGER NOT NULL, decided_by, decision, count INTEGER)",
    "CREATE INDEX plan_rules_by_number ON plan_rules (number)",
    "CREATE TABLE producers (number INTEGER NOT NULL, category, name, version)",
    "CREATE INDEX producers_by_number ON producers (number)",
    # The last event of a session that was indexed, by its `number` in `sessions`, with the rows and
    # the bytes of text of its events; a checksum of these events, the bytes that were read, and the
    # `read_at_ns` in `sessions` of the state of the file that is known to have this checksum.
    """CREATE TABLE text_progress (
        number INTEGER PRIMARY KEY,
        sequence INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
        events_sum INTEGER NOT NULL, events_bytes INTEGER NOT NULL, read_at_ns INTEGER NOT NULL)""",
)
"""The statements that create a catalogue, in their order."""

TOKENIZER = "unicode61 remove_diacritics 2 categories 'L* N* M*'"
"""SQLite's tokenizer: words consist of letters, numbers and marks."""

ROW_BITS = 32
"""A row of ``texts`` is ``number << 32 | n``, the *n*-th of its session: 1, 2, 3 …."""

# `folded` is the text in the form in which words are compared, `shown` the original, NULL if it is
# the same. In a plain table beside the index, the text would take the same room.
_TEXTS = f"""CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5(
    sequence UNINDEXED, kind UNINDEXED, category UNINDEXED, name UNINDEXED, version UNINDEXED,
    timestamp UNINDEXED, shown UNINDEXED, folded, tokenize = "{TOKENIZER}")"""
_HAS_FTS5 = "SELECT count(*) FROM pragma_module_list WHERE name = 'fts5'"
_HAS_TEXTS = "SELECT count(*) FROM sqlite_schema WHERE name = 'texts'"
_VALUE_ERRORS = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)


class CatalogueDamaged(Exception):
    """The catalogue holds what was never stored in it, or lacks what was."""


@contextmanager
def transaction(driver: sqlite3.Connection, begin: str = "BEGIN") -> Iterator[None]:
    """Run the block in a transaction, which an error rolls back."""
    driver.execute(begin)
    try:
        yield
        driver.execute("COMMIT")
    finally:
        if driver.in_transaction:
            driver.execute("ROLLBACK")


@contextmanager
def value_errors_are_damage() -> Iterator[None]:
    """Raise :class:`CatalogueDamaged` where a value in a row is not what is stored there.

    The statements are known to be right, and zeroed sectors of a file may be rows with other values
    without an error of SQLite. The message names only the type, since Python's own quote values.
    """
    try:
        yield
    except _VALUE_ERRORS as error:
        raise CatalogueDamaged(type(error).__name__) from error


def create(driver: sqlite3.Connection, directory: Path) -> None:
    """Create the tables of an empty catalogue of *directory*, in one transaction."""
    with transaction(driver):
        for statement in DDL:
            driver.execute(statement)
        driver.execute("INSERT INTO folder (directory) VALUES (?)", (os.fsencode(directory),))
        driver.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        driver.execute(f"PRAGMA user_version = {NUMBER}")


def has_index(driver: sqlite3.Connection) -> bool:
    """Return whether the index exists."""
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
