"""Ids of events that damage changed: in the row, where the index knows better, or in the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from statebackend import DuplicateEvent, StateBackend, TableRecovery
from tests.damaging import layout_of, recover, spoil, told
from tests.session_files import TOOL, call, damage_index, path_of, root_page, rows_of, sql

IDS = [f"turn-{number:04d}-abcdefgh" for number in range(20)]
RANDOM_IDS = [
    f"0198{number:04x}-{number * 7919 % 65536:04x}-7{number * 104_729 % 4096:03x}-{number:012x}"
    for number in range(0, 2000, 100)
]


def with_ids(backend: StateBackend, ids: list[str]) -> Path:
    """Make a session of events with these ids, in their order, and close it."""
    with backend.create("default") as session:
        for number, event_id in enumerate(ids):
            call(session, b"%d" % number * 300, event_id=event_id)
    return path_of(backend, session.session_id)


def hit(path: Path, event_id: str, new: bytes, *, index: bool = False) -> None:
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
def test_the_index_gives_an_event_its_id_again(backend: StateBackend, new: bytes) -> None:
    """So a repeated append finds it, and is not stored a second time."""
    path = with_ids(backend, IDS)
    before = rows_of(path)
    hit(path, IDS[7], new)
    recovery = recover(backend, path.stem)
    events = told(recovery, "events")
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
def test_an_entry_of_the_index_that_was_hit_changes_no_row(
    backend: StateBackend, new: bytes
) -> None:
    """The row is right, and nothing of it is in doubt."""
    path = with_ids(backend, IDS)
    before = rows_of(path)
    hit(path, IDS[7], new, index=True)
    recovery = recover(backend, path.stem)
    assert (recovery.complete, recovery.notes) == (True, ())
    assert rows_of(path) == before


@pytest.mark.parametrize("index", [False, True])
def test_where_nothing_tells_which_is_right_the_row_is_kept_and_noted(
    backend: StateBackend, index: bool
) -> None:
    """Both are like all the others, and both are in order."""
    path = with_ids(backend, RANDOM_IDS)
    other = RANDOM_IDS[7][:16] + ("b" if RANDOM_IDS[7][16] == "a" else "a") + RANDOM_IDS[7][17:]
    hit(path, RANDOM_IDS[7], other.encode(), index=index)
    recovery = recover(backend, path.stem)
    events = told(recovery, "events")
    assert (events.kept, events.repaired, events.doubtful) == (20, 0, 1)
    assert (recovery.complete, recovery.partial) == (False, False)
    in_row, in_index = (RANDOM_IDS[7], other) if index else (other, RANDOM_IDS[7])
    (note,) = recovery.notes
    assert note == (
        f"events sequence 8: its id is {in_row!r} in its row and {in_index!r} in the index, and "
        "nothing tells which is right; the row's is kept"
    )
    assert ids_of(path)[7] == in_row
    assert backend.recoveries() == [recovery]


def test_without_the_index_an_id_that_is_no_text_is_told_as_it_is(backend: StateBackend) -> None:
    """It is not called put right."""
    path = with_ids(backend, IDS)
    hit(path, IDS[7], b"turn-000\xb7")
    spoil(path, root_page(path, "sqlite_autoindex_events_1"))
    recovery = recover(backend, path.stem)
    assert told(recovery, "events").repaired == 1
    assert recovery.notes == ("events sequence 8: id holds U+FFFD for what was not UTF-8",)
    assert ids_of(path)[7] == "turn-000\ufffd-abcdefgh"


def test_two_events_in_each_others_place_are_two_cases(backend: StateBackend) -> None:
    """Neither takes the id of the other."""
    path = with_ids(backend, IDS)
    before = rows_of(path)
    hit(path, IDS[7], b"turn-zzzz")
    hit(path, IDS[8], b"turn-0007")
    events = told(recover(backend, path.stem), "events")
    assert (events.kept, events.repaired) == (20, 2)
    assert rows_of(path) == before


def test_two_events_with_each_others_ids_keep_them(backend: StateBackend) -> None:
    """Their numbers may as well be what was hit."""
    path = with_ids(backend, IDS)
    hit(path, IDS[7], b"turn-zzzz")
    hit(path, IDS[8], IDS[7].encode())
    content = path.read_bytes()
    path.write_bytes(content.replace(b"turn-zzzz-abcdefgh", IDS[8].encode()))
    events = told(recover(backend, path.stem), "events")
    assert (events.kept, events.repaired, events.doubtful) == (20, 0, 2)
    assert ids_of(path)[7:9] == [IDS[8], IDS[7]]


def test_two_entries_for_one_event_leave_it_in_doubt(backend: StateBackend) -> None:
    """The number of the second one was hit, and the row that it was of is another one now."""
    path = with_ids(backend, IDS)
    hit(path, IDS[7], b"turn-000w")
    hit(path, IDS[8], b"turn-xxxx")
    hit(path, IDS[8], IDS[8].encode() + b"\x08", index=True)
    events = told(recover(backend, path.stem), "events")
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
    """With few others beside it, the order and what no text is are all that tells."""
    ids = [f"\N{LATIN SMALL LETTER E WITH ACUTE}{number}-x" for number in range(1, 7)]
    path = with_ids(backend, ids)
    content = path.read_bytes()
    leaf = (root_page(path, "events") - 1) * 4096
    place = content.index(ids[3].encode(), leaf, leaf + 4096) + at
    path.write_bytes(content[:place] + new + content[place + 1 :])
    events = told(recover(backend, path.stem), "events")
    assert (events.kept, events.repaired, events.doubtful) == (6, right, not right)
    assert (ids_of(path) == ids) == right


def test_a_copy_of_an_event_gets_no_id_of_its_own(backend: StateBackend) -> None:
    """A row written twice, the second time over another one, is no event."""
    path = with_ids(backend, IDS)
    rows = layout_of(path).rows["events"]
    content = bytearray(path.read_bytes())
    (_name, start, end), (_name, other, _end) = rows[7,].own[0], rows[8,].own[0]
    number = content[other + 2 : other + 3]
    content[other : other + end - start] = content[start:end]
    content[other + 2 : other + 3] = number
    path.write_bytes(content)
    events = told(recover(backend, path.stem), "events")
    assert (events.kept, events.set_aside, events.missing) == (19, 1, ((8, 8),))


def test_a_producer_that_was_hit_is_put_right_from_its_events(backend: StateBackend) -> None:
    """There is no second one."""
    path = with_ids(backend, IDS)
    before = rows_of(path)
    column = next(iter(layout_of(path).rows["producers"].values())).columns[1]
    ((_name, start, _end),) = column.pieces
    content = bytearray(path.read_bytes())
    content[start] ^= 1
    path.write_bytes(content)
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert told(recovery, "producers") == TableRecovery(
        table="producers", kept=1, routes={"page": 1}, repaired=1
    )
    assert recovery.notes == (
        f"producers name {TOOL.name}: put right from its events (was 'tool' 'rhell' '1.0.0')",
    )
    assert rows_of(path) == before
