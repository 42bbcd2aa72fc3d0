"""What a connection is set to: one function a pragma, each with its reason.

A file system or library on which SQLite does not obey is refused.
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
    """WAL, so that readers and the writer do not wait for each other (SB-07)."""
    try:
        (mode,) = driver.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError as error:
        # A file that says WAL already, where its log and index cannot be had.
        if primary_code(error) != sqlite3.SQLITE_CANTOPEN or not _takes_files(path.parent):
            raise
        mode = str(error)
    if mode != "wal":
        raise StorageUnsupported(
            path,
            f"SQLite's WAL mode is not possible on this file system (it answered {mode!r}); "
            "keep sessions on a local disk",
        )


def check_writable(driver: sqlite3.Connection) -> None:
    """Refuse a file or log that SQLite, refused to open it for writing, opened for reading.

    It does so without a word, and every later write would fail.
    """
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        driver.execute("UPDATE session_meta SET status = status WHERE 0")  # BEGIN would not tell
    except sqlite3.OperationalError as error:
        # Somebody else writes, so one can; or there is no table yet, and a migration makes it.
        if primary_code(error) not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_ERROR}:
            raise
    finally:
        driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


def _takes_files(folder: Path) -> bool:
    """Tell whether a file can be made here: neither rights, room nor descriptors are lacking."""
    try:
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def set_synchronous(driver: sqlite3.Connection) -> None:
    """FULL, since in WAL mode NORMAL may lose the last commits at a power loss."""
    driver.execute("PRAGMA synchronous = FULL")


def limit_wal(driver: sqlite3.Connection) -> None:
    """Give the room of a long log back, once it is folded in and begun anew."""
    driver.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")


def set_foreign_keys(driver: sqlite3.Connection, path: Path) -> None:
    """Let SQLite enforce the references of the schema, which it does not by default."""
    driver.execute("PRAGMA foreign_keys = ON")
    if driver.execute("PRAGMA foreign_keys").fetchone() != (1,):
        raise StorageUnsupported(path, "this SQLite library cannot enforce foreign keys")
