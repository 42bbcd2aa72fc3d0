"""Overflow chains that are damaged, or that two rows share."""

from __future__ import annotations

from pathlib import Path

import pytest

from statebackend import StateBackend
from tests.damaging import (
    ID,
    NOISE,
    beside,
    change,
    create_large,
    create_long_named,
    layout_of,
    overflow_pages,
    page_of,
    read_side_file,
    recover,
    same_rows,
    sequences,
    session_with_wal,
    table_report,
)
from tests.session_files import MODEL, cost, damage_index, overwrite, path_of, root_page, rows_of


def test_a_zeroed_overflow_page_loses_one_row(backend: StateBackend) -> None:
    """A payload with a hole is not saved."""
    path = create_large(backend, 9000, 9000, 9000, 20)
    row = layout_of(path).rows["events"][2,]
    overwrite(path, overflow_pages(row, 4096)[0], bytes(4096))
    assert table_report(recover(backend, path.stem), "events").missing == ((2, 2),)
    assert sequences(path) == {1, 3, 4}


def test_a_truncated_overflow_page_loses_one_row(backend: StateBackend) -> None:
    """The end of its payload would be zeros."""
    path = create_large(backend, 9000, 9000, 9000)
    last = overflow_pages(layout_of(path).rows["events"][3,], 4096)[-1]
    assert last * 4096 == path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(last * 4096 - 4000)
    assert table_report(recover(backend, path.stem), "events").missing == ((3, 3),)
    assert sequences(path) == {1, 2}


@pytest.mark.parametrize("pointer", [b"\0\7\7\7", b"\0\0\0\1"])
def test_a_damaged_pointer_in_the_last_page_loses_no_row(
    backend: StateBackend, pointer: bytes
) -> None:
    """SQLite ignores it."""
    path = create_large(backend, 9000, 9000, 9000)
    before = rows_of(path)
    last = overflow_pages(layout_of(path).rows["events"][2,], 4096)[-1]
    overwrite(path, last, pointer)
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert (
        table_report(recovery, "events").doubtful == 1
    )  # the rest of that page may be damaged too
    assert not recovery.partial
    assert same_rows(backend, path.stem, before)


def test_two_rows_with_one_overflow_page_are_both_lost(backend: StateBackend) -> None:
    """Nothing shows which of them points wrongly; the first is in the side file."""
    path = create_large(backend, 9000, 9000, 9000)
    rows = layout_of(path).rows["events"]
    _name, _start, end = rows[3,].own[0]
    content = bytearray(path.read_bytes())
    content[end - 4 : end] = overflow_pages(rows[1,], 4096)[0].to_bytes(4, "big")
    path.write_bytes(content)
    recovery = recover(backend, path.stem)
    events = table_report(recovery, "events")
    assert (events.missing, events.set_aside) == (((1, 1), (3, 3)), 1)
    (line,) = read_side_file(path)
    assert line["why"] == "its overflow pages are claimed by another row"
    assert line["row"]["sequence"] == 1


@pytest.mark.parametrize("pointer", [0, 1, 1 << 20])
def test_a_chain_with_an_impossible_pointer_loses_its_row(
    backend: StateBackend, pointer: int
) -> None:
    """To no page, to the schema, behind the end of the file."""
    path = create_large(backend, 9000, 9000, 9000)
    first = overflow_pages(layout_of(path).rows["events"][2,], 4096)[0]
    overwrite(path, first, pointer.to_bytes(4, "big"))
    assert table_report(recover(backend, path.stem), "events").missing == ((2, 2),)


def test_a_circular_chain_loses_its_row(backend: StateBackend) -> None:
    """A page points to itself."""
    path = create_large(backend, 9000, 12_000, 9000)
    first = overflow_pages(layout_of(path).rows["events"][2,], 4096)[0]
    overwrite(path, first, first.to_bytes(4, "big"))
    assert table_report(recover(backend, path.stem), "events").missing == ((2, 2),)


