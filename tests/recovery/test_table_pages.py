"""Rows in the table leaves."""

from __future__ import annotations

import pytest

from statebackend import StateBackend
from tests.damaging import (
    NOISE,
    change,
    create_large,
    layout_of,
    page_of,
    recover,
    same_rows,
    spoil,
    swap,
    table_report,
)
from tests.session_files import (
    call,
    damage_index,
    full,
    new,
    overwrite,
    path_of,
    root_page,
    rows_of,
    sql,
)


def test_a_lost_page_loses_only_its_own_rows(backend: StateBackend) -> None:
    """Four of 400 events with 900 bytes each are lost and noted."""
    session_id = new(backend, events=400, size=900)
    path = path_of(backend, session_id)
    before = rows_of(path)["events"]
    leaves = layout_of(path).with_role("leaf events")
    spoil(path, leaves[len(leaves) // 2])
    recovery = recover(backend, session_id)
    events = table_report(recovery, "events")
    ((first, last),) = events.missing
    assert (last - first + 1, events.lost, events.kept) == (4, 4, 396)
    assert events.routes == {"page": 396}
    assert not recovery.complete
    assert rows_of(path)["events"] == [row for row in before if not first <= row[0] <= last]
    assert (
        sum(
            f"events sequence {number} is lost" in note
            for number in range(first, last + 1)
            for note in recovery.notes
        )
        == 4
    )


@pytest.mark.parametrize("name", ["events", "idx_events_kind", "sqlite_autoindex_events_1"])
def test_a_lost_root_loses_no_row(backend: StateBackend, name: str) -> None:
    """Leaves are read whether or not an interior page points to them."""
    session_id = new(backend, events=300, size=300)
    path = path_of(backend, session_id)
    before = rows_of(path)
    spoil(path, root_page(path, name))
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)


@pytest.mark.parametrize("content", [bytes(4096), NOISE[:4096]])
def test_a_lost_schema_loses_no_row(backend: StateBackend, content: bytes) -> None:
    """The header of a row shows its table."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    before = rows_of(path)
    overwrite(path, 1, content)
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)


def test_a_truncated_file_keeps_the_rows_before_the_cut(backend: StateBackend) -> None:
    """The counter shows how many are lost."""
    session_id = new(backend, events=300, size=300)
    path = path_of(backend, session_id)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 + 100)
    events = table_report(recover(backend, session_id), "events")
    assert events.kept + events.lost == 300
    assert events.kept > 100


def test_swapped_leaves_lose_no_row(backend: StateBackend) -> None:
    """The rowids show which page is which."""
    session_id = new(backend, events=300, size=300)
    path = path_of(backend, session_id)
    before = rows_of(path)
    page, other = layout_of(path).with_role("leaf events")[3:5]
    swap(path, page, other)
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)


def test_a_leaf_over_another_leaf_duplicates_no_row(backend: StateBackend) -> None:
    """A misdirected write loses the rows of the page that it overwrote, and only those."""
    session_id = new(backend, events=300, size=300)
    path = path_of(backend, session_id)
    leaves = layout_of(path).with_role("leaf events")
    content = path.read_bytes()
    overwrite(path, leaves[3], content[(leaves[6] - 1) * 4096 : leaves[6] * 4096])
    events = table_report(recover(backend, session_id), "events")
    assert (events.kept + events.lost, len(events.missing), events.set_aside) == (300, 1, 0)


def test_a_table_is_read_from_its_own_root(backend: StateBackend) -> None:
    """Before a damaged copy of that page at another table's root."""
    path = path_of(backend, full(backend))
    before = rows_of(path)
    layout = layout_of(path)
    (_name, start, _end), *_rest = layout.rows["plan_items"][1,].columns[2].pieces
    page = start // 4096 + 1
    assert layout.roles[page] == "leaf plan_items"
    copy = page_of(path.read_bytes(), page)
    copy[start % 4096] ^= 1
    overwrite(path, root_page(path, "session_meta"), bytes(copy))
    recovery = recover(backend, path.stem)
    assert recovery.derived
    assert table_report(recovery, "plan_items").set_aside == 1
    assert rows_of(path)["plan_items"] == before["plan_items"]


def test_events_behind_older_first_pages_are_saved(backend: StateBackend) -> None:
    """The older pages agree with each other, so SQLite sees a smaller, undamaged session."""
    path = path_of(backend, new(backend, events=3))
    earlier = path.read_bytes()
    with backend.open(path.stem) as session:
        for number in range(20):
            call(session, bytes([number + 1]) * 3000)
    before = rows_of(path)
    content = path.read_bytes()
    assert len(content) > len(earlier)
    path.write_bytes(earlier + content[len(earlier) :])
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]
    path.write_bytes(earlier + content[len(earlier) :])  # SQLite may have cut it at its close
    recovery = recover(backend, path.stem)
    assert same_rows(backend, path.stem, before)
    assert not recovery.complete  # what such a page held last would be missed by nobody


