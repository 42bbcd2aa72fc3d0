"""A page that was written to another's place as well, and may be damaged there."""

from __future__ import annotations

import pytest

from statebackend import StateBackend
from tests.damaging import NOISE, layout_of, overflow_pages, recover, same_rows, spoil, told
from tests.recovery.test_salvage import aside, large
from tests.recovery.test_salvage_rows import change, spending
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


def page_of(content: bytes, number: int) -> bytearray:
    """Return a page of 4096 bytes."""
    return bytearray(content[(number - 1) * 4096 : number * 4096])


@pytest.mark.parametrize(("victim", "source"), [(1, 3), (3, 1)])
def test_an_overflow_page_of_another_row_takes_its_own_row_only(
    backend: StateBackend, victim: int, source: int
) -> None:
    """The rest of the other's chain is the other's, whichever of them is read first."""
    path = large(backend, 20_000, 20_000, 20_000)
    before = rows_of(path)["events"]
    rows = layout_of(path).rows["events"]
    hit, copied = (overflow_pages(rows[number,], 4096)[1] for number in (victim, source))
    overwrite(path, hit, bytes(page_of(path.read_bytes(), copied)))
    damage_index(path)
    events = told(recover(backend, path.stem), "events")
    assert events.missing == ((victim, victim),)
    assert rows_of(path)["events"] == [row for row in before if row[0] != victim]


def test_a_chain_that_leaves_a_page_out_and_does_not_end_is_not_believed(
    backend: StateBackend,
) -> None:
    """It leads into another row's pages, which are lost to that one."""
    path = large(backend, 9000, 9000, 9000)
    before = rows_of(path)["events"]
    rows = layout_of(path).rows["events"]
    first, _last = overflow_pages(rows[3,], 4096)
    into, _behind = overflow_pages(rows[1,], 4096)
    overwrite(path, first, into.to_bytes(4, "big"))
    overwrite(path, into, into.to_bytes(4, "big"))
    assert told(recover(backend, path.stem), "events").missing == ((1, 1), (3, 3))
    assert rows_of(path)["events"] == before[1:2]


def test_a_copy_with_a_hit_number_and_a_hit_id_takes_no_pages(backend: StateBackend) -> None:
    """It claims the overflow pages of the event that it is a copy of."""
    path = large(backend, 9000, 9000, 9000)
    before = rows_of(path)
    row = layout_of(path).rows["events"][3,]
    _name, start, end = row.columns[0].pieces[0]
    content = path.read_bytes()
    copy = page_of(content, start // 4096 + 1)
    copy[start % 4096 : end % 4096] = b"\x0b"
    copy[row.columns[1].pieces[0][1] % 4096] ^= 1
    overwrite(path, root_page(path, "idx_events_kind"), bytes(copy))
    recover(backend, path.stem)
    assert same_rows(backend, path.stem, before)


def test_a_table_is_read_where_the_schema_says_it_is(backend: StateBackend) -> None:
    """Before a damaged copy of its page that lies at another table's root."""
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
    assert told(recovery, "plan_items").set_aside == 1
    assert rows_of(path)["plan_items"] == before["plan_items"]


def test_events_behind_an_older_image_of_the_first_pages_are_found(backend: StateBackend) -> None:
    """The older pages agree with each other, so SQLite sees a smaller session, and a sound one."""
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


@pytest.mark.parametrize("hit", ["copy", "page"])
def test_a_copy_of_a_leaf_at_the_root_of_its_table_does_not_count(
    backend: StateBackend, hit: str
) -> None:
    """A root is a leaf only while it is the whole table; the other rows show that it is not.

    Of a row that is hit in one of the two, the one in the leaf itself counts.
    """
    path = large(backend, *[3000] * 20)
    before = rows_of(path)["events"]
    row = layout_of(path).rows["events"][20,]
    _name, start, _end = row.columns[2].pieces[0]
    leaf, root = start // 4096 + 1, root_page(path, "events")
    content = path.read_bytes()
    assert content[(root - 1) * 4096] == 5  # an interior page
    overwrite(path, root, bytes(page_of(content, leaf)))
    at = start if hit == "page" else start + (root - leaf) * 4096
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"3")
    recover(backend, path.stem)
    found = rows_of(path)["events"]
    assert found[:19] == before[:19]
    assert found[19] == (
        before[19]
        if hit == "copy"
        else (20, before[19][1], f"3{before[19][2][1:]}", *before[19][3:])
    )


def test_an_index_entry_with_a_hit_number_is_outvoted(backend: StateBackend) -> None:
    """Page, index of kinds and index of producers agree on a number that no id is known by."""
    path = large(backend, *[3000] * 20)
    before = rows_of(path)
    root = root_page(path, "sqlite_autoindex_events_1")
    event_id = before["events"][6][1].encode()
    at = path.read_bytes().index(event_id, (root - 1) * 4096)
    change(path, at + len(event_id), b"\x08")
    spoil(path, root_page(path, "events"))
    assert recover(backend, path.stem).complete
    assert same_rows(backend, path.stem, before)


def test_an_index_entry_with_a_hit_character_contradicts_no_row(backend: StateBackend) -> None:
    """Of an event that is carved, since its page lost its header."""
    path = path_of(backend, new(backend, events=300, size=300))
    before = rows_of(path)
    overwrite(path, layout_of(path).with_role("leaf events")[4], NOISE[:8])
    root = root_page(path, "sqlite_autoindex_events_1")
    entry = before["events"][47][1].encode() + (48).to_bytes(1, "big")
    at = path.read_bytes().index(entry, (root - 1) * 4096)
    change(path, at + 20, b"z")
    events = told(recover(backend, path.stem), "events")
    assert events.routes["carved"] > 5
    assert same_rows(backend, path.stem, before)


def test_a_value_of_another_type_is_set_aside(backend: StateBackend) -> None:
    """An empty blob and the number 0 differ by one bit of the row's header."""
    path = path_of(backend, spending(backend))
    sql(path, "UPDATE cost_ledger SET cache_write_tokens = 0")
    before = rows_of(path)["cost_ledger"]
    row = layout_of(path).rows["cost_ledger"][50,]
    at = next(at for at, column in enumerate(row.columns) if column.serial == 8)
    change(path, row.columns[at].named[0][1], b"\x0c")
    damage_index(path)
    ledger = told(recover(backend, path.stem), "cost_ledger")
    assert (ledger.kept, ledger.set_aside, ledger.missing) == (99, 1, ((50, 50),))
    assert aside(path)[0]["why"] == "cache_write_tokens is of another type"
    assert rows_of(path)["cost_ledger"] == [row for row in before if row[0] != 50]
