"""Damage to a chosen place of a session, and what its recovery did."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from statebackend import Producer, Recovery, StateBackend, TableRecovery
from tests.damage import layout
from tests.damage.bases import files_of, put
from tests.damage.layout import Layout, Row
from tests.session_files import MODEL, call, cost, item, overwrite, path_of, rows_of, sql

NOISE = random.Random(7).randbytes(65536)
"""Bytes that are not a page."""

ID = "01KJMG7C000000000000000001"
OTHER_ID = "01KJMG7C000000000000000002"


def layout_of(path: Path) -> Layout:
    """Return where the rows of a healthy session lie."""
    return layout.read(files_of(path))


def spoil(path: Path, page: int) -> None:
    """Overwrite a page of the file with noise."""
    overwrite(path, page, NOISE[: page_size_of(path)])


def page_size_of(path: Path) -> int:
    """Return the page size (bytes) that a file's header states."""
    stated = int.from_bytes(path.read_bytes()[16:18], "big")
    return 65536 if stated == 1 else stated


def overflow_pages(row: Row, page_size: int) -> list[int]:
    """Return the overflow pages of a row that lies in the file itself."""
    return [start // page_size + 1 for _name, start, _end in row.own[1:]]


def recover(backend: StateBackend, session_id: str) -> Recovery:
    """Open a damaged session for writing, and return the report of its recovery."""
    with backend.open(session_id) as session:
        assert session.recovery is not None
        return session.recovery


def table_report(recovery: Recovery, table: str) -> TableRecovery:
    """Return the part of a report about a table."""
    return next(report for report in recovery.tables if report.table == table)


def same_rows(
    backend: StateBackend, session_id: str, before: dict[str, list[tuple[Any, ...]]]
) -> bool:
    """Tell whether a session holds these rows, and no others, in any order."""
    now = rows_of(path_of(backend, session_id))
    return {name: sorted(rows) for name, rows in now.items()} == {
        name: sorted(rows) for name, rows in before.items()
    }


def beside(path: Path, ending: str) -> Path:
    """Return a name beside a session file."""
    return path.with_name(path.name + ending)


def create_large(backend: StateBackend, *sizes: int) -> Path:
    """Make a session with events of these sizes (bytes), each in pages of its own."""
    with backend.create("default") as session:
        for number, size in enumerate(sizes, 1):
            call(session, bytes([64 + number]) * size)
        return path_of(backend, session.session_id)


def sequences(path: Path, table: str = "events") -> set[int]:
    """Return the sequences that a table holds."""
    return {number for (number,) in sql(path, f"SELECT sequence FROM {table}")}


def swap(path: Path, page: int, other: int) -> None:
    """Write two pages in each other's place."""
    content = path.read_bytes()
    first = content[(page - 1) * 4096 : page * 4096]
    overwrite(path, page, content[(other - 1) * 4096 : other * 4096])
    overwrite(path, other, first)


def read_side_file(path: Path, ending: str = ".corrupt") -> list[dict[str, Any]]:
    """Return the lines of the side file."""
    text = beside(path, f"{ending}.aside.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def session_with_wal(
    backend: StateBackend, folder: Path, session_id: str, events: int, size: int = 300
) -> Path:
    """Return a session as a killed writer leaves it, with its events in the WAL."""
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / f"{session_id}.sqlite"
    backend.create("default", session_id=session_id).close()
    with backend.open(session_id) as session:
        for number in range(events):
            call(session, f"{number}".encode() * size)
        put(files_of(path_of(backend, session_id)), path)
    return path


def replace_bytes(path: Path, old: bytes, new: bytes, nth: int = 3) -> None:
    """Overwrite the *nth* occurrence of *old* in the file (from 0)."""
    content = bytearray(path.read_bytes())
    at = -1
    for _ in range(nth + 1):
        at = content.index(old, at + 1)
    content[at : at + len(new)] = new
    path.write_bytes(content)


def page_of(content: bytes, number: int) -> bytearray:
    """Return a page of 4096 bytes."""
    return bytearray(content[(number - 1) * 4096 : number * 4096])


def create_with_ids(backend: StateBackend, ids: list[str]) -> Path:
    """Make a session of events with these ids, in their order, and close it."""
    with backend.create("default") as session:
        for number, event_id in enumerate(ids):
            call(session, b"%d" % number * 300, event_id=event_id)
    return path_of(backend, session.session_id)


def change(path: Path, start: int, content: bytes) -> None:
    """Overwrite some bytes of a file."""
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


def create_spending(backend: StateBackend) -> str:
    """Make a session with 100 messages that cost, and 100 plans."""
    with backend.create("default") as session, session.batch() as batch:
        for _number in range(100):
            batch.append_message(producer=MODEL, payload=b"x", cost=cost())
            batch.append_plan(producer=MODEL, payload=b"y", items=[item()])
    return session.session_id


def create_long_named(backend: StateBackend) -> Path:
    """Make a session whose producer's name reaches into an overflow page."""
    with backend.create("default") as session, session.batch() as batch:
        for number in range(60):
            batch.append(
                "tool_call",
                producer=Producer("tool", "long" * 2000 if number == 59 else "short", "1"),
                payload=b"x" * 6000,
                schema_version="1",
            )
    return path_of(backend, session.session_id)
