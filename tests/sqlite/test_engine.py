"""Connections on one session file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from statebackend import StateBackend, StorageError, StorageUnsupported
from statebackend.files import paths
from statebackend.sqlite import authorizer, engine, settings
from statebackend.values import tables
from tests.session_files import full, killed_writer, listing, path_of, sql

TELLING = [
    "PRAGMA integrity_check",
    "PRAGMA quick_check(5)",
    "PRAGMA foreign_key_check",
    "PRAGMA foreign_key_list(plan_items)",
    "PRAGMA table_info(events)",
    "PRAGMA table_xinfo(events)",
    "PRAGMA index_list(events)",
    "PRAGMA page_count",
    "PRAGMA freelist_count",
    "PRAGMA compile_options",
    "PRAGMA user_version",
    "PRAGMA journal_mode",
    "PRAGMA foreign_keys",
    "PRAGMA encoding",
    "SELECT name FROM sqlite_schema",
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 3) SELECT * FROM n",
    "SELECT json_extract('[1]', '$[0]'), group_concat(kind) FROM events",
]


@contextmanager
def opened(connection: Connection) -> Iterator[Connection]:
    """Close it at the end."""
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def path(backend: StateBackend) -> Path:
    """Return the file of a closed session."""
    return path_of(backend, full(backend))


@pytest.mark.parametrize("statement", TELLING)
def test_what_only_tells_is_allowed(path: Path, statement: str) -> None:
    """A reader and a guarded writer may ask all they like."""
    with opened(engine.connect_for_reading(path)) as reader:
        assert reader.execute(text(statement)).fetchall() is not None
    with opened(engine.connect_for_writing(path)) as writer:
        authorizer.allow_appends_only(engine.driver_of(writer))
        assert writer.execute(text(statement)).fetchall() is not None


def test_a_reading_connection_begins_no_writing_transaction(path: Path) -> None:
    """Two of them at once, and a writer beside them, do not wait for each other."""
    with (
        opened(engine.connect_for_reading(path)) as one,
        opened(engine.connect_for_reading(path)) as two,
        opened(engine.connect_for_writing(path)) as writer,
        one.begin(),
        two.begin(),
        writer.begin(),
    ):
        assert one.scalar(text("SELECT count(*) FROM events")) == 5
        assert two.scalar(text("SELECT count(*) FROM events")) == 5


def test_two_writing_transactions_exclude_each_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second cannot begin, which the first knows nothing of."""
    monkeypatch.setattr(settings, "BUSY_TIMEOUT_MS", 10)
    with (
        opened(engine.connect_for_writing(path)) as one,
        opened(engine.connect_for_writing(path)) as two,
        one.begin(),
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        two.begin()


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    """Neither kind of connection creates anything."""
    for connect in (engine.connect_for_reading, engine.connect_for_writing):
        with pytest.raises(StorageError):
            connect(tmp_path / "missing.sqlite")
    assert listing(tmp_path) == []


def test_a_connection_that_sqlite_did_not_set_up_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system without WAL: the connection is closed again, the file as it was."""
    sql(path, "PRAGMA journal_mode = DELETE")
    before = path.read_bytes()
    monkeypatch.setattr(
        engine, "sqlite_uri", lambda *given: paths.sqlite_uri(*given) + "&vfs=unix-dotfile"
    )
    with pytest.raises(StorageUnsupported):
        engine.connect_for_writing(path)
    assert path.read_bytes() == before
    assert listing(path.parent) == [".locks", path.name]


def test_a_reader_of_a_dead_writers_file_cannot_fold_its_log_in(backend: StateBackend) -> None:
    """It is read-only to the system too, so closing it last leaves the log."""
    path = path_of(backend, killed_writer(backend))
    log = path.with_name(path.name + "-wal").read_bytes()
    with opened(engine.connect_for_reading(path)) as reader:
        assert reader.scalar(text("SELECT count(*) FROM events")) == 5
    assert path.with_name(path.name + "-wal").read_bytes() == log


def test_the_append_only_tables_are_all_but_one() -> None:
    """The guard watches every log."""
    assert set(tables.APPEND_ONLY) == {"events", "cost_ledger", "plan_items", "producers"}
