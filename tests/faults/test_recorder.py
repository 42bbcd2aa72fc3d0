"""The recorder sees all that happens, and makes calls fail as it is told."""

from __future__ import annotations

import errno
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest

from statebackend import DuplicateEvent
from tests.crash.samples import assert_whole, session_file
from tests.faults import programs
from tests.faults.disk import Disk, all_kept
from tests.faults.recording import Call, Fault, NoCompilerError, Recording, compile_recorder

pytestmark = pytest.mark.crash


@pytest.fixture
def recording(recorder: Path, tmp_path: Path) -> Recording:
    """Return a recording of an empty folder."""
    return Recording(recorder, tmp_path / "disk")


def _after(recording: Recording) -> Disk:
    disk = Disk(recording)
    for step in recording.steps():
        disk.take(step)
    return disk


@pytest.mark.slow
def test_what_was_recorded_gives_the_folder_as_it_is(recording: Recording) -> None:
    """After two processes, one of which was killed: every name, and every byte, but SQLite's index.

    That one is written through a mapping, and never believed after a crash.
    """
    recording.run("die", returncode=-signal.SIGKILL)
    recording.run("use_every_call")
    image = all_kept(_after(recording))
    names = {str(path.relative_to(recording.root)) for path in recording.root.rglob("*")}
    assert set(image) == names - {"acknowledged"}
    for name, content in image.items():
        path = recording.root / name
        if content is None:
            assert path.is_dir()
        elif not name.endswith("-shm"):
            assert path.read_bytes() == content.data, name
    assert {step.call for step in recording.steps()} == set(Call) - {Call.FAULT}


@pytest.mark.slow
def test_threads_take_turns(recording: Recording) -> None:
    """Each write of four threads is recorded once, at the place where it went."""
    recording.run("write_in_threads")
    assert (recording.root / "threads").read_bytes() == _content(_after(recording), "threads")


def _content(disk: Disk, name: str) -> bytes:
    content = all_kept(disk)[name]
    assert content is not None
    return content.data


def _syncs_of_the_log(recording: Recording) -> int:
    return sum(step.call is Call.SYNC and step.path.endswith("-wal") for step in recording.steps())


@pytest.mark.slow
@pytest.mark.conformance("SB-19")
@pytest.mark.parametrize(
    "fault, errors",
    [
        (Fault("fsync", 3, "*-wal"), {"OutcomeUnknown"}),
        (Fault("write", 22, "*-wal"), {"StorageError", "OutcomeUnknown"}),
        (Fault("write", 22, "*-wal", errno.ENOSPC), {"StorageFull"}),
    ],
)
def test_a_call_that_fails_in_a_commit_can_be_settled(
    recording: Recording, fault: Fault, errors: set[str]
) -> None:
    """The error is typed, what was acknowledged is there, and the same id settles what was not."""
    recording.run("create")
    said = recording.run("append_twice", faults=[fault])
    assert said in errors
    assert Call.FAULT in {step.call for step in recording.steps()}
    backend = programs.backend_of(recording.root)
    with backend.open(programs.SESSION_ID) as session:
        assert [event.id for event in session.events()][:1] == ["a"]
        known = session.event("b") is not None
        with pytest.raises(DuplicateEvent, match="same content") if known else nullcontext():
            programs.append_message(session, "b", 9000)
        assert [event.id for event in session.events()] == ["a", "b"]
    assert_whole(session_file(backend, programs.SESSION_ID))


@pytest.mark.slow
def test_the_failing_call_is_the_one_that_was_asked_for(recording: Recording) -> None:
    """Only the n-th call that matches fails, or all from there on; nothing of it happens."""
    said = recording.run("write_lines", faults=[Fault("write", 2, "*/one")])
    assert said == "101"
    assert (recording.root / "one").read_bytes() == b"02"
    said = recording.run("write_lines", faults=[Fault("write", 2, "*/one", and_later=True)])
    assert said == "100"


def test_without_a_compiler_there_is_no_recorder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The reason is said."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompilerError, match="C compiler"):
        compile_recorder(tmp_path)
