"""The settings of a connection: one function a pragma, each with its reason.

A file system or an SQLite library where a setting has no effect is refused.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from tempfile import TemporaryFile

from statebackend.errors import StorageUnsupported
from statebackend.sqlite.faults import primary_code

BUSY_TIMEOUT_MS = 5_000
WAL_KEPT_BYTES = 8 * 1024 * 1024
"""After a checkpoint SQLite truncates the WAL to this size, twice its auto-checkpoint threshold."""


def set_wal(driver: sqlite3.Connection, path: Path) -> None:
    """Switch to WAL mode, so that readers and the writer do not wait for each other (SB-07)."""
    try:
        (mode,) = driver.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError as error:
        # The file is in WAL mode already, but SQLite cannot open its WAL or shm.
        if primary_code(error) != sqlite3.SQLITE_CANTOPEN or not _can_create_files(path.parent):
            raise
        mode = str(error)
    if mode != "wal":
        raise StorageUnsupported(
            path,
            f"SQLite cannot use WAL mode on this file system (it answered {mode!r}); "
            "keep sessions on a local disk",
        )


def check_writable(driver: sqlite3.Connection) -> None:
    """Refuse a file or WAL that SQLite could open only for reading.

    SQLite falls back to reading without an error, and every later write would fail.
    """
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        driver.execute("UPDATE session_meta SET status = status WHERE 0")  # BEGIN would succeed
    except sqlite3.OperationalError as error:
        # BUSY: another process writes, so it is possible. ERROR: a migration makes the table.
        if primary_code(error) not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_ERROR}:
            raise
    finally:
        driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


def _can_create_files(folder: Path) -> bool:
    """Return whether a file can be created here, as rights, space and descriptors allow."""
    try:
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def set_synchronous(driver: sqlite3.Connection) -> None:
    """Sync each commit: in WAL mode, NORMAL may lose the last commits at a power loss."""
    driver.execute("PRAGMA synchronous = FULL")


def limit_wal(driver: sqlite3.Connection) -> None:
    """Truncate a long WAL when it restarts after a checkpoint."""
    driver.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")


def set_foreign_keys(driver: sqlite3.Connection, path: Path) -> None:
    """Enforce foreign keys, which SQLite does not by default."""
    driver.execute("PRAGMA foreign_keys = ON")
    if driver.execute("PRAGMA foreign_keys").fetchone() != (1,):
        raise StorageUnsupported(path, "this SQLite library cannot enforce foreign keys")
