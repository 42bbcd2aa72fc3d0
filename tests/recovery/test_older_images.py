"""Rows in older images of pages."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from statebackend import StateBackend
from tests.damage.bases import files_of, put
from tests.damaging import (
    ID,
    NOISE,
    beside,
    layout_of,
    read_side_file,
    recover,
    sequences,
    session_with_wal,
    spoil,
    table_report,
)
from tests.session_files import MODEL, call, cost, path_of, root_page


def test_an_older_wal_has_rows_of_a_lost_page(backend: StateBackend, tmp_path: Path) -> None:
    """An early page of the file is noise."""
    path = session_with_wal(backend, tmp_path / "killed", ID, 10)
    with backend.open(ID) as session:
        for _number in range(30):
            call(session, b"later" * 100)
    made = path_of(backend, ID)
    spoil(made, layout_of(made).with_role("leaf events")[0])
    beside(made, "-wal").write_bytes(beside(path, "-wal").read_bytes())
    events = table_report(recover(backend, ID), "events")
    assert events.routes["older image"] > 0
    assert 1 in sequences(made)


def test_an_older_row_with_an_impossible_sequence_is_set_aside(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Saved, it would raise the counter, and many rows would seem lost."""
    with backend.create("default", session_id=ID) as session:
        for _number in range(3):
            session.append_message(producer=MODEL, payload=b"early", cost=cost())
    made, old = path_of(backend, ID), tmp_path / "old.sqlite"
    put(files_of(made), old)
    with closing(sqlite3.connect(old)) as driver, driver:
        driver.execute("UPDATE cost_ledger SET sequence = 65 WHERE sequence = 3")
        driver.execute("UPDATE events SET schema_version = '10' WHERE sequence = 3")
        driver.commit()
        wal = beside(old, "-wal").read_bytes()
    with backend.open(ID) as session:
        for _number in range(30):
            call(session, b"later" * 100)
    spoil(made, root_page(made, "cost_ledger"))
    beside(made, "-wal").write_bytes(wal)
    ledger = table_report(recover(backend, ID), "cost_ledger")
    assert ledger.routes == {"older image": 2}
    assert ledger.missing == ((3, 3),)
    assert {line["why"] for line in read_side_file(made)} == {"its sequence was never given"}


@pytest.mark.parametrize(("offset", "route"), [(100, "older image"), (0, "carved")])
def test_rows_of_a_broken_frame_are_saved(
    backend: StateBackend, tmp_path: Path, offset: int, route: str
) -> None:
    """Their page is nowhere else, since one transaction filled it. Also without its header."""
    folder = tmp_path / "killed"
    folder.mkdir(mode=0o700)
    path = folder / f"{ID}.sqlite"
    backend.create("default", session_id=ID).close()
    with backend.open(ID) as session:
        with session.batch() as batch:
            for number in range(40):
                payload = b"%d" % number * 300
                batch.append("tool_call", producer=MODEL, payload=payload, schema_version="1")
        for _number in range(3):
            call(session)
        put(files_of(path_of(backend, ID)), path)
    layout = layout_of(path)
    _name, start = layout.pages[layout.with_role("leaf events")[2]]
    with beside(path, "-wal").open("r+b") as file:
        file.seek(start + offset)
        file.write(NOISE[:8])
    events = table_report(recover(StateBackend(path.parent), ID), "events")
    assert events.routes[route] > 3
    assert (events.kept, events.lost) == (43, 0)
