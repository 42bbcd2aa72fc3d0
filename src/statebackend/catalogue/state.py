"""The state of the catalogue, for a person; reading it changes nothing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from statebackend.catalogue import schema
from statebackend.catalogue.file import catalogue_path, describe, is_damage, refuse_irregular
from statebackend.errors import StorageError
from statebackend.files.paths import sqlite_uri
from statebackend.sqlite.faults import os_error

_BUSY_TIMEOUT_S = 1.0
_LOST_COSTS = (
    "SELECT count(*) FROM sessions "
    "WHERE ledger_rows > 0 AND number NOT IN (SELECT number FROM costs)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueState:
    """The state of a catalogue; without a file, all but ``path`` is None.

    ``size_bytes`` is its size on the disk with its WAL. ``schema`` is its number, ``sessions``
    counts those in it, at its last use. ``text_bytes`` is the size of the text indexed for search.
    Where the file cannot be read, ``problem`` says why; the next use rebuilds it. ``problem`` is
    also what :func:`check` found.
    """

    path: Path
    size_bytes: int | None = None
    schema: int | None = None
    sessions: int | None = None
    text_bytes: int | None = None
    problem: str | None = None


def state_of(directory: Path) -> CatalogueState:
    """Read the state of the catalogue of the sessions folder *directory*."""
    path = catalogue_path(directory)
    size_bytes = _size(path)
    if size_bytes is None:
        return CatalogueState(path=path)
    try:
        with os_error(path):
            refuse_irregular(path)
    except StorageError as error:
        return CatalogueState(path=path, size_bytes=size_bytes, problem=error.problem)
    if path.is_symlink():  # perhaps to a session, whose WAL opening it would checkpoint
        return CatalogueState(path=path, size_bytes=size_bytes, problem="is a symbolic link")
    try:
        with closing(_connect(path)) as driver:
            driver.execute("PRAGMA query_only = ON")
            (number,) = driver.execute("PRAGMA user_version").fetchone()
            (sessions,) = driver.execute("SELECT count(*) FROM sessions").fetchone()
            text = schema.text_bytes(driver)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return CatalogueState(path=path, size_bytes=size_bytes, problem=describe(error))
    return CatalogueState(
        path=path, size_bytes=size_bytes, schema=number, sessions=sessions, text_bytes=text
    )


def check(state: CatalogueState) -> CatalogueState:
    """Check the whole file, and return *state* with what that finds as its ``problem``.

    It reads the whole file and tokenizes all of its text again.
    """
    if state.size_bytes is None or state.problem is not None:
        return state
    try:
        with closing(_connect(state.path)) as driver:
            problem = _find_problem(driver)
    except (sqlite3.Error, schema.CatalogueDamaged) as error:
        if not is_damage(error):  # in use, or not writable, which FTS5's check requires
            return state
        problem = describe(error)
    return replace(state, problem=problem)


def _find_problem(driver: sqlite3.Connection) -> str | None:
    ((first, *_),) = driver.execute("PRAGMA integrity_check(1)").fetchall()
    if first != "ok":
        return str(first)
    with schema.value_errors_are_damage():
        (lost,) = driver.execute(_LOST_COSTS).fetchone()
        if lost:
            raise schema.CatalogueDamaged(f"the costs of {lost:,} sessions are missing")
        if schema.has_index(driver):
            schema.check_text_count(driver)
            driver.execute("INSERT INTO texts (texts) VALUES ('integrity-check')")
    return None


def _connect(path: Path) -> sqlite3.Connection:
    uri = sqlite_uri(path, "mode=rw")  # mode=ro would leave its WAL behind
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)


def _size(path: Path) -> int | None:
    size = None
    for name in (str(path), f"{path}-wal"):
        try:
            size = (size or 0) + os.stat(name).st_size  # noqa: PTH116 - the WAL has no Path
        except OSError:
            continue
    return size
