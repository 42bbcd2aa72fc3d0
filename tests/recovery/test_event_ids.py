"""Ids of events that differ in the row and in the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from statebackend import DuplicateEvent, StateBackend
from tests.damaging import change, create_with_ids, layout_of, recover, spoil, table_report
from tests.session_files import call, new, path_of, root_page, rows_of, sql

IDS = [f"turn-{number:04d}-abcdefgh" for number in range(20)]


RANDOM_IDS = [
    f"0198{number:04x}-{number * 7919 % 65536:04x}-7{number * 104_729 % 4096:03x}-{number:012x}"
    for number in range(0, 2000, 100)
]


def overwrite_id(path: Path, event_id: str, new: bytes, *, index: bool = False) -> None:
    """Overwrite an id in its row, or in the index of ids."""
    root = root_page(path, "sqlite_autoindex_events_1")
    content = bytearray(path.read_bytes())
    places = [at for at in range(len(content)) if content.startswith(event_id.encode(), at)]
    (at,) = [at for at in places if (at // 4096 + 1 == root) == index]
    content[at : at + len(new)] = new
    path.write_bytes(content)


def ids_of(path: Path) -> list[str]:
    """Return the ids of the events, in their order."""
    return [event_id for (event_id,) in sql(path, "SELECT id FROM events ORDER BY sequence")]


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(b"turn-000w", id="a bit that is out of order"),
        pytest.param(b"turn-0007-abcddfgh", id="a bit that the order does not tell"),
        pytest.param(b"turn-\0\0\0\0", id="NUL"),
        pytest.param(b"turn-000\xb7", id="no UTF-8"),
        pytest.param(b"\xff" * 18, id="nothing is left"),
        pytest.param(b"turn-0006", id="the id of the event before"),
        pytest.param(b"turn-0008", id="the id of the event behind"),
    ],
)
def test_a_damaged_id_is_corrected(backend: StateBackend, new: bytes) -> None:
    """So a repeated append finds its event."""
    path = create_with_ids(backend, IDS)
    before = rows_of(path)
    overwrite_id(path, IDS[7], new)
    recovery = recover(backend, path.stem)
    events = table_report(recovery, "events")
    assert (events.kept, events.repaired, events.set_aside, events.lost) == (20, 1, 0, 0)
    assert not recovery.complete
    shown = new.ljust(18, b"?")[:9].decode(errors="replace")
    (note,) = recovery.notes
    assert note.startswith("events sequence 8: put right id, from the index (was ")
    assert ascii(shown)[1:-2] in ascii(note).replace("\\\\", "\\")
    assert rows_of(path) == before
    with backend.open(path.stem) as session, pytest.raises(DuplicateEvent):
        call(session, b"7" * 300, event_id=IDS[7])


@pytest.mark.parametrize(
    "new", [b"turn-000w", b"turn-0007-abcddfgh", b"turn-000\xb7", b"turn-0006"]
)
def test_a_damaged_entry_changes_no_row(backend: StateBackend, new: bytes) -> None:
    """The row is not doubtful either."""
    path = create_with_ids(backend, IDS)
    before = rows_of(path)
    overwrite_id(path, IDS[7], new, index=True)
    recovery = recover(backend, path.stem)
    assert (recovery.complete, recovery.notes) == (True, ())
    assert rows_of(path) == before


@pytest.mark.parametrize("index", [False, True])
def test_two_possible_ids_are_doubtful(backend: StateBackend, index: bool) -> None:
    """Both are like all others, and in order. The row's is kept, the note has both."""
    path = create_with_ids(backend, RANDOM_IDS)
    other = RANDOM_IDS[7][:16] + ("b" if RANDOM_IDS[7][16] == "a" else "a") + RANDOM_IDS[7][17:]
    overwrite_id(path, RANDOM_IDS[7], other.encode(), index=index)
    recovery = recover(backend, path.stem)
    events = table_report(recovery, "events")
    assert (events.kept, events.repaired, events.doubtful) == (20, 0, 1)
    assert (recovery.complete, recovery.partial) == (False, False)
    in_row, in_index = (RANDOM_IDS[7], other) if index else (other, RANDOM_IDS[7])
    (note,) = recovery.notes
    assert note == (
        f"events sequence 8: its id is {in_row!r} in its row and {in_index!r} in the index, and "
        "nothing shows which is right; the row's is kept"
    )
    assert ids_of(path)[7] == in_row
    assert backend.recoveries() == [recovery]


