"""The tables of the catalogue.

Columns that mirror a session file have no type, so SQLite gives back what that file held, also
where another program stored a number or a blob in a column of text.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from statebackend.catalogue import text_schema
from statebackend.catalogue.transactions import transaction
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
    *text_schema.DDL,
)
"""The statements that create a catalogue, in their order."""


def create(driver: sqlite3.Connection, directory: Path) -> None:
    """Create the tables of an empty catalogue of *directory*, in one transaction."""
    with transaction(driver):
        for statement in DDL:
            driver.execute(statement)
        driver.execute("INSERT INTO folder (directory) VALUES (?)", (os.fsencode(directory),))
        driver.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        driver.execute(f"PRAGMA user_version = {NUMBER}")
