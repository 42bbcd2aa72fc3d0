"""Refuse a WAL that SQLite would read only in part, or that belongs to another session."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from statebackend.errors import SessionDamaged
from statebackend.files import wal
from statebackend.files.paths import FileSignature, SessionFiles, sqlite_uri
from statebackend.sqlite.read_mode import IMMUTABLE

_ATTEMPTS = 5
_CLOCK_GRAIN_S = 0.02  # two changes within it may leave the same time
# NOT INDEXED reads the row itself: the WAL may hold the table's page but not that of its index.
_OWNER = "(SELECT session_id FROM session_meta NOT INDEXED)"
_NEWEST = (
    f"SELECT {_OWNER}, sequence, id FROM (SELECT 1) "
    "LEFT JOIN (SELECT sequence, id FROM events ORDER BY sequence DESC LIMIT 1)"
)


def check_wal(path: Path, page_size: int) -> None:
    """Refuse a WAL of *path* that would hide committed rows; *page_size* is in bytes.

    SQLite reads a WAL up to its first broken frame without an error, and it applies an older WAL or
    one of another session to the file. Raises :class:`SessionDamaged`. Call it only while this
    process has no connection on the file. A writer of another process may come meanwhile and
    restart the WAL, so a problem counts only if it is found twice in an unchanged WAL.
    """
    problem = _find_problem(path, page_size)
    for _ in range(_ATTEMPTS):
        if problem is None:
            return
        before = _signature(path)
        time.sleep(_CLOCK_GRAIN_S)
        again = _find_problem(path, page_size)
        if again == problem and _signature(path) == before:
            raise SessionDamaged(path, (problem,))
        problem = again


def _signature(path: Path) -> FileSignature | None:
    with suppress(FileNotFoundError):
        signature = FileSignature.of(SessionFiles(path).wal.stat())
        return signature._replace(ctime_ns=0)  # changed by SQLite as root, when it opens a WAL
    return None


def _find_problem(path: Path, page_size: int) -> str | None:
    content = wal.read(path, page_size)
    if content is None:
        return None
    if content.lost_commits:
        return f"{content.lost_commits} transactions are behind a broken frame of the WAL"
    if content.lost_frames:
        return f"{content.lost_frames} committed frames at the end of the WAL are lost or broken"
    if content.live and content.page_size != page_size:
        return "the WAL has another page size than the file"
    return _find_foreign_owner(path) if content.live else None


def _find_foreign_owner(path: Path) -> str | None:
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
        return None  # a checkpoint was cut off, or damage, which the integrity check reports
    expected_id = SessionFiles(path).session_id.encode()
    if wal_event_id not in {None, event_id}:
        problem = "the WAL holds events of another session"
    elif sequence is not None and wal_event_id is None:
        problem = "the WAL is older than the file"
    elif session_id == expected_id and wal_session_id != expected_id:
        problem = "the WAL belongs to another session"
    else:
        return None
    return problem if _is_sound_without_wal(path) else None


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
