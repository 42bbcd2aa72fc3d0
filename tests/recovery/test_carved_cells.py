"""Rows among bytes that no page structure explains, and bytes that only look like rows."""

from __future__ import annotations

import pytest

from statebackend import StateBackend
from tests.damaging import (
    NOISE,
    change,
    create_spending,
    layout_of,
    read_side_file,
    recover,
    same_rows,
    spoil,
    table_report,
)
from tests.session_files import (
    MODEL,
    call,
    cost,
    damage_index,
    full,
    new,
    overwrite,
    path_of,
    root_page,
    rows_of,
)


def test_events_of_a_page_without_header(backend: StateBackend) -> None:
    """All are saved."""
    session_id = new(backend, events=300, size=300)
    path = path_of(backend, session_id)
    before = rows_of(path)
    leaves = layout_of(path).with_role("leaf events")
    overwrite(path, leaves[4], NOISE[:40])
    events = table_report(recover(backend, session_id), "events")
    assert events.routes["carved"] > 5
    assert (events.kept, events.lost) == (300, 0)
    assert same_rows(backend, session_id, before)


def test_a_damaged_id_in_the_index_contradicts_no_row(backend: StateBackend) -> None:
    """Not even a carved one."""
    path = path_of(backend, new(backend, events=300, size=300))
    before = rows_of(path)
    overwrite(path, layout_of(path).with_role("leaf events")[4], NOISE[:8])
    root = root_page(path, "sqlite_autoindex_events_1")
    entry = before["events"][47][1].encode() + (48).to_bytes(1, "big")
    at = path.read_bytes().index(entry, (root - 1) * 4096)
    change(path, at + 20, b"z")
    events = table_report(recover(backend, path.stem), "events")
    assert events.routes["carved"] > 5
    assert same_rows(backend, path.stem, before)


def test_a_carved_producer_needs_an_event(backend: StateBackend) -> None:
    """A payload may look like a page of producers."""
    path = path_of(backend, full(backend))
    before = rows_of(path)
    overwrite(path, root_page(path, "producers"), NOISE[:8])
    spoil(path, root_page(path, "idx_events_kind"))
    assert table_report(recover(backend, path.stem), "producers").kept == len(before["producers"])
    assert sorted(rows_of(path)["producers"]) == sorted(before["producers"])


@pytest.mark.parametrize("table", ["cost_ledger", "plan_items"])
def test_other_rows_of_a_page_without_header(backend: StateBackend, table: str) -> None:
    """As with events."""
    session_id = create_spending(backend)
    path = path_of(backend, session_id)
    before = rows_of(path)
    leaves = layout_of(path).with_role(f"leaf {table}")
    overwrite(path, leaves[len(leaves) // 2], NOISE[:8])
    report = table_report(recover(backend, session_id), table)
    assert report.routes["carved"] > 5
    assert same_rows(backend, session_id, before)


def test_a_cell_starts_where_a_pointer_leads(backend: StateBackend) -> None:
    """A bit of the payload size is damaged; the record fits the size without its first byte."""
    with backend.create("default") as session:
        for _number in range(3):
            call(session, b"p" * 134)
    path = path_of(backend, session.session_id)
    before = rows_of(path)["events"]
    row = layout_of(path).rows["events"][2,]
    _name, start, _end = row.own[0]
    content = path.read_bytes()
    assert content[start] == 0x81  # a size of two bytes
    at = content.index(b"\x82\x18", start)
    change(path, at, b"\x80")
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert table_report(recovery, "events").missing == ((2, 2),)
    assert rows_of(path)["events"] == [before[0], before[2]]


@pytest.mark.parametrize(
    ("sequence", "why"),
    [
        (5, "the index of ids has another event under its sequence"),
        (50, "the index of ids does not have it"),
    ],
)
def test_an_event_inside_a_payload_is_not_saved(
    backend: StateBackend, sequence: int, why: str
) -> None:
    """An agent that reads session files has their bytes in its results."""
    other = path_of(backend, new(backend, events=60))
    ((_name, start, end),) = layout_of(other).rows["events"][sequence,].own
    payload = other.read_bytes()[start:end]
    with backend.create("default") as session:
        for _number in range(10):
            call(session, b"read: " + payload)
    path = path_of(backend, session.session_id)
    before = rows_of(path)
    overwrite(path, root_page(path, "events"), NOISE[:4])
    recovery = recover(backend, session.session_id)
    assert table_report(recovery, "events").routes == {"carved": 10}
    assert {line["why"] for line in read_side_file(path)} == {why}
    assert same_rows(backend, session.session_id, before)


@pytest.mark.parametrize(
    ("sequence", "why"),
    [
        (50, "its event does not lie between those of its neighbours"),
        (100, "its sequence was never given"),
    ],
)
def test_a_cost_inside_a_payload_is_not_saved(
    backend: StateBackend, sequence: int, why: str
) -> None:
    """No index has ledger rows, but counter and neighbours contradict it."""
    other = path_of(backend, create_spending(backend))
    ((_name, start, end),) = layout_of(other).rows["cost_ledger"][sequence,].own
    foreign = other.read_bytes()[start:end]
    with backend.create("default") as session, session.batch() as batch:
        for number in range(99):
            batch.append_message(
                producer=MODEL, payload=foreign if number < 4 else b"x", cost=cost()
            )
    path = path_of(backend, session.session_id)
    before = rows_of(path)
    layout = layout_of(path)
    for table in ("events", "cost_ledger"):
        overwrite(path, layout.with_role(f"leaf {table}")[0], NOISE[:4])
    recover(backend, session.session_id)
    assert {line["why"] for line in read_side_file(path)} == {why}
    assert same_rows(backend, session.session_id, before)
