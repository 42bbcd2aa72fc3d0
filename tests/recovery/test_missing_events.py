"""Events that only the indexes still have."""

from __future__ import annotations

from statebackend import StateBackend
from tests.damaging import change, layout_of, recover, spoil, table_report
from tests.session_files import new, path_of, root_page, rows_of


def test_a_damaged_entry_of_the_sessions_id_is_not_an_event(backend: StateBackend) -> None:
    """The index of session_meta has entries like those of the events' ids."""
    path = path_of(backend, new(backend))
    root = root_page(path, "sqlite_autoindex_session_meta_1")
    at = path.read_bytes().index(path.stem.encode(), (root - 1) * 4096)
    change(path, at + 22, b"@")
    recovery = recover(backend, path.stem)
    assert table_report(recovery, "events").missing == ()
    assert recovery.complete


def test_lost_events_are_noted_with_their_ids(backend: StateBackend) -> None:
    """Kind and category too, as the other indexes have them."""
    path = path_of(backend, new(backend, events=100, size=900))
    before = rows_of(path)["events"]
    spoil(path, layout_of(path).with_role("leaf events")[5])
    recovery = recover(backend, path.stem)
    ((first, last),) = table_report(recovery, "events").missing
    for row in before[first - 1 : last]:
        (note,) = (note for note in recovery.notes if f"sequence {row[0]} is lost" in note)
        assert {row[1], row[3], row[4]} <= set(note.partition(": ")[2].split(", "))
