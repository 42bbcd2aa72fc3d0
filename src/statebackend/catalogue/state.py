"""How the catalogue is, for a person; asking changes nothing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from statebackend.catalogue.file import catalogue_path, is_damage, refuse_irregular, told
from statebackend.catalogue.soundness import Unsound, check, transaction
from statebackend.catalogue.text_schema import has_index, text_bytes
from statebackend.errors import StorageError
from statebackend.files.paths import sqlite_uri
from statebackend.sqlite.faults import os_error

_BUSY_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of a catalogue; without a file, all but ``path`` is None.

    ``size_bytes`` is the room it takes on the disk, its log included. ``schema`` is its number,
    ``sessions`` counts those in it, at its last use. ``text_bytes`` is the text that is indexed for
    search. Where the file cannot be read, ``problem`` says why; the next use makes it anew. It also
    says what :func:`checked` found.
    """

    path: Path
    size_bytes: int | None = None
    schema: int | None = None
    sessions: int | None = None
    text_bytes: int | None = None
    problem: str | None = None


def state_of(directory: Path) -> State:
    """Look at the catalogue of the sessions folder *directory*."""
    path = catalogue_path(directory)
    size_bytes = _size(path)
    if size_bytes is None:
        return State(path=path)
    try:
        with os_error(path):
            refuse_irregular(path)
    except StorageError as error:
        return State(path=path, size_bytes=size_bytes, problem=error.problem)
    if path.is_symlink():  # to a session, maybe, whose log opening it would fold in
        return State(path=path, size_bytes=size_bytes, problem="is a link")
    try:
        with closing(_connected(path)) as driver:
            driver.execute("PRAGMA query_only = ON")
            (schema,) = driver.execute("PRAGMA user_version").fetchone()
            (sessions,) = driver.execute("SELECT count(*) FROM sessions").fetchone()
            text = text_bytes(driver)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return State(path=path, size_bytes=size_bytes, problem=told(error))
    return State(
        path=path, size_bytes=size_bytes, schema=schema, sessions=sessions, text_bytes=text
    )


def checked(state: State) -> State:
    """Return *state* with what a check of the whole file finds as its ``problem``.

    This reads all of it, and parts all of its text into words again.
    """
    if state.size_bytes is None or state.problem is not None:
        return state
    try:
        with closing(_connected(state.path)) as driver:
            problem = _problem(driver)
    except (sqlite3.Error, Unsound) as error:
        if not is_damage(error):  # it is in use, or may not be written, which FTS5's check needs
            return state
        problem = told(error)
    return replace(state, problem=problem)


def _problem(driver: sqlite3.Connection) -> str | None:
    ((found, *_),) = driver.execute("PRAGMA integrity_check(1)").fetchall()
    if found != "ok":
        return str(found)
    with transaction(driver):
        check(driver, "entries")
        check(driver, "texts")
    if has_index(driver):
        driver.execute("INSERT INTO texts (texts) VALUES ('integrity-check')")
    return None


def _connected(path: Path) -> sqlite3.Connection:
    uri = sqlite_uri(path, "mode=rw")  # mode=ro would leave its log behind
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)


def _size(path: Path) -> int | None:
    size = None
    for name in (str(path), f"{path}-wal"):
        try:
            size = (size or 0) + os.stat(name).st_size  # noqa: PTH116 - the log has no path
        except OSError:
            continue
    return size
