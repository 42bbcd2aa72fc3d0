"""What a plain SQLite connection reads, forward, backward and by key: the least to save."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from tests.damage.layout import COUNTED, TABLES, Values

Rows = dict[str, dict[Values, Values]]
"""Rows by their keys, by table."""


def key_of(table: str, values: Values) -> Values:
    """Return the key of a row in its table."""
    return values[:3] if table == "producers" else values[:1]


def stored(path: Path) -> Rows:
    """Read all rows of a healthy file that may be in use; two rows with one key are an error."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as driver:
        driver.text_factory = _text
        found: Rows = {}
        for table in TABLES:
            rows = driver.execute(f"SELECT * FROM {table}").fetchall()
            found[table] = {key_of(table, row): row for row in rows}
            assert len(found[table]) == len(rows), f"{table} holds two rows of one key"
        return found


def counters(path: Path) -> dict[str, int]:
    """Return the highest number that each table has given, as SQLite keeps it."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as driver:
        found = dict.fromkeys(COUNTED, 0)
        for table, value in driver.execute("SELECT name, seq FROM sqlite_sequence"):
            found[table] = max(value, found.get(table, 0))
        return found


def readable(path: Path, wanted: Rows) -> dict[str, set[Values]]:
    """Return the rows among *wanted* a plain connection reads right; it may change the file."""
    found: dict[str, set[Values]] = {table: set() for table in TABLES}
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, isolation_level=None)) as driver:
        driver.text_factory = _text
        for table in TABLES:
            rows = wanted[table]
            wrong: set[Values] = set()
            for ending in ("", " ORDER BY rowid DESC"):
                for row in _each(driver, f"SELECT * FROM {table}{ending}"):
                    key = key_of(table, row)
                    (found[table] if rows.get(key) == row else wrong).add(key)
            _by_key(driver, table, rows, found[table])
            found[table] -= wrong  # of two different copies, either may be wrong
    return found


def _by_key(
    driver: sqlite3.Connection, table: str, rows: dict[Values, Values], found: set[Values]
) -> None:
    where = {
        "producers": "category = ? AND name = ? AND version = ?",
        "session_meta": "session_id = ?",
    }.get(table, "sequence = ?")
    failed = 0
    for key in rows.keys() - found:
        if failed > 50 and not found:
            return  # the schema cannot be read
        rest = _each(driver, f"SELECT * FROM {table} WHERE {where}", key)
        if next(rest, None) == rows[key]:
            found.add(key)
        else:
            failed += 1


def _each(driver: sqlite3.Connection, statement: str, parameters: Values = ()) -> Iterator[Values]:
    with suppress(sqlite3.Error, UnicodeDecodeError):
        yield from driver.execute(statement, parameters)


def _text(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
