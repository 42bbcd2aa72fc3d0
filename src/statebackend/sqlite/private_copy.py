"""Reading a session where this user may write nothing: SQLite needs to make files beside it.

A read-only mount, an archive of another user. Read as it lies there, such a file would show only
what had been folded in.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from statebackend.errors import StorageBusy
from statebackend.sqlite.faults import os_error, read_error

URI_MODE = "immutable=1"
"""How to open the copy: all is in the one file, and nobody changes it."""
_ATTEMPTS = 3


def is_needed(path: Path) -> bool:
    """Tell whether SQLite cannot read the session file *path* where it lies without a trace.

    Beside a file that this user may not write it would leave a log and an index that are as little
    to be written. Where both are there already, it can; so it is beside any other connection on it.
    """
    if all(os.access(place, os.W_OK) for place in (path, path.parent)) or not path.exists():
        return False
    return not all(os.access(f"{path}{ending}", os.R_OK) for ending in ("-wal", "-shm"))


@contextmanager
def made(path: Path) -> Iterator[Path]:
    """Give a copy of the session file *path* with its log folded in; it is gone after the block.

    What was opened within stays readable. Raises :class:`SessionDamaged`, :class:`StorageBusy`
    where somebody goes on changing the file, and the storage errors, which name the temporary
    folder when that is full. Only while this process has no connection on the file.
    """
    with TemporaryDirectory(prefix="statebackend-") as folder:
        copy = Path(folder) / path.name
        _copy(path, copy)
        try:
            with closing(sqlite3.connect(copy)) as driver:  # closing folds the log in
                driver.execute("SELECT 1 FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            raise read_error(path, error) from error
        yield copy


def _copy(path: Path, copy: Path) -> None:
    for _ in range(_ATTEMPTS):
        before = _signature(path)
        for ending in ("", "-wal"):
            with suppress(FileNotFoundError), Path(f"{path}{ending}").open("rb") as source:
                _write(source, Path(f"{copy}{ending}"))
        if _signature(path) == before:
            return
    raise StorageBusy(path, "is being changed by another process; try again")


def _write(source: BinaryIO, copy: Path) -> None:
    with os_error(copy), copy.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def _signature(path: Path) -> list[tuple[int, ...] | None]:
    found: list[tuple[int, ...] | None] = []
    for ending in ("", "-wal"):
        try:
            seen = Path(f"{path}{ending}").stat()
            found.append((seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns))
        except FileNotFoundError:
            found.append(None)
    return found
