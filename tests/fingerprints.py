"""The structure of a file, of DDL text and of mapped tables, to compare with each other."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import MetaData, create_engine
from sqlalchemy.pool import StaticPool

from statebackend.files.paths import sqlite_uri
from statebackend.schema.fingerprint import Fingerprint, differences, of_connection
from statebackend.sqlite.read_mode import read_mode

__all__ = ["differences", "of_connection", "of_ddl", "of_file", "of_metadata"]


def of_file(path: Path) -> Fingerprint:
    """Return the facts about the SQLite file *path*, leaving it and its folder as they are."""
    driver = sqlite3.connect(sqlite_uri(path, read_mode(path).parameters), uri=True)
    try:
        driver.execute("PRAGMA query_only = ON")
        return of_connection(driver)
    finally:
        driver.close()


def of_ddl(statements: str | Iterable[str]) -> Fingerprint:
    """Return the facts about an empty database made by *statements*: a script, or one by one."""
    driver = sqlite3.connect(":memory:")
    try:
        if isinstance(statements, str):
            driver.executescript(statements)
        else:
            for statement in statements:
                driver.execute(statement)
        return of_connection(driver)
    finally:
        driver.close()


def of_metadata(metadata: MetaData) -> Fingerprint:
    """Return the facts about the tables that SQLAlchemy creates from *metadata*."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    try:
        metadata.create_all(engine)
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            return of_connection(driver)
    finally:
        engine.dispose()
