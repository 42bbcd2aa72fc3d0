"""A program that reads the files of its own open session, and so drops the kernel's locks on them.

Each such read is a real one here, and the other programs are real processes.
"""

from __future__ import annotations

import fcntl
import shutil
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
        "log": Path(f"{path}-wal"),
        "index": Path(f"{path}-shm"),
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
    "index": lambda session: touch(session, "index"),
    "claim": lambda session: touch(session, "claim"),
    "all": touch,
    "copy of the folder": copy_folder,
}


def stored(backend: StateBackend, session_id: str) -> list[str]:
    """Return the ids of a session's events."""
    with backend.read(session_id) as view:
        return [event.id for event in view.events()]


def fold_log_in(session: Session) -> None:
    """Open the file in another process as a foreign program, which at its end tidies the log."""
    run(children.open_and_close_bare, session.path)


def not_backed(backend: StateBackend, session_id: str) -> Session:
    """Open a session whose locks nothing backs, as where a file system has no others."""
    session = backend.open(session_id)
    sqlite_locks._set(session._locks._database, fcntl.F_UNLCK, sqlite_locks._SHARED)
    sqlite_locks._set(session._locks._index, fcntl.F_UNLCK, sqlite_locks._INDEX_IN_USE)
    session._locks.backed = False
    return session


BACKINGS = [
    pytest.param(
        True,
        id="backed",
        marks=pytest.mark.skipif(
            not hasattr(fcntl, "F_OFD_SETLK"), reason="this system has no locks of an open file"
        ),
    ),
    pytest.param(False, id="not backed"),
]


@pytest.fixture
def session_id(backend: StateBackend) -> str:
    """Return a closed session without events."""
    return new_session(backend)


@pytest.mark.parametrize("how", TOUCHES)
@pytest.mark.parametrize("change", ["append", "status"])
@pytest.mark.parametrize("backed", BACKINGS)
def test_the_next_commit_takes_the_locks_anew(
    backend: StateBackend,
    session_id: str,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    change: str,
    *,
    backed: bool,
) -> None:
    """Then a second writer is refused again, and no other program takes the log away."""
    if not backed:
        monkeypatch.delattr(fcntl, "F_OFD_SETLK", raising=False)
    with backend.open(session_id) as session:
        append(session, "1")
        TOUCHES[how](session)
        if change == "status":
            session.set_status("completed")
            session.set_status("running")
        else:
            append(session, "2")
        (answer,) = run(children.attempt, backend.directory, session_id)
        fold_log_in(session)
        assert names(session)["log"].exists()
        append(session, "3")
    assert answer != "opened"
    assert stored(backend, session_id) == ["1", *(["2"] if change == "append" else []), "3"]
    assert_whole(session_file(backend, session_id))
    assert litter(backend) == set()


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="no locks of an open file here")
@pytest.mark.parametrize("how", TOUCHES)
def test_no_other_program_ever_takes_the_log_away(
    backend: StateBackend, session_id: str, how: str
) -> None:
    """A lock of the open file outlives the reading, also before the next commit."""
    with backend.open(session_id) as session:
        append(session, "1")
        TOUCHES[how](session)
        fold_log_in(session)
        assert names(session)["log"].exists()
        append(session, "2")
    assert stored(backend, session_id) == ["1", "2"]
    assert_whole(session_file(backend, session_id))
    assert litter(backend) == set()


@pytest.mark.parametrize("change", ["append", "status"])
@pytest.mark.parametrize("how", ["all", "copy of the folder"])
def test_nothing_is_written_into_a_log_that_was_taken_away(
    backend: StateBackend, session_id: str, how: str, change: str
) -> None:
    """Refused before anything is written; the session opens again and has all of before."""
    session = not_backed(backend, session_id)
    append(session, "1")
    TOUCHES[how](session)
    fold_log_in(session)
    assert not names(session)["log"].exists()  # this is what happens to a program's own SQLite
    with pytest.raises(StorageError, match="took its log away"):
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
def test_a_commit_into_a_log_that_is_taken_away_meanwhile_is_not_acknowledged(
    backend: StateBackend, session_id: str, change: str
) -> None:
    """Its outcome is unknown; a retry with the same id tells, or writes it."""
    session = not_backed(backend, session_id)
    append(session, "1")
    done: list[str] = []

    def take_away(statement: str) -> None:
        if statement.startswith("COMMIT") and not done:
            done.append(statement)
            touch(session)
            fold_log_in(session)

    session._driver.set_trace_callback(take_away)
    with pytest.raises(OutcomeUnknown, match="during the commit"):
        append(session, "2") if change == "append" else session.set_status("completed")
    assert done
    with backend.open(session_id) as again:
        assert again.info.status == "running"
        append(again, "2")
    assert stored(backend, session_id) == ["1", "2"]
    assert_whole(session_file(backend, session_id))


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
@pytest.mark.parametrize("change", ["append", "status"])
def test_a_log_or_index_that_was_removed_by_hand_is_noticed(
    backend: StateBackend, session_id: str, ending: str, change: str
) -> None:
    """Nobody would find what is committed there; what the file has is what is left."""
    session = backend.open(session_id)
    append(session, "1")
    Path(f"{session.path}{ending}").unlink()
    with pytest.raises(OutcomeUnknown, match="during the commit"):
        append(session, "2") if change == "append" else session.set_status("completed")
    with pytest.raises(SessionClosed):
        append(session, "3")


