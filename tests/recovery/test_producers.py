"""Rows of producers."""

from __future__ import annotations

from statebackend import StateBackend, TableRecovery
from tests.damaging import (
    create_long_named,
    create_with_ids,
    layout_of,
    overflow_pages,
    recover,
    same_rows,
    table_report,
)
from tests.session_files import TOOL, damage_index, overwrite, rows_of


def test_a_damaged_producer_is_corrected(backend: StateBackend) -> None:
    """From its events; there is no second one."""
    path = create_with_ids(backend, [f"turn-{number}" for number in range(20)])
    before = rows_of(path)
    column = next(iter(layout_of(path).rows["producers"].values())).columns[1]
    ((_name, start, _end),) = column.pieces
    content = bytearray(path.read_bytes())
    content[start] ^= 1
    path.write_bytes(content)
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert table_report(recovery, "producers") == TableRecovery(
        table="producers", kept=1, routes={"page": 1}, repaired=1
    )
    assert recovery.notes == (
        f"producers name {TOOL.name}: put right from its events (was 'tool' 'rhell' '1.0.0')",
    )
    assert rows_of(path) == before


def test_a_lost_producer_is_derived(backend: StateBackend) -> None:
    """From the events."""
    path = create_long_named(backend)
    before = rows_of(path)
    rows = layout_of(path).rows["producers"]
    row = next(row for key, row in rows.items() if "long" in key[1])
    overwrite(path, overflow_pages(row, 4096)[0], bytes(4096))
    producers = table_report(recover(backend, path.stem), "producers")
    assert producers.routes == {"page": 1, "derived": 1}
    assert same_rows(backend, path.stem, before)
