"""A consistent copy of one session, also of a live one: SQLite's backup, then a check."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from tempfile import mkstemp

from statebackend.errors import InvalidValue, StorageFull
from statebackend.files.paths import fsync_directory, link_new
from statebackend.reading.view import SessionView
from statebackend.sqlite import integrity
from statebackend.sqlite.faults import os_error, storage_error


def copy(view: SessionView, path: Path) -> Path:
    """Copy what *view* sees to *path*, which must not exist; a folder gets the session's name.

    The copy is built beside its place, checked, and only then named, for its owner only (0600).
    Raises :class:`InvalidValue` when *path* is taken, and the storage errors.
    """
    with os_error(path):
        if path.is_dir():
            path = path / view.path.name
        path = path.absolute()
        for ending in ("-wal", "-journal", "-shm"):
            if os.path.lexists(f"{path}{ending}"):
                raise InvalidValue(
                    "path", f"{path.name}{ending} is there, which SQLite would take for the copy's"
                )
        descriptor, name = mkstemp(prefix=path.name + ".", suffix=".copying", dir=path.parent)
        building = Path(name)
        try:
            _fill(view, building)
            os.fsync(descriptor)
            link_new(building, path)
        except FileExistsError:
            raise InvalidValue(
                "path", f"{path} exists already; a copy never replaces a file"
            ) from None
        finally:
            os.close(descriptor)
            for ending in ("", "-journal", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    Path(f"{building}{ending}").unlink()
        fsync_directory(path.parent)
    return path


def _fill(view: SessionView, building: Path) -> None:
    try:
        # Closing folds the log in, so that the whole copy is one file.
        with closing(sqlite3.connect(building, isolation_level=None)) as target:
            view.backup_to(target)
    except StorageFull as error:  # the view says it of its own file
        raise StorageFull(building, error.problem) from error
    except sqlite3.Error as error:
        raise storage_error(building, error) from error
    integrity.check_copy(building, view.session_id)
