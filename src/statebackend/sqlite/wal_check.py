"""Refuse a WAL that SQLite would read only in part, or that belongs to another session."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from statebackend.errors import SessionDamaged
from statebackend.files import wal
from statebackend.files.paths import SessionFiles, sqlite_uri
from statebackend.sqlite.read_mode import IMMUTABLE

# NOT INDEXED reads the row itself: the WAL may hold the table's page but not that of its index.
_OWNER = "(SELECT session_id FROM session_meta NOT INDEXED)"
_NEWEST = (
    f"SELECT {_OWNER}, sequence, id FROM (SELECT 1) "
    "LEFT JOIN (SELECT sequence, id FROM events ORDER BY sequence DESC LIMIT 1)"
)


def check_wal(path: Path, page_size: int) -> None:
    """Refuse a WAL of *path* that would hide committed rows; *page_size* is in bytes.

    SQLite reads a WAL up to its first broken frame without an error, and it applies an older WAL or
    one of another session to the file. Raises :class:`SessionDamaged`. Call it only while nobody
    writes, and while this process has no connection on the file.
    """
    content = wal.read(path, page_size)
    if content is None:
        return
    if content.lost_commits:
        problem = f"{content.lost_commits} transactions are behind a broken frame of the WAL"
        raise SessionDamaged(path, (problem,))
    if content.lost_frames:
        problem = f"{content.lost_frames} committed frames at the end of the WAL are lost or broken"
        raise SessionDamaged(path, (problem,))
    if content.live and content.page_size != page_size:
        raise SessionDamaged(path, ("the WAL has another page size than the file",))
    if content.live:
        _check_owner(path)


def _check_owner(path: Path) -> None:
    """Compare the file without its WAL and with it: events are only ever added."""
    try:
        with closing(_connect(path, IMMUTABLE)) as driver:
            session_id, sequence, event_id = driver.execute(_NEWEST).fetchone()
        with closing(_connect(path, "mode=ro")) as driver:
            wal_session_id, wal_event_id = driver.execute(
                f"SELECT {_OWNER}, (SELECT id FROM events WHERE sequence = ?)",
                (sequence,),
            ).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        return  # a checkpoint was cut off, or damage, which the integrity check reports
    expected_id = SessionFiles(path).session_id.encode()
    if wal_event_id not in {None, event_id}:
        problem = "the WAL holds events of another session"
    elif sequence is not None and wal_event_id is None:
        problem = "the WAL is older than the file"
    elif session_id == expected_id and wal_session_id != expected_id:
        problem = "the WAL belongs to another session"
    else:
        return
    if _is_sound_without_wal(path):
        raise SessionDamaged(path, (problem,))


def _is_sound_without_wal(path: Path) -> bool:
    """Return whether the file without its WAL passes the integrity check.

    After a power cut during a checkpoint, a torn page can show rows that were never written.
    """
    try:
        with closing(_connect(path, IMMUTABLE)) as driver:
            return bool(driver.execute("PRAGMA integrity_check(1)").fetchone() == (b"ok",))
    except (sqlite3.Error, UnicodeDecodeError):
        return False


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    driver = sqlite3.connect(sqlite_uri(path, mode), uri=True)
    driver.text_factory = bytes
    return driver
