"""A program that reads the files of its own open session, and so drops the kernel's locks on them.

Each such read is a real one here, and the other programs are real processes.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from statebackend import (
    OutcomeUnknown,
    Session,
    SessionClosed,
    SessionLocked,
    StateBackend,
    StorageError,
)
from statebackend.files import sqlite_locks
from tests.crash import children
from tests.crash.processes import run, started
from tests.crash.samples import append, assert_whole, litter, new_session, session_file

pytestmark = pytest.mark.crash


def names(session: Session) -> dict[str, Path]:
    """Return the files of an open session by what they are."""
    path = session.path
    return {
        "file": path,
        "wal": Path(f"{path}-wal"),
        "shm": Path(f"{path}-shm"),
        "claim": path.parent / ".locks" / f"{session.session_id}.lock",
    }


def touch(session: Session, *which: str) -> None:
    """Read these files of a session (all when none is named) and close them again."""
    for what, path in names(session).items():
        if not which or what in which:
            path.read_bytes()


def copy_folder(session: Session) -> None:
    """Copy the folder as it is, as a backup within the program would."""
    shutil.copytree(session.path.parent, session.path.parent.with_name("copy"))


TOUCHES: dict[str, Callable[[Session], None]] = {
    "file": lambda session: touch(session, "file"),
    "shm": lambda session: touch(session, "shm"),
    "claim": lambda session: touch(session, "claim"),
    "all": touch,
    "copy of the folder": copy_folder,
}


def stored(backend: StateBackend, session_id: str) -> list[str]:
    """Return the ids of a session's events."""
    with backend.read(session_id) as view:
        return [event.id for event in view.events()]


def checkpoint_elsewhere(session: Session) -> None:
    """Open and close the file in a foreign program, which checkpoints the WAL and deletes it."""
    run(children.open_and_close_bare, session.path)


linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="no open file description locks on this system"
)


def without_file_locks(patch: pytest.MonkeyPatch) -> None:
    """Take no open file description locks, until the patch is undone, as where there are none."""
    patch.setattr(sqlite_locks._Descriptor, "lock", lambda *_given: None)


def open_without_file_locks(backend: StateBackend, session_id: str) -> Session:
    """Open a session that no open file description lock protects while it is open."""
    with pytest.MonkeyPatch.context() as patch:
        without_file_locks(patch)
        return backend.open(session_id)


@pytest.fixture
def session_id(backend: StateBackend) -> str:
    """Return a closed session without events."""
    return new_session(backend)


@linux_only
@pytest.mark.parametrize("how", TOUCHES)
@pytest.mark.parametrize("change", ["append", "status"])
def test_no_other_program_removes_the_wal_and_the_next_commit_takes_the_claim_again(
    backend: StateBackend,
    session_id: str,
    how: str,
    change: str,
) -> None:
    """Open file description locks outlive the reading; a second writer is refused again."""
    with backend.open(session_id) as session:
        append(session, "1")
        TOUCHES[how](session)
        checkpoint_elsewhere(session)
        assert names(session)["wal"].exists()
        if change == "status":
            session.set_status("completed")
            session.set_status("running")
        else:
            append(session, "2")
        (answer,) = run(children.attempt, backend.directory, session_id)
        checkpoint_elsewhere(session)
        assert names(session)["wal"].exists()
        append(session, "3")
    assert answer != "opened"
    assert stored(backend, session_id) == ["1", *(["2"] if change == "append" else []), "3"]
    assert_whole(session_file(backend, session_id))
    assert litter(backend) == set()


@pytest.mark.parametrize("change", ["append", "status"])
@pytest.mark.parametrize("how", ["all", "copy of the folder"])
def test_a_commit_into_a_removed_wal_is_not_acknowledged(
    backend: StateBackend, session_id: str, how: str, change: str
) -> None:
    """Where nothing holds the WAL: the session opens again and has all of before."""
    session = open_without_file_locks(backend, session_id)
    append(session, "1")
    TOUCHES[how](session)
    checkpoint_elsewhere(session)
    assert not names(session)["wal"].exists()  # this is what happens to a program's own SQLite
    with pytest.raises(OutcomeUnknown):
        append(session, "2") if change == "append" else session.set_status("completed")
    with pytest.raises(SessionClosed):
        append(session)
    with backend.open(session_id) as again:
        assert again.info.status == "running"
        append(again, "2")
    assert stored(backend, session_id) == ["1", "2"]
    assert_whole(session_file(backend, session_id))
    assert litter(backend) == set()


