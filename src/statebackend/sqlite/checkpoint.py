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
    """Checkpoint the whole WAL, so that the next commit restarts it; return whether that succeeded.

    For the writer's connection, between transactions. It waits half a second for readers; a
    snapshot that is held longer makes it fail, as does an error of the system.
    """
    try:
        driver.execute(f"PRAGMA busy_timeout = {CHECKPOINT_TIMEOUT_MS}")
        (busy, _frames, _checkpointed) = driver.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    except sqlite3.Error:
        return False  # the WAL keeps every commit, and SQLite checkpoints on
    else:
        return not busy
    finally:
        driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


def remove_stale_wal(path: Path, *, may_checkpoint: bool) -> None:
    """Remove the WAL if two connections closed at once and neither removed it.

    Each took the other for the last connection. An empty WAL is removed; one with content, as a
    writer leaves, only if *may_checkpoint*. Call it after closing a connection: if another one is
    still open, its owner calls it later.
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
    """Return a connection that has opened the WAL, to be closed as the last one on the file."""
    driver = sqlite3.connect(sqlite_uri(path, mode), uri=True)
    driver.execute("SELECT 1 FROM sqlite_schema").fetchone()  # the first read opens the WAL
    return driver
