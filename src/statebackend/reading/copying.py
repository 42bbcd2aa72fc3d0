"""A consistent copy of one session, also of a live one: SQLite's backup, then a check."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import mkstemp

from statebackend.errors import InvalidValue, StorageFull
from statebackend.files.paths import SessionFiles, fsync_directory, link_new
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
        for sidecar in _sidecars(path):
            if os.path.lexists(sidecar):
                raise InvalidValue(
                    "path",
                    f"{sidecar.name} exists, and SQLite would apply it to the copy; remove it, or "
                    "choose another path",
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
            for file in (building, *_sidecars(building)):
                file.unlink(missing_ok=True)
        fsync_directory(path.parent)
    return path


def _sidecars(path: Path) -> tuple[Path, ...]:
    files = SessionFiles(path)
    return (files.wal, files.journal, files.shm)


def _fill(view: SessionView, building: Path) -> None:
    try:
        # Closing checkpoints the WAL, so that the copy is one file.
        with closing(sqlite3.connect(building, isolation_level=None)) as target:
            view.backup_to(target)
    except StorageFull as error:  # the view names its own file
        raise StorageFull(building, error.problem) from error
    except sqlite3.Error as error:
        raise storage_error(building, error) from error
    integrity.check_copy(building, view.session_id)
