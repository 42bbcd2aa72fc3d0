"""The check of one session file; it never changes the file (SB-33; "Corruption")."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from statebackend import telemetry
from statebackend.errors import SessionDamaged, SessionUnreadable
from statebackend.files import header
from statebackend.files.paths import SessionFiles, sqlite_uri
from statebackend.sqlite.faults import read_error, storage_error
from statebackend.sqlite.read_mode import IMMUTABLE
from statebackend.values.recorded import SCHEMA_VERSION
from statebackend.values.tables import COLUMNS, TABLES

MAX_FINDINGS = 100
_MAX_COUNTER = 1 << 62
_SCHEMA = (
    "SELECT type, name, tbl_name, sql, typeof(type), typeof(name), typeof(tbl_name), typeof(sql) "
    "FROM sqlite_schema"
)
_MAX_SCHEMAS = 64
_schemas_checked: set[tuple[Any, ...]] = set()
"""Versions and texts of schemas that passed: nearly all sessions have the same."""


def check_file(path: Path, *, immutable: bool) -> None:
    """Check the session file *path* through a read-only connection of its own.

    *immutable* is for a file without a WAL that nobody can change during the check: SQLite then
    creates no file beside it. Raises as :func:`check_connection` does.
    """
    with closing(_connect(path, IMMUTABLE if immutable else "mode=ro")) as driver:
        check_connection(driver, path, full=True, references=True)


def check_copy(path: Path, session_id: str) -> None:
    """Check a copy of a session, whose name may differ from the session's id."""
    with closing(_connect(path, IMMUTABLE)) as driver:
        check_connection(driver, path, full=True, references=True, session_id=session_id)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(sqlite_uri(path, mode), uri=True, timeout=5)
    except sqlite3.Error as error:
        raise storage_error(path, error) from error


def check_connection(
    driver: sqlite3.Connection,
    path: Path,
    *,
    full: bool,
    references: bool = False,
    session_id: str | None = None,
) -> None:
    """Check the session file *path* on *driver*: version, tables, meta row, and integrity.

    Without *full*, ``PRAGMA integrity_check`` is skipped. With *references*, for a writer, foreign
    keys are checked and stay enforced on *driver*. *session_id* is by default the file's stem.
    Raises :class:`SchemaTooNew`, :class:`SessionDamaged` with the findings,
    :class:`SessionUnreadable` when it is another kind of database, and the storage errors, which
    never mean damage.
    """
    session_id = session_id or SessionFiles(path).session_id
    text_factory = driver.text_factory
    # As str, one text that is not UTF-8 would end a SELECT with an error.
    driver.text_factory = bytes
    try:
        with telemetry.span("statebackend.integrity_check", session_id=session_id, path=str(path)):
            _check(driver, path, session_id, full=full, references=references)
    finally:
        driver.text_factory = text_factory


def _check(
    driver: sqlite3.Connection, path: Path, session_id: str, *, full: bool, references: bool
) -> None:
    try:
        (version,) = driver.execute("PRAGMA user_version").fetchone()
        header.check_not_newer(path, version)
        findings = _run_integrity_check(driver) if full else []
        schema = (version, references, *driver.execute(_SCHEMA))
        if findings or schema not in _schemas_checked:
            _check_tables(driver, path, version, findings)
            if findings:
                raise SessionDamaged(path, tuple(findings))
            _check_no_trigger_or_view(driver, path)
            _check_unique_id(driver, path)
            _check_columns(driver, version)
            if references:
                _check_references(driver)
            if len(_schemas_checked) < _MAX_SCHEMAS:
                _schemas_checked.add(schema)
        _check_meta(driver, path, session_id)
        _check_counters(driver, path)
        header.check_version(path, version)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise read_error(path, error) from error


