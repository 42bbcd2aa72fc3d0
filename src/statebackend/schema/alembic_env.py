"""What ``migrations/env.py`` needs to run the ordinary ``alembic`` command on one session.

Alembic keeps its version in a table of its own. Here that is a TEMP table, filled from
``user_version`` and written back in the same transaction, so the file never holds it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from sqlalchemy import Connection

from statebackend.errors import SessionNotFound
from statebackend.files import claim, header, open_files
from statebackend.files.paths import SessionFiles
from statebackend.schema import fingerprint, migrate
from statebackend.sqlite import engine, integrity
from statebackend.sqlite.faults import os_error


@contextmanager
def reading(path: Path | None) -> Iterator[Connection]:
    """Give Alembic a connection that cannot write: on *path*, or on a new file's schema if None.

    No lock is taken, so a writer is not disturbed. Raises as opening a session does.
    """
    if path is None:
        # At the last revision, also one that the program does not use yet.
        with _at_version(len(migrate.load_steps(migrate.SESSIONS))) as connection:
            _seed(engine.driver_of(connection))
            yield connection
    else:
        path = path.absolute()
        with _check_and_record(path), _closing(engine.connect_for_reading(path)) as connection:
            driver = engine.driver_of(connection)
            driver.set_authorizer(None)
            driver.execute("PRAGMA query_only = OFF")
            _seed(driver)
            driver.execute("PRAGMA query_only = ON")
            yield connection


@contextmanager
def writing(path: Path) -> Iterator[Connection]:
    """Give Alembic the one transaction of a migration of *path*, under the writer's claim.

    The version in Alembic's table at the end becomes the file's. Raises as opening a session for
    writing does; the file is then as it was.
    """
    path = path.absolute()
    with _check_and_record(path), ExitStack() as stack:
        stack.callback(claim.acquire(path).release)
        integrity.check_file(path, immutable=not header.has_wal(path))
        with (
            _closing(engine.connect_for_writing(path)) as connection,
            migrate.transaction(connection),
        ):
            migrate.check_start(engine.driver_of(connection), path, migrate.SESSIONS.version)
            _seed(engine.driver_of(connection))
            yield connection
            _store_version(engine.driver_of(connection))


def check_stamp(connection: Connection, version: int) -> None:
    """Raise ValueError unless the tables are those of *version*, the version to be stamped."""
    with _at_version(version) as new:
        expected = fingerprint.of_connection(engine.driver_of(new))
    actual = fingerprint.of_connection(engine.driver_of(connection))
    if differing := fingerprint.differences(expected, actual):
        raise ValueError(
            f"the tables are not those of version {version}, so it is not stamped: {differing[0]}"
            + (f" (and {len(differing) - 1} more)" if len(differing) > 1 else "")
        )


class WithoutVersionTable:
    """A script's output without the statements on Alembic's own table."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def write(self, text: str) -> int:
        """Write *text*, unless it is a statement about the version table."""
        return 0 if migrate.VERSION_TABLE in text else self._output.write(text)

    def flush(self) -> None:
        """Flush the output below."""
        self._output.flush()


@contextmanager
def _check_and_record(path: Path) -> Iterator[None]:
    """Check the header before SQLite opens the file, and record it as open in this process."""
    with os_error(path):
        if header.check_regular(path) is None:
            raise SessionNotFound(SessionFiles(path).session_id, path.parent)
        claim.refuse_if_held_here(path)
        with open_files.untouched(path) as untouched:
            if untouched:
                header.read_header(path)
        with open_files.OpenFile(path):
            yield


@contextmanager
def _closing(connection: Connection) -> Iterator[Connection]:
    try:
        yield connection
    finally:
        engine.close(connection)


@contextmanager
def _at_version(version: int) -> Iterator[Connection]:
    with _closing(engine.connect_in_memory()) as connection:
        chain = replace(migrate.SESSIONS, version=version)
        migrate.upgrade(connection, Path(":memory:"), chain)
        yield connection


def _seed(driver: sqlite3.Connection) -> None:
    """Make Alembic's TEMP table, filled from ``user_version``."""
    table, version = f"temp.{migrate.VERSION_TABLE}", migrate.user_version(driver)
    driver.execute(f"CREATE TABLE {table} (version_num TEXT NOT NULL PRIMARY KEY)")
    if version:
        driver.execute(f"INSERT INTO {table} VALUES (?)", (f"{version:04}",))


def _store_version(driver: sqlite3.Connection) -> None:
    """Store Alembic's version as ``user_version``, and drop its table."""
    stamps = driver.execute(f"SELECT version_num FROM temp.{migrate.VERSION_TABLE}").fetchall()
    versions = [int(stamp) for (stamp,) in stamps]
    if len(versions) != 1 or versions[0] > migrate.SESSIONS.version:
        raise ValueError(
            f"the file would be at {versions or 'no version'}, and this program could not open it: "
            f"it works with version {migrate.SESSIONS.version} (SCHEMA_VERSION)"
        )
    driver.execute(f"PRAGMA user_version = {versions[0]}")
    driver.execute(f"DROP TABLE temp.{migrate.VERSION_TABLE}")