@pytest.mark.parametrize("change", ["append", "status"])
def test_a_commit_into_a_wal_that_is_removed_meanwhile_is_not_acknowledged(
    backend: StateBackend, session_id: str, change: str
) -> None:
    """Its outcome is unknown; a retry with the same id says so, or writes it."""
    session = open_without_file_locks(backend, session_id)
    append(session, "1")
    done: list[str] = []

    def remove_wal(statement: str) -> None:
        if statement.startswith("COMMIT") and not done:
            done.append(statement)
            touch(session)
            checkpoint_elsewhere(session)

    session._held.driver.set_trace_callback(remove_wal)
    with pytest.raises(OutcomeUnknown, match="removed the WAL"):
        append(session, "2") if change == "append" else session.set_status("completed")
    assert done
    with backend.open(session_id) as again:
        assert again.info.status == "running"
        append(again, "2")
    assert stored(backend, session_id) == ["1", "2"]
    assert_whole(session_file(backend, session_id))


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
@pytest.mark.parametrize("change", ["append", "status"])
def test_a_wal_or_shm_that_was_removed_by_hand_is_noticed(
    backend: StateBackend, session_id: str, ending: str, change: str
) -> None:
    """Nobody would find what is committed there, so it is not acknowledged."""
    session = backend.open(session_id)
    append(session, "1")
    Path(f"{session.path}{ending}").unlink()
    with pytest.raises(OutcomeUnknown):
        append(session, "2") if change == "append" else session.set_status("completed")
    with pytest.raises(SessionClosed):
        append(session, "3")


def test_a_writer_that_lost_its_claim_yields(backend: StateBackend, session_id: str) -> None:
    """The error names the new writer, whose lock and WAL stay."""
    session = backend.open(session_id)
    append(session, "1")
    touch(session)
    with started(children.hold, backend.directory, session_id) as other:
        other.hear()
        with pytest.raises(SessionLocked) as caught:
            append(session, "2")
        assert caught.value.pid == other.pid
        (answer,) = run(children.attempt, backend.directory, session_id)
        assert answer["pid"] == other.pid
        other.ask()
    assert stored(backend, session_id) == ["1"]
    assert litter(backend) == set()


@pytest.mark.parametrize("how", ["opened and closed", "killed", "lock file removed"])
def test_a_claim_that_another_may_have_had_is_lost(
    backend: StateBackend, session_id: str, how: str
) -> None:
    """What it may have changed is not guessed: the session is to be opened anew."""
    session = backend.open(session_id)
    append(session, "1")
    if how == "lock file removed":
        names(session)["claim"].unlink()
    else:
        touch(session, "claim")
    if how == "opened and closed":
        assert run(children.attempt, backend.directory, session_id) == ["opened"]
    if how == "killed":
        with started(children.hold, backend.directory, session_id) as other:
            other.hear()
            other.kill()
    with pytest.raises(StorageError, match="could write it meanwhile"):
        append(session, "2")
    with backend.open(session_id) as again:
        append(again, "2")
    assert stored(backend, session_id) == ["1", "2"]
    assert litter(backend) == set()


def test_closing_leaves_the_wal_of_a_successor(backend: StateBackend, session_id: str) -> None:
    """Another process took over, wrote and was killed: its WAL stays, and no old one comes back."""
    session = open_without_file_locks(backend, session_id)
    append(session, "mine")
    touch(session)
    checkpoint_elsewhere(session)
    with started(children.append_until_killed, backend.directory, session_id) as other:
        while other.hear() < 20:
            pass
        other.kill()
    assert names(session)["wal"].exists()
    session.close()
    assert len(stored(backend, session_id)) >= 21
    with backend.open(session_id) as again:
        append(again)
    assert_whole(session_file(backend, session_id))
    assert litter(backend) == set()


