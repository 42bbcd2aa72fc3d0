"""A cut of the power at any step of a session's life loses nothing that was acknowledged."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from statebackend import StateBackend
from tests import chains
from tests.crash.samples import session_file
from tests.damage.bases import files_of, put
from tests.faults import programs
from tests.faults.disk import FATES, Fate, all_kept, all_lost, torn
from tests.faults.power_cut import cut_a_recovery, cut_everywhere
from tests.faults.recording import Recording
from tests.session_files import call, overwrite

pytestmark = [pytest.mark.crash, pytest.mark.conformance("SB-19")]

TORN = tuple(torn(seed) for seed in range(6))
EVENTS = ["a", "b", "c", "d", "e", "f", "g"]


@pytest.fixture
def recording(recorder: Path, tmp_path: Path) -> Recording:
    """Return a recording of an empty folder."""
    return Recording(recorder, tmp_path / "disk")


def killed(recording: Recording) -> None:
    """Record a writer that is killed, and the next one, which takes its log over."""
    recording.run("die", returncode=-signal.SIGKILL)
    recording.run("go_on")


def beside_a_reader(recording: Recording) -> None:
    """Record a writer whose log was made by a reader's connection."""
    recording.run("write_beside_a_reader")


def whole_life(recording: Recording) -> None:
    """Record create, append, batch, status, close, and the same in a second opening."""
    recording.run("live")


LIVES = [whole_life, killed, beside_a_reader]


def test_a_whole_life(recording: Recording) -> None:
    """At every third step, with all or nothing kept of what was not synced."""
    whole_life(recording)
    with programs.backend_of(recording.root).read(programs.SESSION_ID) as view:
        events = list(view.events())
    assert [event.id for event in events] == EVENTS
    assert all(event.payload.startswith(programs.payload(event.id)) for event in events)
    found = cut_everywhere(recording, (all_kept, all_lost), every=3)
    assert found["no session"] > 1
    assert found["acknowledged"] > 30
    assert found["one more"] > 3


@pytest.mark.slow
@pytest.mark.parametrize("live", [killed, beside_a_reader])
def test_other_lives(recording: Recording, live: Callable[[Recording], None]) -> None:
    """At every sixth step, with whatever is kept."""
    live(recording)
    found = cut_everywhere(recording, (*FATES, *TORN[:2]), every=6)
    assert found["acknowledged"] > 10
    assert found["one more"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("live", LIVES)
def test_any_part_of_what_was_not_synced(
    recording: Recording, live: Callable[[Recording], None]
) -> None:
    """At every step, names and content kept, lost, or torn in sectors."""
    live(recording)
    found = cut_everywhere(recording, (*FATES, *TORN))
    assert found["acknowledged"] > 100


@pytest.mark.slow
def test_a_log_that_begins_anew(recording: Recording) -> None:
    """A long life, in which SQLite folds its log in and writes it again from its start."""
    recording.run("write_much")
    begun = [step for step in recording.steps() if step.path.endswith("-wal") and step.size == 32]
    assert len(begun) > 1
    found = cut_everywhere(recording, (all_lost, TORN[0]), every=401)
    assert found["acknowledged"] > 5


def test_a_fold_that_was_cut_off_is_no_damage(backend: StateBackend, tmp_path: Path) -> None:
    """With the log still there, a part of a page may follow: all of it is in the log."""
    with backend.create("default") as session:
        for _number in range(5):
            call(session, b"x" * 9_000)
        left = files_of(session_file(backend, session.session_id))
    there = StateBackend(tmp_path / "left")
    there.directory.mkdir()
    path = session_file(there, session.session_id)
    put({**left, "": left[""] + b"\x0d" * 512}, path)
    with there.open(session.session_id) as session:
        assert session.recovery is None
        assert session.counts().events == 5
    assert path.stat().st_size % 4096 == 0


# ── Migration ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def migrated(recorder: Path, tmp_path: Path) -> Recording:
    """Return the recording of a later program, which migrates an old file and appends to it."""
    place = tmp_path / "disk" / programs.FOLDER
    place.mkdir(parents=True)
    shutil.copy(chains.SAMPLE, place)
    recording = Recording(recorder, tmp_path / "disk")
    recording.run("migrate", chains.SAMPLE.stem, site=chains.copy_program(tmp_path, 3))
    return recording


@pytest.mark.parametrize(
    "fates, every",
    [
        ((all_kept, all_lost, TORN[0]), 25),
        pytest.param((*FATES, *TORN[:3]), 3, marks=pytest.mark.slow),
    ],
)
def test_a_migration(
    migrated: Recording, tmp_path: Path, fates: tuple[Fate, ...], every: int
) -> None:
    """Every row is there at every step, and the next open goes on with the migration."""
    with chains.program_of(chains.make_chain(tmp_path / "chain", 3)):
        found = cut_everywhere(
            migrated, fates, session_id=chains.SAMPLE.stem, every=every, created=False
        )
    assert found["no session"] == 0
    assert found["acknowledged"] > 5


# ── Recovery ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def recovered(recorder: Path, tmp_path: Path) -> Recording:
    """Return the recording of a program that opens a session with noise in a middle page."""
    backend = programs.backend_of(tmp_path / "disk")
    with backend.create("default", session_id=programs.SESSION_ID) as session:
        for number in range(40):
            programs.append_message(session, f"event-{number}", 900)
    path = session_file(backend, programs.SESSION_ID)
    overwrite(path, 1 + path.stat().st_size // 4096 // 2, random.Random(1).randbytes(4096))
    recording = Recording(recorder, tmp_path / "disk")
    recording.run("recover")
    return recording


@pytest.mark.parametrize(
    "fates, every",
    [((all_kept, all_lost), 5), pytest.param((*FATES, *TORN), 1, marks=pytest.mark.slow)],
)
def test_a_recovery(recovered: Recording, fates: tuple[Fate, ...], every: int) -> None:
    """What is saved is the same with a cut and without, and the original is kept."""
    found = cut_a_recovery(recovered, fates, every=every)
    assert found["recovered before"] > 0
    assert found["recovered now"] > 3


# ── These tests notice a fault ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "program, fate, problem",
    [
        ("live_unsynced", all_lost, "rows are lost, or there in part"),
        ("live_without_folders", all_lost, "the session is gone"),
        ("live_without_transactions", all_kept, "rows are lost, or there in part"),
    ],
)
def test_a_fault_is_noticed(recording: Recording, program: str, fate: Fate, problem: str) -> None:
    """A program that does not sync, or commits rows singly, does not pass."""
    recording.run(program)
    with pytest.raises(AssertionError, match=problem):
        cut_everywhere(recording, (fate,))
