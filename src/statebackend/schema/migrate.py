"""The migration runner: ``PRAGMA user_version`` is the only version, Alembic gives the operations.

All steps of one open, and the version, are one transaction that no revision can end. A revision is
*given* its operations (``def upgrade(op)``): Alembic's own ``op`` is global to the process, so two
migrations at once, or one started by a logging handler during another, would run each other's
statements. Alembic is imported only when there is something to do.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from statebackend import telemetry
from statebackend.errors import MigrationFailed, SchemaTooNew
from statebackend.sqlite.engine import connect_in_memory, driver_of
from statebackend.sqlite.faults import primary_code, storage_error
from statebackend.values.recorded import SCHEMA_VERSION

if TYPE_CHECKING:
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    from statebackend.schema.rebuild import SessionOperations

VERSION_TABLE = "alembic_version"
_log = logging.getLogger(__name__)


def migrations_folder() -> Path:
    """Return the migrations folder: beside this module when installed, else the checkout's."""
    installed = Path(__file__).parents[1] / "migrations"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "migrations"


@dataclass(frozen=True, slots=True)
class Chain:
    """The revisions ``0001`` …, one a version, in the folder *versions*.

    ``version`` is the one that the program works with; files are migrated to it.
    """

    versions: Path
    version: int


SESSIONS = Chain(migrations_folder() / "sessions", SCHEMA_VERSION)
"""The chain of session files."""


def upgrade(connection: Connection, path: Path, chain: Chain | None = None) -> int:
    """Bring the file of *connection* to the version of *chain* and return the version it had.

    All steps and the version are one transaction: after any failure, also a kill, the file is as
    it was (specification, "Schema migration"; SB-32). Raises :class:`SchemaTooNew`,
    :class:`MigrationFailed`, and the storage errors when the system and not a revision failed.
    """
    chain = chain or SESSIONS
    driver = driver_of(connection)
    with (
        telemetry.span("statebackend.migrate", session_id=path.stem, path=str(path)),
        _typed_errors(path, user_version(driver), chain.version),
        transaction(connection),
    ):
        version = user_version(driver)  # again, now that nobody else can change it
        if version > chain.version:
            raise SchemaTooNew(path, version, chain.version)
        if version < chain.version:
            check_start(driver, path, chain.version)
            _run_steps(connection, chain, version)
    if 0 < version < chain.version:
        _log.info("%s: migrated from version %d to %d", path, version, chain.version)
    return version


@cache
def schema_image(chain: Chain) -> bytes:
    """Return the bytes of an empty database, made by the revisions of *chain*, once a process."""
    connection = connect_in_memory()
    try:
        with telemetry.disabled():  # no session is migrated here
            upgrade(connection, Path(":memory:"), chain)
        return driver_of(connection).serialize()
    finally:
        connection.close()


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Hold the one transaction of a migration.

    Foreign keys are off inside, since rebuilding a table needs that, and at the end compared with
    the state before: a salvaged file may hold ledger rows whose event is lost. Only the end of the
    block ends the transaction.
    """
    driver = driver_of(connection)
    (enforced,) = driver.execute("PRAGMA foreign_keys").fetchone()
    driver.execute("PRAGMA foreign_keys = OFF")  # has no effect inside a transaction
    try:
        with connection.begin():
            broken_before = _count_broken_references(driver)
            driver.set_authorizer(_keep_in_transaction(driver))
            try:
                yield
            finally:
                driver.set_authorizer(None)
            if _count_broken_references(driver) - broken_before:
                raise sqlite3.IntegrityError("it leaves rows with broken foreign keys")
    finally:
        # If a revision tried to commit, SQLAlchemy takes it for done and does not roll back.
        if driver.in_transaction:
            driver.execute("ROLLBACK")
        driver.execute(f"PRAGMA foreign_keys = {enforced}")


def check_start(driver: sqlite3.Connection, path: Path, to_version: int) -> None:
    """Refuse a file whose ``user_version`` contradicts its tables; it is the only authority.

    Tables without a version were not made by this package. An ``alembic_version`` table of another
    program is dropped where it agrees, since it would be wrong after this migration and does not
    belong to a session file (SB-09). Where it disagrees, the tables may have been changed.
    """
    version = user_version(driver)
    tables = [
        name for (name,) in driver.execute("SELECT name FROM main.sqlite_schema WHERE type='table'")
    ]
    if version == 0 and tables:
        raise MigrationFailed(
            path, version, to_version, "it has tables but no version, so it is not a session file"
        )
    if VERSION_TABLE in tables:
        stamps = driver.execute(f"SELECT * FROM main.{VERSION_TABLE}").fetchall()
        if stamps not in ([], [(f"{version:04}",)]):
            alembic_versions = ", ".join(str(stamp[0]) for stamp in stamps)
            raise MigrationFailed(
                path,
                version,
                to_version,
                f"its table {VERSION_TABLE} says {alembic_versions}, its user_version {version}; "
                "another program may have changed its tables. Find out which is right, then drop "
                "that table",
            )
        driver.execute(f"DROP TABLE main.{VERSION_TABLE}")


def user_version(driver: sqlite3.Connection) -> int:
    """Return the schema version that SQLite reports for an open file."""
    (version,) = driver.execute("PRAGMA user_version").fetchone()
    return int(version)


def operations(context: MigrationContext) -> SessionOperations:
    """Return the operations that revisions are given, on the connection of *context*."""
    from statebackend.schema.rebuild import SessionOperations

    return SessionOperations(context)


def scripts(chain: Chain | None = None) -> ScriptDirectory:
    """Read the revisions of *chain*, by default those of session files, as Alembic's object."""
    with _mute_import_logs():
        from alembic.script import ScriptDirectory

    versions = (chain or SESSIONS).versions
    return ScriptDirectory(versions.parent, version_locations=[str(versions)])