def test_a_closing_session_does_not_take_the_lock_file_of_another(
    backend: StateBackend, session_id: str
) -> None:
    """It lost the claim and never noticed; the other's lock goes on to refuse a third."""
    session = backend.open(session_id)
    touch(session, "claim")
    with started(children.hold, backend.directory, session_id) as other:
        other.hear()
        session.close()
        (answer,) = run(children.attempt, backend.directory, session_id)
    assert answer["pid"] == other.pid


def test_opening_beside_a_view_that_stays_leaves_no_descriptors(
    backend: StateBackend, session_id: str
) -> None:
    """SQLite keeps one descriptor while the view is open; each next writer uses it again."""
    folder = Path("/proc/self/fd") if Path("/proc/self/fd").is_dir() else Path("/dev/fd")
    with backend.read(session_id):
        counts = []
        for number in range(5):
            with backend.open(session_id) as session:
                append(session, str(number))
            counts.append(len(list(folder.iterdir())))
    assert counts[2:] == counts[1:2] * 3
    assert stored(backend, session_id) == list("01234")
    assert litter(backend) == set()


def test_a_closed_session_is_on_no_wal(backend: StateBackend, session_id: str) -> None:
    """Its descriptors are closed with it."""
    with backend.open(session_id) as session:
        locks = session._held._locks
        assert locks is not None
        assert locks.in_use()
    assert not locks.in_use()


def touch_closed(session: Session) -> None:
    """Read the files of a session that only a view has open still."""
    touch(session, "file", "wal", "shm")


def append_elsewhere(backend: StateBackend, session_id: str) -> None:
    """Let another process append 20 events, or a few more, and kill it."""
    with started(children.append_until_killed, backend.directory, session_id) as other:
        while other.hear() < 20:
            pass
        other.kill()


@linux_only
@pytest.mark.parametrize("how", ["view", "orm", "two views"])
def test_no_other_program_removes_the_wal_of_a_view(
    backend: StateBackend, session_id: str, how: str
) -> None:
    """Else a writer beside the view would write where nobody looks."""
    with ExitStack() as stack:
        view = stack.enter_context(backend.read(session_id))
        if how == "orm":
            stack.enter_context(view.orm())
            view.close()
        elif how == "two views":
            backend.read(session_id).close()
        with backend.open(session_id) as session:
            append(session, "first")
        touch_closed(session)
        checkpoint_elsewhere(session)
        assert names(session)["wal"].exists()
        append_elsewhere(backend, session_id)
        with backend.open(session_id) as session:
            append(session, "last")
        (seen,) = run(children.open_and_close_bare, session.path)
    ids = stored(backend, session_id)
    assert len(ids) == seen >= 22
    assert (ids[0], ids[-1]) == ("first", "last")
    assert_whole(session.path)
    assert litter(backend) == set()


@pytest.mark.parametrize("written", [False, True])
def test_a_wal_that_was_removed_under_a_view_is_noticed(
    backend: StateBackend, session_id: str, monkeypatch: pytest.MonkeyPatch, *, written: bool
) -> None:
    """Old rows are never shown as new, and nothing is written where nobody looks."""
    without_file_locks(monkeypatch)
    view = backend.read(session_id)
    with backend.open(session_id) as session:
        append(session, "first")
    touch_closed(session)
    checkpoint_elsewhere(session)
    assert not names(session)["wal"].exists()
    if written:
        append_elsewhere(backend, session_id)
    with pytest.raises(StorageError, match=r"removed by another program.*open it again"):
        list(view.events())
    for opening in (backend.open, backend.read):
        with pytest.raises(StorageError, match=r"removed its WAL.*close the views and sessions"):
            opening(session_id)
    monkeypatch.undo()
    view.close()
    with backend.open(session_id) as again:
        append(again, "last")
    there = stored(backend, session_id)
    assert (there[0], there[-1]) == ("first", "last")
    assert (len(there) >= 22) is written, there
    assert_whole(session.path)
    assert litter(backend) == set()
