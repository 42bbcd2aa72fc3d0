from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from statebackend import Recovery, StateBackend, TableRecovery
from statebackend.files import recovery_reports

SESSION = "01K9A0000000000000000000AA"
WHEN = datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)


def a_recovery(folder: Path, *, ending: str = "", when: datetime = WHEN) -> Recovery:
    """Make a report with every sort of loss."""
    path = folder / f"{SESSION}.sqlite"
    return Recovery(
        session_id=SESSION,
        path=path,
        original=Path(f"{path}.corrupt{ending}"),
        report=Path(f"{path}.corrupt{ending}.json"),
        aside=None,
        recovered_at=when,
        reasons=("database disk image is malformed",),
        tables=(
            TableRecovery(table="events", kept=7, missing=((3, 5), (9, 9)), routes={"page": 7}),
            TableRecovery(table="producers", kept=1, routes={"derived": 1}),
        ),
        derived=("profile",),
        notes=("producers: 1 row worked out from the events",),
        uncounted=("its log is gone",),
    )


def write(recovery: Recovery) -> None:
    """Write a report where it belongs."""
    assert recovery.report is not None
    recovery.report.write_text(recovery_reports.to_text(recovery))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """A report survives its file."""
    recovery = a_recovery(tmp_path)
    write(recovery)
    assert StateBackend(tmp_path).recoveries() == [recovery]


def test_newest_first(tmp_path: Path) -> None:
    """Reports come by the time of the recovery."""
    write(older := a_recovery(tmp_path))
    write(newer := a_recovery(tmp_path, ending=".2", when=WHEN.replace(year=2027)))
    assert StateBackend(tmp_path).recoveries() == [newer, older]


def test_a_folder_may_be_moved(tmp_path: Path) -> None:
    """A report names files beside it, wherever that is."""
    (tmp_path / "before").mkdir()
    write(a_recovery(tmp_path / "before"))
    after = (tmp_path / "before").rename(tmp_path / "after")
    assert StateBackend(after).recoveries() == [a_recovery(after)]


def test_no_folder_holds_no_recoveries(tmp_path: Path) -> None:
    """A folder that is not there is no error."""
    assert StateBackend(tmp_path / "absent").recoveries() == []


def test_lost_and_complete(tmp_path: Path) -> None:
    """The sums follow from the ranges."""
    recovery = a_recovery(tmp_path)
    assert [table.lost for table in recovery.tables] == [4, 0]
    assert not recovery.complete
    whole = TableRecovery(table="events", kept=7, routes={"page": 7})
    sound = Recovery(
        session_id=SESSION,
        path=recovery.path,
        original=None,
        report=None,
        aside=None,
        recovered_at=WHEN,
        reasons=(),
        tables=(whole,),
        derived=(),
        notes=(),
    )
    assert sound.complete


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("recovered_at", "yesterday"),
        ("session_id", 7),
        ("original", "../elsewhere"),
        ("tables", None),
        ("tables", [7]),
        ("notes", [7]),
    ],
)
def test_what_is_no_report_is_left_out_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str, value: object
) -> None:
    """One bad report hides no other."""
    write(good := a_recovery(tmp_path))
    form = recovery_reports.to_json(a_recovery(tmp_path)) | {key: value}
    bad = tmp_path / f"{SESSION}.sqlite.corrupt.2.json"
    bad.write_text(json.dumps(form))
    with caplog.at_level(logging.WARNING):
        assert StateBackend(tmp_path).recoveries() == [good]
    assert str(bad) in caplog.text


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b"\xff", b"{}"])
def test_a_broken_report_is_left_out(tmp_path: Path, content: bytes) -> None:
    """What is no JSON object is no report."""
    (tmp_path / f"{SESSION}.sqlite.corrupt.json").write_bytes(content)
    assert StateBackend(tmp_path).recoveries() == []
