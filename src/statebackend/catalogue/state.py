"""How the catalogue is, for a person; asking changes nothing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from statebackend.catalogue.file import catalogue_path
from statebackend.catalogue.text_schema import text_bytes
from statebackend.paths import sqlite_uri

_BUSY_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of a catalogue; without a file, all but ``path`` is None.

    ``size_bytes`` is the room it takes on the disk, its log included. ``schema`` is its number,
    ``sessions`` counts those in it, at its last use. ``text_bytes`` is the text that is indexed for
    search. Where the file cannot be read, ``problem`` says why; the next use makes it anew.
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
        uri = sqlite_uri(path, "mode=rw")  # mode=ro would leave its log behind
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S)) as driver:
            driver.execute("PRAGMA query_only = ON")
            (schema,) = driver.execute("PRAGMA user_version").fetchone()
            (sessions,) = driver.execute("SELECT count(*) FROM sessions").fetchone()
            text = text_bytes(driver)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return State(path=path, size_bytes=size_bytes, problem=str(error))
    return State(
        path=path, size_bytes=size_bytes, schema=schema, sessions=sessions, text_bytes=text
    )


def _size(path: Path) -> int | None:
    size = None
    for name in (str(path), f"{path}-wal"):
        try:
            size = (size or 0) + os.stat(name).st_size  # noqa: PTH116 - the log has no path
        except OSError:
            continue
    return size
