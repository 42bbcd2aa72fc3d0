"""Checkpoints by the writer, and the WAL that the last connection of a file leaves behind."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from statebackend.files.header import has_wal
from statebackend.files.open_files import only_here
from statebackend.files.paths import SessionFiles, sqlite_uri
from statebackend.files.sqlite_locks import is_read_elsewhere
from statebackend.sqlite.settings import BUSY_TIMEOUT_MS

CHECKPOINT_TIMEOUT_MS = 500
_ATTEMPTS = 20


def restart_wal(driver: sqlite3.Connection) -> bool:
    """Fold the whole log in, and let the next commit begin it anew; tell whether that was possible.

    For the writer's connection, between transactions. It waits a moment for readers that are in a
    page; a snapshot that is held longer makes it impossible, as does an error of the system.
    """
    try:
        driver.execute(f"PRAGMA busy_timeout = {CHECKPOINT_TIMEOUT_MS}")
        (busy, _frames, _folded) = driver.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    except sqlite3.Error:
        return False  # nothing is lost by it: the log has everything, and SQLite's folds go on
    else:
        return not busy
    finally:
        driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


def remove_stale_wal(path: Path, *, may_checkpoint: bool) -> None:
    """Do what the last connection does as it closes, where two of them closed at once.

    Each then took the other for the last one, and left the log behind: an empty one, or, of a
    writer, who may *fold* it. It is left to whoever is on the file still, and who is not any more
    asks after letting go; so one of them does it.
    """
    for _ in range(_ATTEMPTS):
        if not SessionFiles(path).wal.exists() or SessionFiles(path).lock.exists():
            return
        if not may_checkpoint and has_wal(path):
            return
        with only_here(path) as only:
            if not only or is_read_elsewhere(path):
                return
            with suppress(sqlite3.Error):
                last_connection(path, "mode=rw").close()


def last_connection(path: Path, mode: str) -> sqlite3.Connection:
    """Return a connection that is on the WAL, and so will be the last one on the file."""
    last = sqlite3.connect(sqlite_uri(path, mode), uri=True)
    last.execute("SELECT 1 FROM sqlite_schema").fetchone()  # only now is it on the log
    return last