@cache
def load_steps(chain: Chain) -> tuple[Callable[[SessionOperations], None], ...]:
    """Return the steps of *chain*, read once per process: the first makes version 1.

    Raises ValueError where the revisions are not 0001, 0002 and so on in one line.
    """
    revisions = list(scripts(chain).walk_revisions())[::-1]
    for number, revision in enumerate(revisions, start=1):
        before = f"{number - 1:04}" if number > 1 else None
        if (revision.revision, revision.down_revision) != (f"{number:04}", before):
            raise ValueError(f"revision {revision.revision} is not the next after {number - 1:04}")
    return tuple(revision.module.upgrade for revision in revisions)


def _run_steps(connection: Connection, chain: Chain, version: int) -> None:
    with _mute_import_logs():
        from alembic.migration import MigrationContext

    steps = load_steps(chain)
    if len(steps) < chain.version:
        raise ValueError(f"the revisions in {chain.versions} end at version {len(steps)}")
    op = operations(MigrationContext.configure(connection, opts={"transactional_ddl": True}))
    for step in steps[version : chain.version]:
        step(op)
    driver_of(connection).execute(f"PRAGMA user_version = {chain.version}")


@contextmanager
def _mute_import_logs() -> Iterator[None]:
    """Drop Alembic's log records while this thread imports it.

    A handler that opens a session could import Alembic itself and find it half imported.
    """
    logger = logging.getLogger("alembic.runtime.plugins")
    importing = get_ident()

    def from_elsewhere(_record: logging.LogRecord) -> bool:
        return get_ident() != importing

    logger.addFilter(from_elsewhere)
    try:
        yield
    finally:
        logger.removeFilter(from_elsewhere)


@contextmanager
def _typed_errors(path: Path, from_version: int, to_version: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if getattr(error, "path", None) == path:
            raise
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, sqlite3.Error) and primary_code(cause) in _STORAGE_CODES:
            raise storage_error(path, cause) from error
        problem = f"{type(cause).__name__}: {cause}"
        raise MigrationFailed(path, from_version, to_version, problem) from error


_STORAGE_CODES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_READONLY,
}


def _keep_in_transaction(driver: sqlite3.Connection) -> Callable[..., int]:
    """Return the authorizer that keeps a revision inside the one transaction, on the one file.

    SQLite itself ends a transaction after some errors and on ``INSERT OR ROLLBACK``; each further
    statement would then be committed by itself.
    """
    denied = {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}

    def authorize(action: int, *_details: str | None) -> int:
        if action in denied or not driver.in_transaction:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    return authorize


def _count_broken_references(driver: sqlite3.Connection) -> Counter[tuple[Any, ...]]:
    # Without the number of the reference, which a rebuild of the table may change.
    return Counter(row[:3] for row in driver.execute("PRAGMA foreign_key_check"))
