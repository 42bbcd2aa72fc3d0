"""The migration runner: ``PRAGMA user_version`` is the only version, Alembic does the steps.

The steps of one open are one transaction. Alembic keeps its own version table, so it gets a TEMP
one, filled from the pragma at the start and written back by every step; the session file never
sees it. Only this module imports Alembic, and only when there is something to do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from statebackend import telemetry
from statebackend.engine import driver_of
from statebackend.errors import MigrationFailed, SchemaTooNew
from statebackend.values import SCHEMA_VERSION

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

VERSION_TABLE = "alembic_version"

# Alembic's `op` and `context` are global to the process: two files migrated at once by two threads
# would run each other's statements.
_one_at_a_time = Lock()


def upgrade(connection: Connection, path: Path) -> int:
    """Bring the file of *connection* to :data:`SCHEMA_VERSION` and return the version it had.

    All steps and the version are one transaction: after any failure, also a kill, the file is as
    it was. Raises :class:`SchemaTooNew` and :class:`MigrationFailed` (specification, "Schema
    migration"; SB-32).
    """
    with _one_at_a_time, telemetry.current().span("statebackend.migrate", path=str(path)):
        found = 0
        try:
            with transaction(connection) as found:
                if found > SCHEMA_VERSION:
                    raise SchemaTooNew(path, found, SCHEMA_VERSION)
                if found < SCHEMA_VERSION:
                    _run(connection)
        except SchemaTooNew:
            raise
        except Exception as error:
            raise MigrationFailed(path, found, SCHEMA_VERSION, str(error)) from error
        return found


@contextmanager
def transaction(connection: Connection) -> Iterator[int]:
    """Hold the one transaction of a migration and yield the version found under its lock.

    Foreign keys are off inside, since rebuilding a table needs that, and afterwards compared with
    the state before: a salvaged file may hold ledger rows whose event is lost. A revision cannot
    commit on its own.
    """
    driver = driver_of(connection)
    (enforced,) = driver.execute("PRAGMA foreign_keys").fetchone()
    driver.execute("PRAGMA foreign_keys = OFF")  # has no effect inside a transaction
    try:
        with connection.begin():
            found = user_version(driver)
            _seed_version_table(connection, found)
            broken_before = _broken_references(driver)
            driver.set_authorizer(_deny_commit)
            try:
                yield found
            finally:
                driver.set_authorizer(None)
            if _broken_references(driver) - broken_before:
                raise sqlite3.IntegrityError("a step left rows that refer to nothing")
    finally:
        driver.execute(f"PRAGMA foreign_keys = {enforced}")


def context_options() -> dict[str, Any]:
    """Return the options that the runner and ``env.py`` give to Alembic alike."""
    return {
        "version_table": VERSION_TABLE,
        "transactional_ddl": True,
        "on_version_apply": _write_back,
    }


def script_location() -> Path:
    """Return the migrations folder: beside this module when installed, else the checkout's."""
    installed = Path(__file__).parent / "migrations"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "migrations"


@cache
def scripts() -> ScriptDirectory:
    """Return the revision chain of session files, read once per process."""
    from alembic.script import ScriptDirectory

    location = script_location()
    return ScriptDirectory(location, version_locations=[str(location / "sessions")])


def user_version(driver: sqlite3.Connection) -> int:
    """Return the schema version that SQLite reports for an open file."""
    (version,) = driver.execute("PRAGMA user_version").fetchone()
    return int(version)


def _run(connection: Connection) -> None:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    script = scripts()
    options = context_options() | {
        "script": script,
        "fn": lambda at, _context: script._upgrade_revs(f"{SCHEMA_VERSION:04}", at),
        "on_version_apply": (_write_back,),  # wrapped here, by Alembic itself in env.py
    }
    context = MigrationContext.configure(connection, opts=options)
    with Operations.context(context):
        context.run_migrations()


def _seed_version_table(connection: Connection, version: int) -> None:
    run = connection.exec_driver_sql
    run(f"CREATE TEMP TABLE IF NOT EXISTS {VERSION_TABLE} (version_num TEXT NOT NULL PRIMARY KEY)")
    run(f"DELETE FROM temp.{VERSION_TABLE}")
    if version:
        run(f"INSERT INTO temp.{VERSION_TABLE} VALUES (?)", (f"{version:04}",))


def _write_back(ctx: Any, heads: set[str], **_ignored: Any) -> None:
    (head,) = heads or ("0",)
    ctx.execute(f"PRAGMA user_version = {int(head)}")


def _broken_references(driver: sqlite3.Connection) -> set[tuple[Any, ...]]:
    return set(driver.execute("PRAGMA foreign_key_check"))


def _deny_commit(action: int, operation: str | None, *_ignored: str | None) -> int:
    if action == sqlite3.SQLITE_TRANSACTION and operation == "COMMIT":
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
