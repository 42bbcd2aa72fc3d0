"""What SQLite does not say of a write-ahead log: that it leaves some of it out, or whose it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from statebackend.errors import SessionDamaged
from statebackend.files import wal
from statebackend.files.paths import SUFFIX, sqlite_uri
from statebackend.sqlite.read_mode import IMMUTABLE

# An index knows the id too, and a log need not hold that one's page.
_OWNER = "(SELECT session_id FROM session_meta NOT INDEXED)"
_NEWEST = (
    f"SELECT {_OWNER}, sequence, id FROM (SELECT 1) "
    "LEFT JOIN (SELECT sequence, id FROM events ORDER BY sequence DESC LIMIT 1)"
)


def check_wal(path: Path, page_size: int) -> None:
    """Refuse a log beside *path* that would hide what was committed; *page_size* is in bytes.

    SQLite reads a log up to its first broken frame and says nothing; and it applies a log of an
    earlier time, or of another session, to the file. Raises :class:`SessionDamaged`. Only while
    nobody writes, and while this process has no connection on the file.
    """
    log = wal.read(path, page_size)
    if log is None:
        return
    if log.lost_commits:
        raise SessionDamaged(
            path,
            (f"{log.lost_commits} transactions behind a broken frame of the write-ahead log",),
        )
    if log.lost_frames:
        raise SessionDamaged(
            path,
            (f"{log.lost_frames} committed frames at the end of its log are gone or broken",),
        )
    if log.live and log.page_size != page_size:
        raise SessionDamaged(path, ("the write-ahead log has pages of another size",))
    if log.live:
        _check_owner(path)


def _check_owner(path: Path) -> None:
    """Compare the file without its log, and with it: events are only ever added."""
    try:
        with closing(_connect(path, IMMUTABLE)) as alone:
            session_id, sequence, event_id = alone.execute(_NEWEST).fetchone()
        with closing(_connect(path, "mode=ro")) as driver:
            together = driver.execute(
                f"SELECT {_OWNER}, (SELECT id FROM events WHERE sequence = ?)",
                (sequence,),
            ).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        return  # in the middle of being folded in, or damaged: the check itself will say
    stem = path.name.removesuffix(SUFFIX).encode()
    if together[1] not in {None, event_id}:
        problem = "the write-ahead log holds another session's events"
    elif sequence is not None and together[1] is None:
        problem = "the write-ahead log is older than the file"
    elif session_id == stem and together[0] != stem:
        problem = "the write-ahead log is another session's"
    else:
        return
    if _whole_alone(path):
        raise SessionDamaged(path, (problem,))


def _whole_alone(path: Path) -> bool:
    """Tell whether the file is sound without its log.

    If the power went while the log was folded in, a torn page can show rows that never were.
    """
    try:
        with closing(_connect(path, IMMUTABLE)) as alone:
            return bool(alone.execute("PRAGMA integrity_check(1)").fetchone() == (b"ok",))
    except (sqlite3.Error, UnicodeDecodeError):
        return False


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    driver = sqlite3.connect(sqlite_uri(path, mode), uri=True)
    driver.text_factory = bytes
    return driver
