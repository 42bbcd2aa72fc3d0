"""SQLite's POSIX locks of the writing process survive whatever else that process does.

Such a lock is lost when the process closes *any* descriptor of the file. A writer that lost its
locks loses commits as soon as another process opens and closes the file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from statebackend import Session, SessionExists, SessionLocked, StateBackend
from statebackend.cli import sessions
from tests.crash import children
from tests.crash.processes import run
from tests.crash.samples import append, assert_whole, session_file

pytestmark = [
    pytest.mark.crash,
    pytest.mark.conformance("SB-05", "SB-08"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads the locks from /proc/locks"),
]


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateBackend:
    """Return the store that the command line uses as well."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return StateBackend()


def locks(path: Path) -> set[tuple[str, ...]]:
    """Return the locks that this process holds on a file: kind and range of bytes."""
    inode, pid = str(path.stat().st_ino), str(os.getpid())
    lines = Path("/proc/locks").read_text().splitlines()
    fields = [line.split() for line in lines if "->" not in line]
    return {
        (kind, first, last)
        for _number, _posix, _advisory, kind, owner, place, first, last in fields
        if owner == pid and place.rpartition(":")[2] == inode
    }


def command_line(*arguments: str) -> None:
    """Run the command line in this process."""
    result = CliRunner().invoke(sessions, arguments, prog_name="statebackend")
    assert result.exit_code in {0, 1}, result.output


def read_all(backend: StateBackend, session: Session) -> None:
    """Open a view beside the session, read everything, close it."""
    with backend.read(session.session_id) as view:
        list(view.events())
        list(view.costs())
        with view.orm():
            pass


def be_refused(backend: StateBackend, session: Session) -> None:
    """Try to open and to create the session once more."""
    with pytest.raises(SessionLocked):
        backend.open(session.session_id)
    with pytest.raises((SessionLocked, SessionExists)):
        backend.create("default", session_id=session.session_id)


def copy(backend: StateBackend, session: Session) -> None:
    """Copy the session beside itself, twice, the second copy over a taken name."""
    target = backend.directory.parent / "copy.sqlite"
    backend.copy(session.session_id, target)
    target.unlink()


TOUCHES: dict[str, Callable[[StateBackend, Session], object]] = {
    "list": lambda backend, _: backend.list(),
    "scan": lambda backend, _: list(backend.scan()),
    "tree": lambda backend, session: backend.tree(session.session_id),
    "cost": lambda backend, session: backend.cost(session.session_id, tree=True),
    "cost_by": lambda backend, _: backend.cost_by("day"),
    "plan_rules": lambda backend, _: backend.plan_rules(),
    "producers": lambda backend, _: backend.referenced_producers(),
    "stale": lambda backend, _: backend.stale(),
    "copy": copy,
    "read": read_all,
    "second writer": be_refused,
    "info": lambda _, session: session.info,
    "own events": lambda _, session: list(session.events()),
    "doctor": lambda *_: command_line("doctor"),
    "list command": lambda *_: command_line("list"),
    "show command": lambda _, session: command_line("show", session.session_id),
    "tree command": lambda *_: command_line("tree"),
    "cost command": lambda _, session: command_line("cost", session.session_id),
    "replay command": lambda _, session: command_line("replay", session.session_id),
    "producers command": lambda _, session: command_line("producers", session.session_id),
}


@pytest.mark.parametrize("name", TOUCHES)
def test_locks_of_the_writer_are_kept(backend: StateBackend, name: str) -> None:
    """The file, its `-shm` and the lock file are locked afterwards as they were before."""
    with backend.create("default") as session:
        append(session)
        path = session_file(backend, session.session_id)
        locked = [
            path,
            path.with_name(path.name + "-shm"),
            backend.directory / ".locks" / f"{session.session_id}.lock",
        ]
        session.counts()  # so that its own reading connection is there
        before = [locks(one) for one in locked]
        assert all(before)
        TOUCHES[name](backend, session)
        assert [locks(one) for one in locked] == before


def test_locks_of_a_reader_are_kept(backend: StateBackend) -> None:
    """A view keeps its locks while this process opens, writes and closes the same session."""
    with backend.create("default") as session:
        append(session)
    path = session_file(backend, session.session_id)
    with backend.read(session.session_id) as view:
        assert view.counts().events == 1
        before = locks(path)
        assert before
        for touch in TOUCHES.values():
            with backend.open(session.session_id) as session:
                touch(backend, session)
            touch_closed(backend, session.session_id)
            assert locks(path) >= before


def touch_closed(backend: StateBackend, session_id: str) -> None:
    """Use what reads, on a session without a writer."""
    backend.list()
    backend.tree(session_id)
    backend.read(session_id).close()


def test_locks_of_an_orm_session_outlive_its_view(backend: StateBackend) -> None:
    """The connection of ``orm()`` counts as well, also after the handle that gave it is closed."""
    with backend.create("default") as session:
        append(session)
    path = session_file(backend, session.session_id)
    view = backend.read(session.session_id)
    with view.orm() as orm:
        orm.connection().exec_driver_sql("SELECT count(*) FROM events").all()
        view.close()
        before = locks(path)
        assert before
        touch_closed(backend, session.session_id)
        assert locks(path) == before


def test_write_lock_is_kept_within_a_transaction(backend: StateBackend) -> None:
    """Another process cannot get SQLite's write lock, whatever this process did meanwhile."""
    with backend.create("default") as session:
        append(session)
        session._held.driver.execute("BEGIN IMMEDIATE")
        for name in ("list", "scan", "tree", "cost", "copy", "read", "second writer", "doctor"):
            TOUCHES[name](backend, session)
        path = session_file(backend, session.session_id)
        assert run(children.try_write_lock, path) == ["SQLITE_BUSY"]
        session._held.driver.execute("ROLLBACK")
        (answer,) = run(children.attempt, backend.directory, session.session_id)
        assert answer["pid"] == os.getpid()


def test_no_commit_is_lost_to_another_process_that_opens_and_closes(
    backend: StateBackend,
) -> None:
    """The whole chain: touch, a foreign open and close, append, foreign again; all is there."""
    with backend.create("default") as session:
        path = session_file(backend, session.session_id)
        for count, touch in enumerate(TOUCHES.values()):
            append(session)
            touch(backend, session)
            assert run(children.open_and_close_bare, path) == [count + 1]
            assert Path(f"{path}-wal").exists()
        append(session)
        assert run(children.open_and_close_bare, path) == [len(TOUCHES) + 1]
    assert_whole(path)
