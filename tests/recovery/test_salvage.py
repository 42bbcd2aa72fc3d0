"""The report of a salvage: counts, notes, and what raises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statebackend import StateBackend
from statebackend.recovery.salvage.salvage import salvage
from tests.damaging import NOISE, layout_of, recover, same_rows, spoil, table_report
from tests.session_files import (
    MODEL,
    cost,
    damage_index,
    full,
    item,
    new,
    path_of,
    root_page,
    rows_of,
    sql,
)


def test_rows_of_a_lost_event_are_kept(backend: StateBackend) -> None:
    """They count as orphaned."""
    with backend.create("default") as session, session.batch() as batch:
        for _number in range(40):
            batch.append_message(producer=MODEL, payload=b"x" * 900, cost=cost())
            batch.append_plan(producer=MODEL, payload=b"y" * 900, items=[item()])
    path = path_of(backend, session.session_id)
    spoil(path, layout_of(path).with_role("leaf events")[5])
    recovery = recover(backend, session.session_id)
    assert table_report(recovery, "events").lost == 4
    ledger, plan = table_report(recovery, "cost_ledger"), table_report(recovery, "plan_items")
    assert (ledger.kept, ledger.orphaned) == (40, 2)
    assert (plan.kept, plan.orphaned) == (40, 2)


def test_text_that_is_not_utf8_is_noted(backend: StateBackend) -> None:
    """U+FFFD stands for the broken bytes."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    leaf = (root_page(path, "events") - 1) * 4096
    content = path.read_bytes()
    match = re.compile(rb"20\d\d-\d\d-\d\dT").search(content, leaf, leaf + 4096)
    assert match is not None
    at = match.start()
    path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    damage_index(path)
    recovery = recover(backend, session_id)
    assert table_report(recovery, "events").repaired == 1
    ((number,),) = sql(path, "SELECT sequence FROM events WHERE timestamp LIKE '\ufffd0%'")
    assert (
        f"events sequence {number}: timestamp holds U+FFFD for what was not UTF-8" in recovery.notes
    )


def test_text_stored_as_blob_is_corrected(backend: StateBackend) -> None:
    """And a blob stored as text. They differ by one bit, and the column says which is right."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    before = rows_of(path)
    sql(path, "UPDATE events SET payload = CAST(payload AS TEXT) WHERE sequence = 4")
    sql(path, "UPDATE events SET timestamp = CAST(timestamp AS BLOB) WHERE sequence = 3")
    damage_index(path)
    recovery = recover(backend, session_id)
    assert table_report(recovery, "events").repaired == 2
    assert "events sequence 4: put right payload" in recovery.notes
    assert "events sequence 3: put right timestamp" in recovery.notes
    assert same_rows(backend, session_id, before)


def test_a_report_has_at_most_100_notes(backend: StateBackend) -> None:
    """The counts cover the rest."""
    path = path_of(backend, new(backend, events=120))
    sql(path, "UPDATE events SET timestamp = CAST(x'ff' || timestamp AS TEXT)")
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert table_report(recovery, "events").repaired == 120
    assert len(recovery.notes) == 100


def test_a_source_that_cannot_be_read(tmp_path: Path) -> None:
    """No file is created."""
    source, target = tmp_path / "source.sqlite", tmp_path / "target"
    with pytest.raises(FileNotFoundError):
        salvage(source, target, tmp_path / "aside", "x")
    source.write_bytes(NOISE)
    Path(f"{source}-wal").symlink_to(source)
    with pytest.raises(OSError, match="symbolic"):
        salvage(source, target, tmp_path / "aside", "x")
    assert not target.exists()
