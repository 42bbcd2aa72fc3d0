"""What single system calls do, and what happens when one fails at any step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.recording import Call, Recording

pytestmark = pytest.mark.crash


@pytest.fixture
def recording(recorder: Path, tmp_path: Path) -> Recording:
    """Return a recording of an empty folder."""
    return Recording(recorder, tmp_path / "disk")


@pytest.mark.conformance("SB-08")
@pytest.mark.parametrize(
    "writer, code, may_change", [("die", -9, set()), ("live", 0, {".sqlite-wal"})]
)
def test_readers_never_fold_a_log_in(
    recording: Recording, writer: str, code: int, may_change: set[str]
) -> None:
    """Every call of theirs is recorded. A dead writer's log stays; a closed file gets an empty one.

    Nothing is written to the session file itself.
    """
    recording.run(writer, returncode=code)
    before = len(recording.steps())
    recording.run("read_everything")
    steps = recording.steps()[before:]
    assert steps
    changed = {
        Path(step.path).suffix
        for step in steps
        if step.call not in {Call.CLOSE, Call.SYNC} and step.path
    }
    assert changed <= {".sqlite-shm"} | may_change
    assert not [step for step in steps if step.call is Call.WRITE and "-shm" not in step.path]
