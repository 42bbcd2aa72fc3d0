"""Stored files of released versions: they must open, and keep every row, for ever."""

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
    """Return what each table of the file *path* holds, or only these *columns* of these tables."""
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
    """Write what the file *sample* holds to a file beside it, and return that one's path."""
    recorded = sample.with_suffix(".json")
    held = {table: asdict(one) for table, one in rows(sample).items()}
    recorded.write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")
    return recorded


def problems(sample: Path, folder: Path) -> list[str]:
    """Open a copy of *sample* in the empty *folder* for writing, and compare with its record.

    Compared are the columns of its time: later ones may have come. Returns one line a difference.
    """
    backend, copy = _copied(sample, folder)
    recorded = json.loads(sample.with_suffix(".json").read_text(encoding="utf-8"))
    expected = {table: Rows(**one) for table, one in recorded.items()}
    try:
        backend.open(copy.name.removesuffix(SUFFIX)).close()
        found = rows(copy, {table: one.columns for table, one in expected.items()})
    except (StateBackendError, sqlite3.Error) as error:
        return [f"{sample.name}: {error}"]
    return [
        f"{sample.name}: {table} holds {found[table]}, should hold {one}"
        for table, one in expected.items()
        if found[table] != one
    ]


def problems_of_failing(sample: Path, folder: Path, chain: Chain = SESSIONS) -> list[str]:
    """Let a revision after those of *chain* fail on a copy of *sample* in the empty *folder*.

    Returns one line for each file that is not as it was, byte for byte, and one if nothing failed.
    """
    from statebackend.schema import migrate
    from statebackend.sqlite import engine

    longer = _with_failing_step(chain, folder / "revisions")
    _backend, copy = _copied(sample, folder / "sessions")
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


def _copied(sample: Path, folder: Path) -> tuple[StateBackend, Path]:
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
