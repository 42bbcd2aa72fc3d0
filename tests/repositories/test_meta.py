"""The statements on ``session_meta``, run on the driver's connection without a commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from statebackend.repositories import meta
from statebackend.schema import migrate

ROW = (
    "01H00000000000000000000000",
    None,
    "default",
    "running",
    0,
    "2026-01-01T00:00:00.000Z",
    None,
)


@pytest.fixture
def driver() -> Iterator[sqlite3.Connection]:
    """Give a database in memory with one row in ``session_meta``, inside a transaction."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as driver:
        driver.deserialize(migrate.schema_image(migrate.SESSIONS))
        driver.execute(f"INSERT INTO session_meta VALUES ({', '.join('?' * len(ROW))})", ROW)
        driver.execute("BEGIN")
        yield driver


@pytest.mark.parametrize("ended_at", ["2026-01-02T00:00:00.000Z", None])
def test_update_status_sets_two_columns_and_does_not_commit(
    driver: sqlite3.Connection, ended_at: str | None
) -> None:
    """All other columns keep their values."""
    meta.update_status(driver, ROW[0] or "", "failed", ended_at)
    assert meta.select_status(driver) == "failed"
    row = driver.execute("SELECT * FROM session_meta").fetchall()
    assert row == [(*ROW[:3], "failed", *ROW[4:6], ended_at)]
    assert driver.in_transaction


def test_update_status_raises_without_the_row(driver: sqlite3.Connection) -> None:
    """Another program may have removed it."""
    with pytest.raises(sqlite3.DatabaseError):
        meta.update_status(driver, "01H00000000000000000000001", "failed", None)
    assert meta.select_status(driver) == "running"


def test_rewrite_keeps_the_row(driver: sqlite3.Connection) -> None:
    """It is only there to put the page into the WAL."""
    meta.rewrite(driver)
    assert driver.execute("SELECT * FROM session_meta").fetchall() == [ROW]