@pytest.mark.parametrize("damaged", ["copy", "page"])
def test_a_copy_of_a_leaf_at_its_tables_root(backend: StateBackend, damaged: str) -> None:
    """A root is a leaf only while it is the whole table; the other rows show that it is not.

    Where one of the two is damaged, the row in the leaf itself counts.
    """
    path = create_large(backend, *[3000] * 20)
    before = rows_of(path)["events"]
    row = layout_of(path).rows["events"][20,]
    _name, start, _end = row.columns[2].pieces[0]
    leaf, root = start // 4096 + 1, root_page(path, "events")
    content = path.read_bytes()
    assert content[(root - 1) * 4096] == 5  # an interior page
    overwrite(path, root, bytes(page_of(content, leaf)))
    at = start if damaged == "page" else start + (root - leaf) * 4096
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"3")
    recover(backend, path.stem)
    now = rows_of(path)["events"]
    assert now[:19] == before[:19]
    assert now[19] == (
        before[19]
        if damaged == "copy"
        else (20, before[19][1], f"3{before[19][2][1:]}", *before[19][3:])
    )


def test_a_copy_of_a_page_of_producers_duplicates_no_row(backend: StateBackend) -> None:
    """The copy lies where an index was."""
    path = path_of(backend, full(backend))
    before = rows_of(path)
    content = path.read_bytes()
    start = (root_page(path, "producers") - 1) * 4096
    overwrite(path, root_page(path, "idx_events_kind"), content[start : start + 4096])
    assert recover(backend, path.stem).complete
    assert same_rows(backend, path.stem, before)


def test_foreign_tables_are_ignored(backend: StateBackend) -> None:
    """A copy of the events has rowids of its own; two columns are not always a counter."""
    session_id = new(backend, events=50, size=200)
    path = path_of(backend, session_id)
    before = rows_of(path)
    for statement in (
        "CREATE TABLE copied AS SELECT * FROM events",
        "CREATE TABLE pairs (a, b)",
        "INSERT INTO pairs VALUES (1, 2), ('events', 'x'), ('other', 7)",
    ):
        sql(path, statement)
    damage_index(path)
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)


@pytest.mark.parametrize("damage", [None, (32, b"\xff\0\0\0"), (36, b"\0\0\0\1")])
def test_rows_of_free_pages_are_ignored(
    backend: StateBackend, damage: tuple[int, bytes] | None
) -> None:
    """Whether the freelist is valid or not."""
    session_id = new(backend, events=50, size=200)
    path = path_of(backend, session_id)
    before = rows_of(path)
    sql(path, "CREATE TABLE copied AS SELECT * FROM events")
    sql(path, "DROP TABLE copied")
    if damage:
        change(path, *damage)
    damage_index(path)
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)


def test_a_freelist_with_an_impossible_page_is_ignored(backend: StateBackend) -> None:
    """It would make all pages after it free."""
    session_id = new(backend, events=50, size=200)
    path = path_of(backend, session_id)
    before = rows_of(path)
    sql(path, "CREATE TABLE copied AS SELECT * FROM events")
    sql(path, "DROP TABLE copied")
    trunk = int.from_bytes(path.read_bytes()[32:36], "big")
    overwrite(path, trunk, b"\xff\xff", offset=4)
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)
