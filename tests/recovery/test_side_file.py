"""Rows that do not fit their table."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from statebackend import StateBackend
from tests.damaging import (
    beside,
    change,
    create_spending,
    layout_of,
    read_side_file,
    recover,
    table_report,
)
from tests.session_files import damage_index, full, new, path_of, rows_of, sql


def without_not_null(path: Path, statement: str) -> None:
    """Run a statement on a session file whose schema forbids no NULL, and put the schema back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        ((ddl,),) = driver.execute("SELECT sql FROM sqlite_schema WHERE name = 'events'")
        write = "UPDATE sqlite_schema SET sql = ? WHERE name = 'events'"
        driver.execute("PRAGMA writable_schema = ON")
        driver.execute(write, (ddl.replace("NOT NULL", ""),))
        driver.execute("PRAGMA writable_schema = RESET")
        driver.execute(statement)
        driver.execute("PRAGMA writable_schema = ON")
        driver.execute(write, (ddl,))
        driver.execute("PRAGMA writable_schema = RESET")


def test_a_null_in_a_not_null_column(backend: StateBackend) -> None:
    """The row goes to the side file."""
    session_id = new(backend, events=5, size=3)
    path = path_of(backend, session_id)
    row = rows_of(path)["events"][2]
    without_not_null(path, "UPDATE events SET kind = NULL WHERE sequence = 3")
    recovery = recover(backend, session_id)
    events = table_report(recovery, "events")
    assert (events.kept, events.set_aside, events.missing) == (4, 1, ((3, 3),))
    assert recovery.aside == beside(path, ".corrupt.aside.jsonl")
    names = [name for (name,) in sql(path, "SELECT name FROM pragma_table_info('events')")]
    assert row[-1] == b"2:."
    values = dict(zip(names, row, strict=True)) | {"kind": None, "payload": {"base64": "Mjou"}}
    assert read_side_file(path) == [{"table": "events", "why": "kind is NULL", "row": values}]


def test_a_value_of_another_type(backend: StateBackend) -> None:
    """An empty blob and the number 0 differ by one bit of the row's header."""
    path = path_of(backend, create_spending(backend))
    sql(path, "UPDATE cost_ledger SET cache_write_tokens = 0")
    before = rows_of(path)["cost_ledger"]
    row = layout_of(path).rows["cost_ledger"][50,]
    at = next(at for at, column in enumerate(row.columns) if column.serial == 8)
    change(path, row.columns[at].named[0][1], b"\x0c")
    damage_index(path)
    ledger = table_report(recover(backend, path.stem), "cost_ledger")
    assert (ledger.kept, ledger.set_aside, ledger.missing) == (99, 1, ((50, 50),))
    assert read_side_file(path)[0]["why"] == "cache_write_tokens is of another type"
    assert rows_of(path)["cost_ledger"] == [row for row in before if row[0] != 50]


def test_a_cost_that_is_not_a_number(backend: StateBackend) -> None:
    """SQLite reads it as NULL."""
    path = path_of(backend, full(backend))
    row = layout_of(path).rows["cost_ledger"][1,]
    at = next(number for number, value in enumerate(row.values) if value == 0.25)
    _name, start, end = row.columns[at].pieces[0]
    assert end - start == 8
    change(path, start, bytes.fromhex("7ff8000000000001"))
    damage_index(path)
    ledger = table_report(recover(backend, path.stem), "cost_ledger")
    assert (ledger.kept, ledger.set_aside, ledger.missing) == (0, 1, ((1, 1),))
    assert read_side_file(path)[0]["why"] == "cost_usd is not a number"