def _check_tables(
    driver: sqlite3.Connection, path: Path, version: int, findings: list[str]
) -> None:
    names = {
        str(name, errors="replace")
        for (name,) in driver.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    }
    missing = sorted(TABLES - names)
    if len(missing) == len(TABLES) and not (version > 0 and findings):
        raise SessionUnreadable(path, "has none of a session's tables, so it is not a session file")
    if missing:
        lines = (f"table {name} is missing" for name in missing)
        raise SessionDamaged(path, (*lines, *findings))


def _check_columns(driver: sqlite3.Connection, version: int) -> None:
    """Select every column: a damaged schema can pass SQLite's integrity check.

    A missing column is an error of the statement, which means damage here.
    """
    if version == SCHEMA_VERSION:
        driver.execute(_SELECT_ALL_COLUMNS).fetchone()


def _check_references(driver: sqlite3.Connection) -> None:
    """Compile an INSERT into each table: only this reports a reference to a missing table."""
    driver.execute("PRAGMA foreign_keys = ON")
    for table in sorted(TABLES):
        driver.execute(f"EXPLAIN INSERT INTO {table} DEFAULT VALUES").fetchall()


_SELECT_ALL_COLUMNS = "SELECT " + " OR ".join(
    f"EXISTS (SELECT {', '.join(columns)} FROM {table} WHERE 0)"
    for table, columns in COLUMNS.items()
)


def _check_no_trigger_or_view(driver: sqlite3.Connection, path: Path) -> None:
    """Refuse a trigger or view, which could change what an append does."""
    row = driver.execute(
        "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view') LIMIT 1"
    ).fetchone()
    if row is not None:
        kind, name = (text.decode(errors="replace") for text in row)
        raise SessionUnreadable(path, f"has a {kind} ({name}), which no session file has")


def _check_unique_id(driver: sqlite3.Connection, path: Path) -> None:
    """Refuse a file whose event ids may repeat, since a repeated append would go unnoticed."""
    keys = driver.execute("PRAGMA index_list(events)").fetchall()
    if not any(unique and origin == b"u" for _number, _name, unique, origin, _partial in keys):
        raise SessionUnreadable(path, "its events.id is not unique, so it is not a session file")


def _run_integrity_check(driver: sqlite3.Connection) -> list[str]:
    rows = driver.execute(f"PRAGMA integrity_check({MAX_FINDINGS})")
    lines = [line for (text,) in rows for line in text.decode(errors="replace").splitlines()]
    findings = [line for line in lines if not line.startswith("*** in database")]
    return [] if lines == ["ok"] else findings or lines


def _check_counters(driver: sqlite3.Connection, path: Path) -> None:
    """Refuse a damaged AUTOINCREMENT counter, which could leave no number for the next row."""
    row = driver.execute(
        "SELECT name, seq FROM sqlite_sequence "
        "WHERE typeof(name) <> 'text' OR typeof(seq) <> 'integer' OR seq >= ?",
        (_MAX_COUNTER,),
    ).fetchone()
    if row is not None:
        raise SessionDamaged(path, (f"the counter of {row[0]!r} is {row[1]!r}",))


def _check_meta(driver: sqlite3.Connection, path: Path, session_id: str) -> None:
    # A text becomes str and a blob bytes; text that is not UTF-8 has surrogates.
    driver.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    try:
        cursor = driver.execute("SELECT * FROM session_meta LIMIT 2")
        rows = cursor.fetchall()
    finally:
        driver.text_factory = bytes
    if len(rows) != 1:
        number = "more than one row" if rows else "no row"
        raise SessionDamaged(path, (f"session_meta holds {number}",))
    # SQLite ignores the case of names.
    names = [column[0].lower() for column in cursor.description]
    values = dict(zip(names, rows[0], strict=True))
    stored = values.get("session_id")
    if stored is None:
        raise SessionDamaged(path, ("session_meta holds no id",))
    header.check_meta_value(path, "session_id", stored)
    if stored != session_id:
        raise header.misnamed_file_error(path, stored)
    for name, value in values.items():
        header.check_meta_value(path, name, value)
