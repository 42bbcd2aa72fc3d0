"""The check of one file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from statebackend import (
    SchemaTooNew,
    SessionDamaged,
    SessionUnreadable,
    StateBackend,
    StateBackendError,
    StorageError,
)
from statebackend.sqlite import integrity
from statebackend.values.tables import TABLES
from tests.session_files import damage_index, full, listing, new, overwrite, path_of, sql


@pytest.fixture
def path(backend: StateBackend) -> Path:
    """Return the file of a closed session."""
    return path_of(backend, full(backend))


def test_a_whole_session_passes_and_no_file_is_left(path: Path) -> None:
    """Through an immutable connection, nothing appears beside it."""
    before = listing(path.parent)
    integrity.check_file(path, immutable=True)
    assert listing(path.parent) == before
    integrity.check_file(path, immutable=False)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_a_missing_table_is_damage(path: Path, table: str) -> None:
    """Its name is in the findings."""
    sql(path, f"DROP TABLE {table}")
    with pytest.raises(SessionDamaged) as caught:
        integrity.check_file(path, immutable=True)
    assert caught.value.findings == (f"table {table} is missing",)


def test_another_database_is_no_session(tmp_path: Path) -> None:
    """None of the five tables: not ours, rather than damaged."""
    path = tmp_path / "x.sqlite"
    sql(path, "CREATE TABLE other (x)")
    sql(path, "PRAGMA user_version = 1")
    with pytest.raises(SessionUnreadable):
        integrity.check_file(path, immutable=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DELETE FROM session_meta", "no row"),
        ("INSERT INTO session_meta SELECT 'x', NULL, '', '', 0, '', NULL", "more than one row"),
    ],
)
def test_there_is_one_row_of_meta(path: Path, change: str, said: str) -> None:
    """None, or several, is damage."""
    sql(path, change)
    with pytest.raises(SessionDamaged, match=said):
        integrity.check_file(path, immutable=True)


@pytest.mark.parametrize(
    ("stored", "error"),
    [(b"01KJMG7C00000000000000000Z", SessionUnreadable), (b"\xff", SessionDamaged)],
)
def test_the_row_carries_the_files_name(
    path: Path, stored: bytes, error: type[StateBackendError]
) -> None:
    """Another id makes it another session's file; bytes that are no text are no id at all."""
    sql(path, "UPDATE session_meta SET session_id = CAST(? AS TEXT)", stored)
    with pytest.raises(error):
        integrity.check_file(path, immutable=True)


def test_a_row_without_an_id_is_damage(path: Path) -> None:
    """The schema allows NULL there, a session does not."""
    sql(path, "UPDATE session_meta SET session_id = NULL")
    with pytest.raises(SessionDamaged):
        integrity.check_file(path, immutable=True)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM session_meta; END",
        "CREATE VIEW v AS SELECT 1",
    ],
)
def test_what_would_change_an_append_is_refused(path: Path, statement: str) -> None:
    """A trigger or a view of another program: no session file has one."""
    sql(path, statement)
    with pytest.raises(SessionUnreadable):
        integrity.check_file(path, immutable=True)


@pytest.mark.parametrize("table", ["cost_ledger", "plan_items", "producers"])
@pytest.mark.parametrize("end", [b")", b"\xe5"], ids=["another column", "no text"])
def test_a_reference_to_nothing_is_damage_to_who_will_write(
    path: Path, table: str, end: bytes
) -> None:
    """SQLite says so only to an INSERT, and then each one fails; reading is as before."""
    content = bytearray(path.read_bytes())
    at = content.index(b"REFERENCES events(sequence)", content.index(f"TABLE {table} ".encode()))
    content[at + 26 - len(end) : at + 26] = end if end != b")" else b"f"
    path.write_bytes(content)
    with pytest.raises(SessionDamaged):
        integrity.check_file(path, immutable=True)
    with closing(sqlite3.connect(path)) as driver:
        integrity.check_connection(driver, path, full=True)


def test_the_case_of_a_column_is_no_damage(path: Path) -> None:
    """SQLite does not mind it."""
    content = path.read_bytes()
    path.write_bytes(content.replace(b"session_id         TEXT", b"Session_id         TEXT"))
    assert path.read_bytes() != content
    integrity.check_file(path, immutable=True)


def test_a_schema_stored_as_a_blob_is_not_one_that_has_passed(path: Path) -> None:
    """Its bytes are the same, and SQLite takes it for no table."""
    integrity.check_file(path, immutable=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        driver.execute("PRAGMA writable_schema = ON")
        driver.execute("UPDATE sqlite_schema SET type = CAST(type AS BLOB) WHERE name = 'events'")
    with pytest.raises(SessionDamaged):
        integrity.check_file(path, immutable=True)


def test_a_log_whose_ids_may_repeat_is_refused(path: Path) -> None:
    """Without the key on events.id, a retry would not be recognised."""
    sql(path, "ALTER TABLE events RENAME TO old")
    sql(path, "CREATE TABLE events AS SELECT * FROM old")
    sql(path, "ALTER TABLE old RENAME TO unused")
    with pytest.raises(SessionUnreadable):
        integrity.check_file(path, immutable=True)


def test_a_copy_may_have_any_name(path: Path) -> None:
    """Its row must hold the session that was copied."""
    moved = path.rename(path.with_name("copy.db"))
    integrity.check_copy(moved, path.stem)
    with pytest.raises(SessionUnreadable):
        integrity.check_copy(moved, "other")


def test_versions_are_checked_first(path: Path) -> None:
    """A newer one is told before any table is looked at; without one, the tables decide."""
    sql(path, "DROP TABLE events")
    for version, error in ((2, SchemaTooNew), (0, SessionDamaged)):
        sql(path, f"PRAGMA user_version = {version}")
        with pytest.raises(error):
            integrity.check_file(path, immutable=True)


def test_findings_are_lines_and_bounded(backend: StateBackend) -> None:
    """A badly broken file yields a hundred lines or so, not all of them."""
    path = path_of(backend, new(backend, events=3000, size=30))
    damage_index(path)
    with pytest.raises(SessionDamaged) as caught:
        integrity.check_file(path, immutable=True)
    assert 1 < len(caught.value.findings) <= 110
    assert not [line for line in caught.value.findings if "\n" in line or not line]


def test_without_the_full_check_only_the_shape_is_looked_at(path: Path) -> None:
    """Damage inside a page is then not noticed, a missing table is."""
    damage_index(path)
    with closing(sqlite3.connect(path)) as driver:
        integrity.check_connection(driver, path, full=False)
        with pytest.raises(SessionDamaged):
            integrity.check_connection(driver, path, full=True)
        assert driver.text_factory is str


def test_an_error_in_place_of_an_answer_is_damage(path: Path) -> None:
    """SQLite raises on some files instead of listing findings."""
    overwrite(path, 1, b"\xff" * 200, offset=100)
    with pytest.raises(SessionDamaged):
        integrity.check_file(path, immutable=True)


def test_a_file_that_cannot_be_opened_is_not_damaged(tmp_path: Path) -> None:
    """Missing is a storage error."""
    with pytest.raises(StorageError):
        integrity.check_file(tmp_path / "missing.sqlite", immutable=False)
