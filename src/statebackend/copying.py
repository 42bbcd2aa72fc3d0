"""A consistent copy of one session, also of a live one: SQLite's backup, then a check."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from statebackend import integrity
from statebackend.errors import InvalidValue
from statebackend.faults import os_error, storage_error
from statebackend.handle import SessionView
from statebackend.paths import SUFFIX, fsync_directory


def copy(view: SessionView, path: Path) -> Path:
    """Copy what *view* sees to *path*, which must not exist; a folder gets the session's name.

    The copy is built beside its place, checked, and only then named, for its owner only (0600).
    """
    if path.is_dir():
        path = path / view.path.name
    path = path.absolute()
    building = path.with_name(path.name + ".copying")
    with os_error(path):
        descriptor = os.open(building, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
        try:
            _fill(view, building)
            _link(building, path)
        finally:
            for leftover in (building, Path(f"{building}-wal"), Path(f"{building}-shm")):
                with suppress(FileNotFoundError):
                    leftover.unlink()
        fsync_directory(path.parent)
    return path


def _fill(view: SessionView, building: Path) -> None:
    try:
        with closing(sqlite3.connect(building, isolation_level=None)) as target:
            view.backup_to(target)
            # The whole copy in one file: a `-wal` beside it would be forgotten by who moves it.
            target.execute("PRAGMA synchronous = FULL")
            target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise storage_error(building, error) from error
    integrity.check_copy(building, view.session_id)


def _link(building: Path, path: Path) -> None:
    try:
        os.link(building, path)
    except FileExistsError:
        raise InvalidValue("path", f"{path} exists already; a copy never replaces a file") from None
