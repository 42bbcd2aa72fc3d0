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


@pytest.mark.conformance("SB-19", "SB-38")
@pytest.mark.parametrize("name", ["live", "go_on", "killed", "copied", "recover", "recover_log"])
@pytest.mark.parametrize("every", [pytest.param(3, marks=pytest.mark.slow), 23])
def test_any_call_may_fail(recording: Recording, name: str, every: int) -> None:
    """A write, sync, opening, link, rename or removal, at every step, for every reason.

    The error is typed and names the file; the same session goes on, or as the error says; nothing
    acknowledged is lost; a recovery keeps the original and comes out in the end; nothing is left.
    """
    told = recording.run("fail", name, every, 1, module="tests.faults.every_call")
    fired = {one.partition(":")[0]: int(one.partition(":")[2]) for one in told.split()}
    assert fired
    if every == 1:
        assert sum(fired.values()) > 40
