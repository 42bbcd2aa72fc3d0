"""The page images of a damaged session."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from statebackend import StateBackend
from tests.damaging import recover, table_report
from tests.session_files import new, path_of, rows_of


@pytest.mark.parametrize("page_size", [512, 1024, 16384, 65536])
def test_page_size_without_a_header(backend: StateBackend, page_size: int) -> None:
    """The cells of a page end where the page does."""
    session_id = new(backend, events=120, size=400)
    path = path_of(backend, session_id)
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        driver.execute("PRAGMA journal_mode = DELETE").fetchone()
        driver.execute(f"PRAGMA page_size = {page_size}")
        driver.execute("VACUUM")
        driver.execute("PRAGMA journal_mode = WAL").fetchone()
    before = rows_of(path)
    with path.open("r+b") as file:
        file.write(bytes(100))
    assert table_report(recover(backend, session_id), "events").kept == 120
    assert rows_of(path)["events"] == before["events"]
