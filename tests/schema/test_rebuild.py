"""``op.rebuild_table`` keeps what a rebuild by hand, or by Alembic, would lose."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from statebackend import MigrationFailed
from tests import fingerprints, released_files
from tests.chains import SAMPLE, make_chain, upgrade_file

EVENTS = """CREATE TABLE events (
  sequence          INTEGER PRIMARY KEY AUTOINCREMENT,
  id                TEXT NOT NULL UNIQUE,
  timestamp         TEXT NOT NULL,
  kind              TEXT NOT NULL,
  producer_category TEXT NOT NULL,
  producer_name     TEXT NOT NULL,
  producer_version  TEXT NOT NULL,
  schema_version    TEXT NOT NULL,
  payload           BLOB NOT NULL
)"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a copy of the sample of version 1."""
    return Path(shutil.copy(SAMPLE, tmp_path))


def rebuild(old: Path, create: str = EVENTS, arguments: str = "", before: str = "") -> None:
    """Migrate *old* by one step that rebuilds ``events``."""
    body = f'{before}\nop.rebuild_table("events", """{create}"""{arguments})'
    upgrade_file(old, make_chain(old.parent / "chain", 2, {2: body}))


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    """Return the rows of a query on a closed file."""
    driver = sqlite3.connect(path, isolation_level=None)
    try:
        return driver.execute(sql).fetchall()
    finally:
        driver.close()


def test_a_rebuild_to_the_same_changes_nothing(old: Path) -> None:
    """Structure, indexes, references, rows, row numbers and child rows are as before."""
    structure, rows = fingerprints.of_file(old), released_files.rows(old)
    rebuild(old)
    assert fingerprints.of_file(old) == structure
    assert released_files.rows(old) == rows
    assert query(old, "PRAGMA foreign_key_check") == []
    assert query(old, "PRAGMA integrity_check") == [("ok",)]


def test_the_highest_number_given_out_is_kept(old: Path) -> None:
    """After the last rows are gone, their numbers are still never given again."""
    query(old, "DELETE FROM events WHERE sequence > 990")
    rebuild(old)
    assert query(old, "SELECT seq FROM sqlite_sequence WHERE name = 'events'") == [(1000,)]
    assert query(old, "SELECT name FROM sqlite_sequence ORDER BY 1") == [
        ("cost_ledger",),
        ("events",),
        ("plan_items",),
    ]


def test_the_highest_number_of_an_emptied_table_is_kept(old: Path) -> None:
    """Even if no row is left."""
    for table in ("cost_ledger", "plan_items", "producers", "events"):
        query(old, f"DELETE FROM {table}")
    rebuild(old)
    assert query(old, "SELECT seq FROM sqlite_sequence WHERE name = 'events'") == [(1000,)]


def test_columns_are_filled_dropped_and_renamed(old: Path) -> None:
    """A new column comes from an expression, a renamed one from the old name."""
    create = EVENTS.replace("kind  ", "what  ").replace(
        "payload           BLOB NOT NULL", "payload BLOB NOT NULL, size_bytes INTEGER NOT NULL"
    )
    rebuild(
        old,
        create,
        ', copy={"what": "kind", "size_bytes": "length(payload)"}',
        before="op.drop_index('idx_events_kind')",
    )
    other = Path(shutil.copy(SAMPLE, old.parent / "other.sqlite"))
    kinds = query(other, "SELECT kind, length(payload) FROM events ORDER BY 1, 2")
    assert query(old, "SELECT what, size_bytes FROM events ORDER BY 1, 2") == kinds


@pytest.mark.parametrize(
    "create,arguments,before,problem",
    [
        (EVENTS.replace(" AUTOINCREMENT", ""), "", "", "lacks AUTOINCREMENT"),
        (EVENTS.replace("AUTOINCREMENT", "/* AUTOINCREMENT */"), "", "", "lacks AUTOINCREMENT"),
        (EVENTS.replace("TABLE events", "TABLE other"), "", "", "must begin with"),
        (EVENTS, ', copy={"nothing": "1"}', "", "no column nothing"),
        (EVENTS.replace("kind  ", "what  "), "", "", "NOT NULL"),
        (EVENTS, "", "op.execute('DROP TABLE events')", "no table events"),
        (
            EVENTS,
            "",
            "op.execute('CREATE TRIGGER t AFTER INSERT ON events BEGIN SELECT 1; END')",
            "triggers of events would be lost",
        ),
        (EVENTS, "", "op.execute('PRAGMA legacy_alter_table = ON')", "legacy_alter_table off"),
    ],
)
def test_what_would_lose_something_is_refused(
    old: Path, create: str, arguments: str, before: str, problem: str
) -> None:
    """The migration fails as a whole, naming what would be lost; the file is as it was."""
    contents = released_files.contents(old.parent)
    with pytest.raises(MigrationFailed, match=problem):
        rebuild(old, create, arguments, before)
    shutil.rmtree(old.parent / "chain")
    assert released_files.contents(old.parent) == contents


def test_alembics_own_rebuild_is_refused(old: Path) -> None:
    """``batch_alter_table`` is not among a revision's operations."""
    body = "with op.batch_alter_table('events') as batch:\n    batch.drop_column('payload')"
    with pytest.raises(MigrationFailed, match="rebuild_table"):
        upgrade_file(old, make_chain(old.parent / "chain", 2, {2: body}))
