"""The bare side: the same work with ``sqlite3`` alone, in the plainest code that does it right."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from benchmarks.samples import Sample

INSERT_EVENT = (
    "INSERT INTO events (id, timestamp, kind, producer_category, producer_name, "
    "producer_version, schema_version, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_COST = (
    "INSERT INTO cost_ledger (event_sequence, provider_name, model_id, input_tokens, "
    "output_tokens, cache_write_tokens, cache_read_tokens, cost_usd) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_PRODUCER = "INSERT INTO producers VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection with the settings that the specification demands of a writer."""
    driver = sqlite3.connect(path, isolation_level=None)
    driver.execute("PRAGMA journal_mode = WAL").fetchone()
    driver.execute("PRAGMA synchronous = FULL")
    driver.execute("PRAGMA foreign_keys = ON")
    return driver


def append_each(driver: sqlite3.Connection, samples: Iterable[Sample]) -> None:
    """Append messages, each with its cost row in a transaction of its own."""
    for sample in samples:
        driver.execute("BEGIN IMMEDIATE")
        sequence = driver.execute(INSERT_EVENT, sample.event_row).lastrowid
        driver.execute(INSERT_COST, (sequence, *sample.cost_row))
        driver.execute("COMMIT")


def append_all(driver: sqlite3.Connection, samples: Iterable[Sample]) -> None:
    """Append events with their cost rows in one transaction; producers are known."""
    driver.execute("BEGIN IMMEDIATE")
    for sample in samples:
        sequence = driver.execute(INSERT_EVENT, sample.event_row).lastrowid
        if sample.cost_row:
            driver.execute(INSERT_COST, (sequence, *sample.cost_row))
    driver.execute("COMMIT")


def append_first(driver: sqlite3.Connection, samples: Iterable[Sample]) -> None:
    """As :func:`append_all`, while it is not known which producers the file has."""
    driver.execute("BEGIN IMMEDIATE")
    for sample in samples:
        sequence = driver.execute(INSERT_EVENT, sample.event_row).lastrowid
        driver.execute(INSERT_PRODUCER, (*sample.event_row[3:6], sequence))
        if sample.cost_row:
            driver.execute(INSERT_COST, (sequence, *sample.cost_row))
    driver.execute("COMMIT")


def check(driver: sqlite3.Connection) -> None:
    """Run the integrity check and look at the schema's version."""
    assert driver.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert driver.execute("PRAGMA user_version").fetchone() == (1,)
