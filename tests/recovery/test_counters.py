"""Sequences after a salvage."""

from __future__ import annotations

from pathlib import Path

import pytest

from statebackend import StateBackend
from tests.damaging import (
    ID,
    NOISE,
    beside,
    layout_of,
    recover,
    sequences,
    session_with_wal,
    spoil,
    table_report,
)
from tests.session_files import call, new, overwrite, path_of, root_page, sql


def test_sequences_of_lost_events_are_not_reused(backend: StateBackend) -> None:
    """The next event follows the last one that there ever was."""
    session_id = new(backend, events=100, size=900)
    path = path_of(backend, session_id)
    spoil(path, layout_of(path).with_role("leaf events")[-1])
    ((first, last),) = table_report(recover(backend, session_id), "events").missing
    assert (last, max(sequences(path))) == (100, first - 1)
    with backend.open(session_id) as session:
        assert call(session) == 101


def test_an_index_replaces_the_counter(backend: StateBackend) -> None:
    """Counter and newest events are lost."""
    session_id = new(backend, events=100, size=900)
    path = path_of(backend, session_id)
    spoil(path, layout_of(path).with_role("leaf events")[-1])
    spoil(path, root_page(path, "sqlite_sequence"))
    assert table_report(recover(backend, session_id), "events").missing[-1][1] == 100
    with backend.open(session_id) as session:
        assert call(session) == 101


@pytest.mark.parametrize("counter", [(1 << 63) - 1, 1 << 62, "many"])
def test_an_impossible_counter_is_ignored(backend: StateBackend, counter: object) -> None:
    """It would leave no sequence for the next event."""
    session_id = new(backend, events=30)
    path = path_of(backend, session_id)
    sql(path, "UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'", counter)
    assert recover(backend, session_id).complete
    with backend.open(session_id) as session:
        assert call(session) == 31


def test_sequences_of_a_torn_transaction_are_not_reused(
    backend: StateBackend, tmp_path: Path
) -> None:
    """It may have been committed; its rows are not saved, and are reported as missing."""
    path = session_with_wal(backend, tmp_path / "killed", ID, 10)
    start, _end = layout_of(path).commits[-1]
    with beside(path, "-wal").open("r+b") as file:
        file.seek(start + 30)
        file.write(NOISE[:8])
    overwrite(path, 1, NOISE[:16])
    beside(path, "-shm").unlink()  # it knows
    there = StateBackend(path.parent)
    events = table_report(recover(there, ID), "events")
    assert (events.kept, events.missing) == (9, ((10, 10),))
    with there.open(ID) as session:
        assert call(session) == 11