def test_an_overflow_page_in_a_broken_frame_loses_one_row(
    backend: StateBackend, tmp_path: Path
) -> None:
    """An older image of the page is not part of the chain."""
    path = session_with_wal(backend, tmp_path / "killed", ID, 12, size=4000)
    row = layout_of(path).rows["events"][5,]
    _name, start, _end = row.own[1]
    with beside(path, "-wal").open("r+b") as file:
        file.seek(start + 1000)
        file.write(NOISE[:8])
    events = table_report(recover(StateBackend(path.parent), ID), "events")
    assert (events.kept, events.missing) == (11, ((5, 5),))


def test_a_payload_with_a_damaged_last_page_is_doubtful(backend: StateBackend) -> None:
    """The pointer of that page shows the damage, though the length is right."""
    with backend.create("default") as session, session.batch() as batch:
        for _ in range(9):
            batch.append_message(producer=MODEL, payload=b"y" * 7_000, cost=cost())
    path = path_of(backend, session.session_id)
    content = bytearray(path.read_bytes())
    last = max(
        at
        for at in range(0, len(content), 4096)
        if not any(content[at : at + 4]) and content[at + 4 : at + 8] == b"yyyy"
    )
    content[last : last + 512] = b"\x7f" * 512
    path.write_bytes(content)
    with backend.open(session.session_id) as again:
        report = again.recovery
    assert report is not None
    assert not report.complete
    (events,) = (table for table in report.tables if table.table == "events")
    assert (events.doubtful, events.lost) == (1, 0)


@pytest.mark.parametrize(("victim", "source"), [(1, 3), (3, 1)])
def test_a_copied_overflow_page_loses_one_row(
    backend: StateBackend, victim: int, source: int
) -> None:
    """The rest of the chain belongs to the other row, whichever of the two is read first."""
    path = create_large(backend, 20_000, 20_000, 20_000)
    before = rows_of(path)["events"]
    rows = layout_of(path).rows["events"]
    target, copied = (overflow_pages(rows[number,], 4096)[1] for number in (victim, source))
    overwrite(path, target, bytes(page_of(path.read_bytes(), copied)))
    damage_index(path)
    events = table_report(recover(backend, path.stem), "events")
    assert events.missing == ((victim, victim),)
    assert rows_of(path)["events"] == [row for row in before if row[0] != victim]


def test_a_chain_that_skips_a_page_and_does_not_end_is_lost(
    backend: StateBackend,
) -> None:
    """It leads into another row's pages, and that row is lost too."""
    path = create_large(backend, 9000, 9000, 9000)
    before = rows_of(path)["events"]
    rows = layout_of(path).rows["events"]
    first, _last = overflow_pages(rows[3,], 4096)
    into, _behind = overflow_pages(rows[1,], 4096)
    overwrite(path, first, into.to_bytes(4, "big"))
    overwrite(path, into, into.to_bytes(4, "big"))
    assert table_report(recover(backend, path.stem), "events").missing == ((1, 1), (3, 3))
    assert rows_of(path)["events"] == before[1:2]


def test_a_damaged_copy_of_an_event_owns_no_page(backend: StateBackend) -> None:
    """It points to the overflow pages of the event itself."""
    path = create_large(backend, 9000, 9000, 9000)
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


def test_an_event_that_points_to_a_producers_page_is_lost(backend: StateBackend) -> None:
    """The producer has no sequence to be removed by, and stays."""
    path = create_long_named(backend)
    layout = layout_of(path)
    row = next(row for key, row in layout.rows["producers"].items() if "long" in key[1])
    _name, _start, end = layout.rows["events"][50,].own[0]
    change(path, end - 4, overflow_pages(row, 4096)[0].to_bytes(4, "big"))
    recovery = recover(backend, path.stem)
    assert table_report(recovery, "events").missing == ((50, 50),)
    assert table_report(recovery, "producers").kept == 2


def test_a_last_pointer_to_another_rows_page_loses_no_row(backend: StateBackend) -> None:
    """It does not follow the last page of the chain."""
    path = create_large(backend, 9000, 9000, 9000)
    before = rows_of(path)
    rows = layout_of(path).rows["events"]
    last = overflow_pages(rows[2,], 4096)[-1]
    overwrite(path, last, overflow_pages(rows[3,], 4096)[1].to_bytes(4, "big"))
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert (
        table_report(recovery, "events").doubtful == 1
    )  # the rest of that page may be damaged too
    assert not recovery.partial
    assert same_rows(backend, path.stem, before)
