"""Few descriptors, little memory, SIGTERM, a clock that jumps, a full temporary folder."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from statebackend import SessionInfo, SessionStatus, StateBackend
from statebackend.values import timestamps
from tests.chains import SAMPLE, make_chain, program_of
from tests.crash import limited
from tests.crash.kernel import Ballast, needs_root, small_disk
from tests.crash.processes import run, started
from tests.crash.samples import append, assert_whole, litter, new_session, session_file
from tests.session_files import call, damage_page

pytestmark = [pytest.mark.crash, pytest.mark.conformance("SB-19")]


def test_few_descriptors_are_a_typed_error(backend: StateBackend) -> None:
    """With any number left, each use works or says which file; then it works again."""
    session_id, other = new_session(backend, 3), new_session(backend, 3)
    (said,) = run(limited.few_descriptors, backend.directory, session_id, other)
    for use, errors in said.items():
        assert set(errors) <= {"StorageError"}, use
    assert said["open"] == said["create"] == said["read"] == ["StorageError"]
    assert_whole(session_file(backend, session_id))


@pytest.mark.conformance("SB-38")
def test_few_descriptors_start_no_recovery_that_cannot_end(backend: StateBackend) -> None:
    """While it cannot be done nothing is renamed; it is done whole, also if the open then fails."""
    session_id = new_session(backend, 3)
    damage_page(session_file(backend, session_id))
    original = session_file(backend, session_id).read_bytes()
    *renamed, refused = run(limited.few_descriptors_in_a_recovery, backend.directory, session_id)
    assert refused >= 3
    assert [False, 0] in renamed
    assert all(done in ([False, 0], [True, 1]) for done in renamed)  # nothing by halves
    (report,) = backend.recoveries()
    assert report.original is not None
    assert report.original.read_bytes() == original


def test_little_memory_keeps_whole_events(backend: StateBackend) -> None:
    """What does not fit is absent, the session goes on, and a retry stores it."""
    session_id = new_session(backend)
    ((kept, failed, events),) = run(limited.little_memory, backend.directory, session_id)
    assert kept > 0
    assert failed > 0
    assert events == kept + failed
    assert_whole(session_file(backend, session_id))


@pytest.mark.parametrize("way", ["killed", "handled"])
def test_sigterm_at_a_random_moment_loses_nothing(backend: StateBackend, way: str) -> None:
    """Whether it kills or a handler raises SystemExit: all that was acknowledged is there."""
    session_id = new_session(backend)
    acknowledged: list[str] = []
    for _ in range(5):
        with started(limited.end_by_sigterm, backend.directory, session_id, way) as writer:
            acknowledged.append(writer.hear())
            time.sleep(random.random() * 0.05)
            os.kill(writer.pid, signal.SIGTERM)
            acknowledged += writer.rest()
            assert (writer.wait() == -signal.SIGTERM) == (way == "killed")
    with backend.open(session_id) as session:
        ids = [event.id for event in session.events()]
        assert [one for one in ids if one in set(acknowledged)] == acknowledged
        assert len(ids) <= len(acknowledged) + 5
    assert_whole(session_file(backend, session_id))
    assert litter(backend) == set()


def test_a_clock_that_jumps_back_changes_no_order(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events and changes of status go by sequence; ends before starts are kept as they came."""
    jumps = random.Random(7)
    start = datetime(2026, 3, 1, tzinfo=UTC)
    monkeypatch.setattr(
        timestamps, "now", lambda: start + timedelta(seconds=jumps.randrange(-(10**6), 10**6))
    )
    with backend.create("default", started_at=start) as session:
        sequences = []
        for _ in range(50):
            sequences.append(call(session))
            with session.batch() as batch:
                batch.append_prompt(payload=b"", schema_version="1")
            session.set_status(SessionStatus.COMPLETED)
            session.set_status(SessionStatus.RUNNING)
        session.set_status(SessionStatus.FAILED, ended_at=start - timedelta(days=1))
        events = list(session.events())
    assert sequences == list(range(1, 101, 2))
    assert [event.sequence for event in events] == list(range(1, 101))
    times = [event.timestamp for event in events]
    assert times != sorted(times)
    with backend.open(session.session_id) as reopened:
        assert list(reopened.events()) == events
        assert reopened.info.ended_at == start - timedelta(days=1)
    (info,) = backend.list()
    assert isinstance(info, SessionInfo)
    assert info.status is SessionStatus.FAILED


# ── Disks that are full where one does not think of it ───────────────────────────────────────


@needs_root
def test_a_full_temporary_folder_hinders_no_copy(
    backend: StateBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of a large session goes through SQLite's temporary folder."""
    with backend.create("default") as session:
        for _ in range(10):
            append(session, payload=b"x" * 5_000_000)
    disk = tmp_path / "disk"
    with small_disk(disk, 64):
        Ballast(disk)
        monkeypatch.setenv("SQLITE_TMPDIR", str(disk))
        monkeypatch.setenv("TMPDIR", str(disk))
        copy = backend.copy(session.session_id, tmp_path / "copy.sqlite")
        assert copy.stat().st_size > 50_000_000
        backend.open(session.session_id).close()
    assert_whole(copy)


@needs_root
def test_a_full_disk_at_a_migration_keeps_the_old_file(tmp_path: Path) -> None:
    """Byte for byte, until there is room."""
    disk = tmp_path / "disk"
    with small_disk(disk, 4096):
        backend = StateBackend(disk / "sessions")
        backend.directory.mkdir(mode=0o700)
        path = Path(shutil.copy(SAMPLE, backend.directory))
        before = path.read_bytes()
        with program_of(make_chain(tmp_path / "program", 5)):
            ballast = Ballast(disk, leave=40_000)
            for use in (backend.open, backend.read):
                with pytest.raises(Exception, match="no space left") as caught:
                    use(path.stem)
                assert type(caught.value).__module__ == "statebackend.errors"
            assert path.read_bytes() == before
            ballast.drop()
            with backend.open(path.stem) as session:
                assert session.counts().events == 1000
                assert session.recovery is None
        assert litter(backend) == set()


@needs_root
def test_a_full_disk_at_an_import_leaves_whole_sessions(root: Path, tmp_path: Path) -> None:
    """The error is typed; what was made is whole; with room again, the import is finished."""
    sample = root / "src/statebackend/samples/claude_code"
    disk = tmp_path / "disk"
    with small_disk(disk, 2048):
        small = StateBackend(disk / "sessions")
        small.create("default").close()
        ballast = Ballast(disk, leave=10_000)
        report = small.import_transcripts([sample])
        problems = [file.problem for file in report.files if file.problem is not None]
        assert any(f"{disk}" in one and "no space left" in one for one in problems)
        ballast.drop()
        for info in small.list():
            assert isinstance(info, SessionInfo)
            assert_whole(session_file(small, info.session_id))
        report = small.import_transcripts([sample])
        assert [file.problem for file in report.files if file.session_id is None] == []
        assert len(small.list()) > 1
        assert litter(small) == set()