def test_an_id_that_is_not_utf8_without_the_index(backend: StateBackend) -> None:
    """It is not reported as corrected."""
    path = create_with_ids(backend, IDS)
    overwrite_id(path, IDS[7], b"turn-000\xb7")
    spoil(path, root_page(path, "sqlite_autoindex_events_1"))
    recovery = recover(backend, path.stem)
    assert table_report(recovery, "events").repaired == 1
    assert recovery.notes == ("events sequence 8: id holds U+FFFD for what was not UTF-8",)
    assert ids_of(path)[7] == "turn-000\ufffd-abcdefgh"


def test_an_id_of_a_neighbour_is_corrected(backend: StateBackend) -> None:
    """Both events get their own ids."""
    path = create_with_ids(backend, IDS)
    before = rows_of(path)
    overwrite_id(path, IDS[7], b"turn-zzzz")
    overwrite_id(path, IDS[8], b"turn-0007")
    events = table_report(recover(backend, path.stem), "events")
    assert (events.kept, events.repaired) == (20, 2)
    assert rows_of(path) == before


def test_swapped_ids_are_kept(backend: StateBackend) -> None:
    """Their sequences may as well be damaged."""
    path = create_with_ids(backend, IDS)
    overwrite_id(path, IDS[7], b"turn-zzzz")
    overwrite_id(path, IDS[8], IDS[7].encode())
    content = path.read_bytes()
    path.write_bytes(content.replace(b"turn-zzzz-abcdefgh", IDS[8].encode()))
    events = table_report(recover(backend, path.stem), "events")
    assert (events.kept, events.repaired, events.doubtful) == (20, 0, 2)
    assert ids_of(path)[7:9] == [IDS[8], IDS[7]]


def test_two_entries_for_one_event_make_it_doubtful(backend: StateBackend) -> None:
    """The sequence of the second one is damaged, and its own event has another id now."""
    path = create_with_ids(backend, IDS)
    overwrite_id(path, IDS[7], b"turn-000w")
    overwrite_id(path, IDS[8], b"turn-xxxx")
    overwrite_id(path, IDS[8], IDS[8].encode() + b"\x08", index=True)
    events = table_report(recover(backend, path.stem), "events")
    assert (events.kept, events.repaired, events.doubtful) == (20, 0, 1)


@pytest.mark.parametrize(
    "at, new, right",
    [
        pytest.param(0, b"\xaf", True, id="a character of two bytes"),
        pytest.param(0, b"f", True, id="out of order"),
        pytest.param(4, b"e", False, id="too few others"),
    ],
)
def test_ids_of_a_short_session(backend: StateBackend, at: int, new: bytes, right: bool) -> None:
    """With few others to compare, only the order and invalid characters decide."""
    ids = [f"\N{LATIN SMALL LETTER E WITH ACUTE}{number}-x" for number in range(1, 7)]
    path = create_with_ids(backend, ids)
    content = path.read_bytes()
    leaf = (root_page(path, "events") - 1) * 4096
    place = content.index(ids[3].encode(), leaf, leaf + 4096) + at
    path.write_bytes(content[:place] + new + content[place + 1 :])
    events = table_report(recover(backend, path.stem), "events")
    assert (events.kept, events.repaired, events.doubtful) == (6, right, not right)
    assert (ids_of(path) == ids) == right


def test_a_copy_of_an_event_gets_no_id(backend: StateBackend) -> None:
    """A row written over another one is not an event."""
    path = create_with_ids(backend, IDS)
    rows = layout_of(path).rows["events"]
    content = bytearray(path.read_bytes())
    (_name, start, end), (_name, other, _end) = rows[7,].own[0], rows[8,].own[0]
    number = content[other + 2 : other + 3]
    content[other : other + end - start] = content[start:end]
    content[other + 2 : other + 3] = number
    path.write_bytes(content)
    events = table_report(recover(backend, path.stem), "events")
    assert (events.kept, events.set_aside, events.missing) == (19, 1, ((8, 8),))


def test_two_rows_with_one_id(backend: StateBackend) -> None:
    """The second goes to the side file: an id belongs to one event."""
    path = path_of(backend, new(backend, events=10))
    rows = layout_of(path).rows["events"]
    _name, start, _end = rows[6,].columns[1].pieces[0]
    change(path, start, rows[5,].values[1].encode())
    events = table_report(recover(backend, path.stem), "events")
    assert (events.kept, events.set_aside, events.missing) == (9, 1, ((6, 6),))
