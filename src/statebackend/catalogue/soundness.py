"""Whether the catalogue still holds what was put in it: a sum over each of its two parts.

SQLite keeps no sums of its pages, so zeroed sectors and changed bytes may be rows that lack, or
other values, without an error. Each transaction that changes a part checks the sum that it finds
and stores the new one, and each question checks it. That takes the time of reading the part, so
only small ones have a sum; of a larger one, only some damage shows.
"""

from __future__ import annotations

import marshal
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from statebackend.catalogue.text_schema import has_index

Part = Literal["entries", "texts"]

MOST_SESSIONS = 1000
MOST_TEXTS = 2500
MOST_TEXT_BYTES = 1024 * 1024
"""Up to here there is a sum of the entries, and of the texts."""

_NONE = -1
# In the order of the rows' numbers, then each index from front to back. The last one has no row if
# the index of texts has not been made.
_ENTRIES = (
    "SELECT directory, digest, unread FROM folder",
    "SELECT * FROM sessions ORDER BY number",
    "SELECT * FROM costs ORDER BY rowid",
    "SELECT * FROM plan_rules ORDER BY rowid",
    "SELECT * FROM producers ORDER BY rowid",
    "SELECT name, seq FROM sqlite_sequence",
    "SELECT stem, number FROM sessions INDEXED BY sqlite_autoindex_sessions_1 ORDER BY stem",
    """SELECT parent_session_id, number FROM sessions INDEXED BY sessions_by_parent
    ORDER BY parent_session_id""",
    """SELECT stem, number FROM sessions INDEXED BY sessions_unsigned
    WHERE mtime_ns IS NULL ORDER BY stem""",
    "SELECT number, rowid FROM costs INDEXED BY costs_by_number ORDER BY number",
    "SELECT number, rowid FROM plan_rules INDEXED BY plan_rules_by_number ORDER BY number",
    "SELECT number, rowid FROM producers INDEXED BY producers_by_number ORDER BY number",
)
_PROGRESS = "SELECT * FROM text_progress ORDER BY number"
_TEXTS = (
    "SELECT * FROM texts_content ORDER BY id",
    "SELECT * FROM texts_data ORDER BY id",
    "SELECT * FROM texts_docsize ORDER BY id",
    "SELECT * FROM texts_idx ORDER BY segid, term",
    "SELECT * FROM texts_config ORDER BY k",
)
_ROWS_AT_ONCE = 500


class Unsound(Exception):
    """The catalogue does not hold what was put in it."""


def check(driver: sqlite3.Connection, part: Part) -> None:
    """Raise :class:`Unsound`, or an error of SQLite, for damage of this part that shows."""
    ((stored,),) = driver.execute(f"SELECT {part}_sum FROM folder").fetchall()
    if stored != _NONE and stored != _sum(driver, part):
        raise Unsound(f"the {part} are not what was stored")
    if stored == _NONE and part == "texts":
        _check_count(driver)


def sign(driver: sqlite3.Connection, part: Part) -> None:
    """Store the sum of this part as it is now, at the end of the transaction that changed it."""
    found = _sum(driver, part) if _is_small(driver, part) else _NONE
    driver.execute(f"UPDATE folder SET {part}_sum = ?", (found,))


@contextmanager
def transaction(driver: sqlite3.Connection, begin: str = "BEGIN") -> Iterator[None]:
    """Run the block in a transaction, which an error undoes."""
    driver.execute(begin)
    try:
        yield
        driver.execute("COMMIT")
    finally:
        if driver.in_transaction:
            driver.execute("ROLLBACK")


@contextmanager
def changing(driver: sqlite3.Connection, part: Part) -> Iterator[None]:
    """Run the block, which changes this part, in a transaction that keeps its sum right."""
    with transaction(driver, "BEGIN IMMEDIATE"):
        check(driver, part)
        yield
        sign(driver, part)


def _sum(driver: sqlite3.Connection, part: Part) -> int:
    if part == "entries":
        return _sum_of(driver, _ENTRIES)
    if not has_index(driver):
        return _sum_of(driver, (_PROGRESS,))
    if driver.in_transaction:  # FTS5 has rows in memory, which it writes before a savepoint
        driver.execute("SAVEPOINT written")
        driver.execute("RELEASE written")
    return _sum_of(driver, (_PROGRESS, *_TEXTS))


def _sum_of(driver: sqlite3.Connection, queries: tuple[str, ...]) -> int:
    found = 0
    for query in queries:
        cursor = driver.execute(query)
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            found = zlib.crc32(marshal.dumps(rows, 2), found)
    return found


def _is_small(driver: sqlite3.Connection, part: Part) -> bool:
    query = f"SELECT count(*) FROM (SELECT * FROM sessions LIMIT {MOST_SESSIONS + 1})"
    if driver.execute(query).fetchone()[0] > MOST_SESSIONS:
        return False
    if part == "entries":
        return True
    (rows, size) = driver.execute("SELECT total(rows), total(bytes) FROM text_progress").fetchone()
    return bool(rows <= MOST_TEXTS and size <= MOST_TEXT_BYTES)


def _check_count(driver: sqlite3.Connection) -> None:
    """Refuse an index that has not as many texts as were put in it."""
    (stored,) = driver.execute("SELECT total(rows) FROM text_progress").fetchone()
    found = 0
    if has_index(driver):
        (found,) = driver.execute("SELECT count(*) FROM texts_docsize").fetchone()
    if stored != found:
        raise Unsound(f"{found:,} texts are indexed, not {stored:,.0f}")
