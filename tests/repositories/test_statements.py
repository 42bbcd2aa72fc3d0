"""Rows that go in by one statement: as many and in the order given."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from statebackend.repositories.statements import insert_rows

INSERT = "INSERT INTO t (a, b) VALUES (?, ?)"


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 63, 64, 65, 95, 128, 1000])
def test_all_rows_go_in_in_their_order(count: int) -> None:
    """Whatever is left behind the full statements, with few texts of statements."""
    rows = [(number, f"{number}") for number in range(count)]
    texts: list[str] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as driver:
        driver.execute("CREATE TABLE t (sequence INTEGER PRIMARY KEY AUTOINCREMENT, a, b)")
        driver.set_trace_callback(texts.append)
        insert_rows(driver, INSERT, rows)
        driver.set_trace_callback(None)
        found = driver.execute("SELECT * FROM t ORDER BY sequence").fetchall()
    assert found == [(number + 1, *row) for number, row in enumerate(rows)]
    assert len(texts) <= count // 64 + 4


def test_a_refused_row_is_told() -> None:
    """As by a statement of its own; the transaction is the caller's."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as driver:
        driver.execute("CREATE TABLE t (a UNIQUE, b)")
        with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE.*t\.a"):
            insert_rows(driver, INSERT, [(1, "x"), (2, "y"), (1, "z")])