def test_a_writer_that_lost_its_claim_yields(backend: StateBackend, session_id: str) -> None:
    """It is told who writes now, and leaves that one's lock and log alone."""
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


def test_closing_leaves_the_log_of_a_successor(backend: StateBackend, session_id: str) -> None:
    """Another process took over, wrote, and was killed: what it left is not tidied away."""
    session = not_backed(backend, session_id)
    append(session, "mine")
    touch(session)
    fold_log_in(session)
    with started(children.append_until_killed, backend.directory, session_id) as other:
        while other.hear() < 20:
            pass
        other.kill()
    assert names(session)["log"].exists()
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


def test_a_log_that_is_just_being_taken_away_is_not_written(
    backend: StateBackend, session_id: str
) -> None:
    """Another program has the file to itself, as one that folds the log in at its end."""
    session = not_backed(backend, session_id)
    append(session, "1")
    touch(session, "file")
    with started(children.lock_bare, session.path) as other:
        other.hear()
        with pytest.raises(StorageError, match="took its log away"):
            append(session, "2")
    with backend.open(session_id) as again:
        append(again, "2")
    assert stored(backend, session_id) == ["1", "2"]
    assert_whole(session_file(backend, session_id))


def test_opening_beside_a_view_that_stays_leaves_no_descriptors(
    backend: StateBackend, session_id: str
) -> None:
    """They may not be closed while the view is open, so each next writer uses them again."""
    folder = Path("/proc/self/fd") if Path("/proc/self/fd").is_dir() else Path("/dev/fd")
    with backend.read(session_id):
        counts = []
        for number in range(5):
            with backend.open(session_id) as session:
                append(session, str(number))
                touch(session)
                fold_log_in(session)
                assert names(session)["log"].exists()
            counts.append(len(list(folder.iterdir())))
    assert counts[2:] == counts[1:2] * 3  # the second is the first that finds a log beside the file
    assert stored(backend, session_id) == list("01234")
    assert litter(backend) == set()


def test_a_closed_session_has_no_locks(backend: StateBackend, session_id: str) -> None:
    """Asked by what a signal handler interrupted when it closed the session."""
    with backend.open(session_id) as session:
        held = session._locks
        assert (held.in_use(), held.keep()) == (True, True)
    assert (held.in_use(), held.keep()) == (False, False)


def touch_closed(session: Session) -> None:
    """Read the files of a session that only a view has open still."""
    touch(session, "file", "log", "index")


def append_elsewhere(backend: StateBackend, session_id: str) -> None:
    """Let another process append 20 events, or a few more, and kill it."""
    with started(children.append_until_killed, backend.directory, session_id) as other:
        while other.hear() < 20:
            pass
        other.kill()


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="no locks of an open file here")
@pytest.mark.parametrize("how", ["view", "orm", "two views"])
def test_no_other_program_takes_the_log_of_a_view_away(
    backend: StateBackend, session_id: str, how: str
) -> None:
    """Else a writer beside the view would write where nobody looks, and lose what it tells."""
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
        fold_log_in(session)
        assert names(session)["log"].exists()
        append_elsewhere(backend, session_id)
        with backend.open(session_id) as session:
            append(session, "last")
        (seen,) = run(children.open_and_close_bare, session.path)
    there = stored(backend, session_id)
    assert len(there) == seen >= 22
    assert (there[0], there[-1]) == ("first", "last")
    assert_whole(session.path)
    assert litter(backend) == set()


@pytest.mark.parametrize("written", [False, True])
def test_a_log_that_was_taken_away_under_a_view_is_noticed(
    backend: StateBackend, session_id: str, monkeypatch: pytest.MonkeyPatch, *, written: bool
) -> None:
    """Nothing old is shown as new, and nothing is written where nobody looks."""
    monkeypatch.delattr(fcntl, "F_OFD_SETLK", raising=False)
    view = backend.read(session_id)
    with backend.open(session_id) as session:
        append(session, "first")
    touch_closed(session)
    fold_log_in(session)
    assert not names(session)["log"].exists()
    if written:
        append_elsewhere(backend, session_id)
    with pytest.raises(StorageError, match=r"taken away by another program.*close this view"):
        list(view.events())
    for opening in (backend.open, backend.read):
        with pytest.raises(StorageError, match=r"took its log away.*close the views and sessions"):
            opening(session_id)
    view.close()
    with backend.open(session_id) as again:
        append(again, "last")
    there = stored(backend, session_id)
    assert (there[0], there[-1]) == ("first", "last")
    assert (len(there) >= 22) is written, there
    assert_whole(session.path)
    assert litter(backend) == set()
