"""Rows whose rowid their page does not confirm."""

from __future__ import annotations

from pathlib import Path

import pytest

from statebackend import StateBackend
from tests.damaging import (
    change,
    create_large,
    layout_of,
    read_side_file,
    recover,
    same_rows,
    spoil,
    table_report,
)
from tests.session_files import new, path_of, root_page, rows_of


def test_a_damaged_rowid_is_corrected(backend: StateBackend) -> None:
    """From the index of ids."""
    session_id = new(backend, events=100, size=300)
    path = path_of(backend, session_id)
    before = rows_of(path)
    row = layout_of(path).rows["events"][50,]
    _name, start, end = row.columns[0].pieces[0]
    assert end - start == 1
    content = bytearray(path.read_bytes())
    content[start] = 7
    path.write_bytes(content)
    recovery = recover(backend, session_id)
    assert table_report(recovery, "events").repaired == 1
    assert any("sequence (was 7)" in note for note in recovery.notes)
    assert same_rows(backend, session_id, before)


def test_a_damaged_sequence_in_the_index_of_ids(backend: StateBackend) -> None:
    """The row and the two other indexes agree on its sequence."""
    path = create_large(backend, *[3000] * 20)
    before = rows_of(path)
    root = root_page(path, "sqlite_autoindex_events_1")
    event_id = before["events"][6][1].encode()
    at = path.read_bytes().index(event_id, (root - 1) * 4096)
    change(path, at + len(event_id), b"\x08")
    spoil(path, root_page(path, "events"))
    assert recover(backend, path.stem).complete
    assert same_rows(backend, path.stem, before)


def number_at(path: Path, sequence: int) -> int:
    """Return where the number of an event lies, which takes one byte."""
    _name, start, end = layout_of(path).rows["events"][sequence,].columns[0].pieces[0]
    assert end - start == 1
    return start


def create_one_event_a_page(backend: StateBackend) -> Path:
    """Make 20 events that have a page each, so that no neighbour confirms their numbers."""
    path = path_of(backend, new(backend, events=20, size=3000))
    assert len(layout_of(path).with_role("leaf events")) == 20
    return path


@pytest.mark.parametrize("indexed", [True, False])
def test_lone_rows_are_saved(backend: StateBackend, indexed: bool) -> None:
    """With the index of ids, or without it as long as their rowids are plausible."""
    path = create_one_event_a_page(backend)
    before = rows_of(path)
    spoil(path, root_page(path, "events"))
    if not indexed:
        spoil(path, root_page(path, "sqlite_autoindex_events_1"))
    assert table_report(recover(backend, path.stem), "events").kept == 20
    assert same_rows(backend, path.stem, before)


def test_a_lone_row_with_a_damaged_rowid(backend: StateBackend) -> None:
    """The index of ids has its sequence."""
    path = create_one_event_a_page(backend)
    before = rows_of(path)
    change(path, number_at(path, 7), b"\x09")
    spoil(path, root_page(path, "events"))
    events = table_report(recover(backend, path.stem), "events")
    assert (events.kept, events.repaired) == (20, 1)
    assert same_rows(backend, path.stem, before)


def test_two_lone_rows_with_one_rowid(backend: StateBackend) -> None:
    """Without the index, one of them goes to the side file."""
    path = create_one_event_a_page(backend)
    change(path, number_at(path, 7), b"\x09")
    for name in ("events", "sqlite_autoindex_events_1"):
        spoil(path, root_page(path, name))
    events = table_report(recover(backend, path.stem), "events")
    assert (events.kept, events.set_aside) == (19, 1)
    assert read_side_file(path)[0]["why"].startswith("another row contradicts it")


def test_a_lone_row_with_an_impossible_rowid(backend: StateBackend) -> None:
    """No row has the rowid 0."""
    path = create_one_event_a_page(backend)
    change(path, number_at(path, 7), b"\0")
    for name in ("events", "sqlite_autoindex_events_1"):
        spoil(path, root_page(path, name))
    events = table_report(recover(backend, path.stem), "events")
    assert (events.kept, events.set_aside, events.missing) == (19, 1, ((7, 7),))
    assert read_side_file(path)[0]["why"] == "nothing confirms its sequence"


def test_an_impossible_sequence_in_the_index_is_ignored(backend: StateBackend) -> None:
    """The rowid is damaged too; its neighbours show what it was."""
    path = path_of(backend, new(backend, events=100, size=300))
    before = rows_of(path)
    at = number_at(path, 50)
    event_id = before["events"][49][1].encode()
    for page in layout_of(path).with_role("index sqlite_autoindex_events_1"):
        entry = path.read_bytes().find(event_id + b"2", (page - 1) * 4096, page * 4096)
        if entry > 0:
            change(path, entry + 36, b"\x78")
    change(path, at, b"\x7f")
    assert table_report(recover(backend, path.stem), "events").missing == ()
    assert same_rows(backend, path.stem, before)
