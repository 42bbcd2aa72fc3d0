"""Stored files of released versions: every later version must open them and keep every row."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from statebackend.backend import StateBackend
from statebackend.errors import MigrationFailed, StateBackendError
from statebackend.files.paths import SUFFIX, SessionFiles, sqlite_uri
from statebackend.schema.migrate import SESSIONS, Chain

_FAILING = '''"""Fails after it has changed something.

Revision ID: {revision}
Revises: {before}
"""

revision = {revision!r}
down_revision = {before!r}
branch_labels = None
depends_on = None


def upgrade(op):
    """Change a table and a row, then fail."""
    op.execute("ALTER TABLE session_meta ADD COLUMN half_done TEXT")
    op.execute("UPDATE session_meta SET half_done = 'yes'")
    raise RuntimeError("failing on purpose")
'''


@dataclass(frozen=True, slots=True)
class Rows:
    """What a table holds: its columns, the number of rows, and the SHA-256 over all of them."""

    columns: list[str]
    count: int
    sha256: str


def rows(path: Path, columns: Mapping[str, list[str]] | None = None) -> dict[str, Rows]:
    """Return the content of each table of the file *path*, or of these *columns* only."""
    mode = "mode=ro" if SessionFiles(path).wal.exists() else "mode=rw"
    driver = sqlite3.connect(sqlite_uri(path, mode), uri=True)
    try:
        driver.execute("PRAGMA query_only = ON")
        return {
            table: _rows(driver, table, names)
            for table, names in sorted((columns or _columns(driver)).items())
        }
    finally:
        driver.close()


def record(sample: Path) -> Path:
    """Record the content of the file *sample* in a JSON file beside it and return its path."""
    recorded = sample.with_suffix(".json")
    held = {table: asdict(content) for table, content in rows(sample).items()}
    recorded.write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")
    return recorded


def problems(sample: Path, folder: Path) -> list[str]:
    """Open a copy of *sample* in the empty *folder* for writing, and compare with its record.

    Columns that later versions added are not compared. Returns one line for each difference.
    """
    backend, copy = _copy(sample, folder)
    recorded = json.loads(sample.with_suffix(".json").read_text(encoding="utf-8"))
    expected = {table: Rows(**content) for table, content in recorded.items()}
    try:
        backend.open(copy.name.removesuffix(SUFFIX)).close()
        actual = rows(copy, {table: content.columns for table, content in expected.items()})
    except (StateBackendError, sqlite3.Error) as error:
        return [f"{sample.name}: {error}"]
    return [
        f"{sample.name}: {table} holds {actual[table]}, should hold {content}"
        for table, content in expected.items()
        if actual[table] != content
    ]


def problems_of_failing(sample: Path, folder: Path, chain: Chain = SESSIONS) -> list[str]:
    """Run a failing revision after those of *chain* on a copy of *sample* in the empty *folder*.

    Returns one line for each file that it changed, and one if it did not fail.
    """
    from statebackend.schema import migrate
    from statebackend.sqlite import engine

    longer = _with_failing_step(chain, folder / "revisions")
    _backend, copy = _copy(sample, folder / "sessions")
    before = contents(copy.parent)
    connection = engine.connect_for_writing(copy)
    try:
        migrate.upgrade(connection, copy, longer)
    except MigrationFailed:
        found = []
    else:
        found = ["the failing revision did not fail"]
    finally:
        connection.close()
    after = contents(copy.parent)
    return found + sorted(
        f"{name}: was changed"
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    )


def contents(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below *folder* by its path in it.

    Not while this process has one of them open as a session: closing a file drops SQLite's locks.
    """
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _copy(sample: Path, folder: Path) -> tuple[StateBackend, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return StateBackend(folder), Path(shutil.copy(sample, folder))


def _with_failing_step(chain: Chain, folder: Path) -> Chain:
    shutil.copytree(chain.versions, folder)
    number = chain.version + 1
    text = _FAILING.format(revision=f"{number:04}", before=f"{chain.version:04}")
    (folder / f"{number:04}_failing.py").write_text(text, encoding="utf-8")
    return Chain(folder, number)


def _columns(driver: sqlite3.Connection) -> dict[str, list[str]]:
    rows = driver.execute(
        "SELECT t.name, c.name FROM main.sqlite_schema t, pragma_table_info(t.name) c "
        "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1, c.cid"
    )
    columns: dict[str, list[str]] = {}
    for table, column in rows:
        columns.setdefault(table, []).append(column)
    return columns


def _rows(driver: sqlite3.Connection, table: str, columns: list[str]) -> Rows:
    sums, count = hashlib.sha256(), 0
    # quote() tells NULL, text, blobs and the two kinds of numbers apart.
    quoted = ", ".join(f'quote("{column}")' for column in columns)
    for row in driver.execute(f'SELECT {quoted} FROM "{table}" ORDER BY rowid'):
        sums.update(repr(row).encode())
        count += 1
    return Rows(list(columns), count, sums.hexdigest())
