"""Copies of sessions: one whole file, also of a live session, never over another."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from statebackend import InvalidValue, SessionDamaged, SessionNotFound, StateBackend, StorageError
from tests.session_files import (
    UNKNOWN_ID,
    call,
    damage_page,
    fill,
    full,
    killed_writer,
    listing,
    path_of,
    process,
    rows_of,
    snapshot,
    sql,
)

_WRITER = """
    import sys
    from statebackend import StateBackend
    from tests.session_files import call
    session = StateBackend(sys.argv[1]).create("default")
    number = 0
    while True:
        number += 1
        call(session, b"%d" % number, event_id=f"e{number}")
        if number == 20:
            print("ready", flush=True)
"""


def test_copies_of_a_live_session_hold_a_prefix(backend: StateBackend, tmp_path: Path) -> None:
    """Taken while another process appends, each passes the check and has no gap."""
    with process(_WRITER, backend.directory) as writer:
        (session_id,) = backend.ids()
        sizes = []
        for number in range(5):
            folder = tmp_path / f"copy-{number}"
            folder.mkdir()
            path = backend.copy(session_id, folder)
            assert listing(folder) == [path.name]
            with StateBackend(folder).read(session_id) as view:
                ids = [event.id for event in view.events()]
            assert ids == [f"e{one}" for one in range(1, len(ids) + 1)]
            sizes.append(len(ids))
        assert writer.poll() is None
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert sizes == sorted(sizes)
    assert sizes[0] >= 20
    with backend.read(session_id) as view:
        assert view.counts().events >= sizes[-1]


def test_a_copy_is_a_whole_session(backend: StateBackend, tmp_path: Path) -> None:
    """Into a folder under its own name, or to a file of any name; the rows are the same."""
    session_id = full(backend)
    before = path_of(backend, session_id).read_bytes(), listing(backend.directory)
    named = backend.copy(session_id, tmp_path / "backup.db")
    into = backend.copy(session_id, str(tmp_path))
    assert (named, into) == (tmp_path / "backup.db", tmp_path / f"{session_id}.sqlite")
    assert rows_of(named) == rows_of(into) == rows_of(path_of(backend, session_id))
    assert (path_of(backend, session_id).read_bytes(), listing(backend.directory)) == before
    with StateBackend(tmp_path).open(session_id) as session:
        session.set_status("running")


def test_a_copy_takes_the_log_along(backend: StateBackend, tmp_path: Path) -> None:
    """A killed writer's commits are in the copy, in the one file of it."""
    session_id = killed_writer(backend)
    path = backend.copy(session_id, tmp_path)
    assert not path.with_name(path.name + "-wal").exists()
    assert sql(path, "SELECT count(*) FROM events") == [(5,)]


def test_a_copy_never_replaces_a_file(backend: StateBackend, tmp_path: Path) -> None:
    """What is at the path stays, be it a file or a link that leads nowhere."""
    session_id = full(backend)
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    before = snapshot(tmp_path)
    for name in ("taken", "link"):
        with pytest.raises(InvalidValue) as caught:
            backend.copy(session_id, tmp_path / name)
        assert caught.value.field == "path"
    after = snapshot(tmp_path)
    del before[str(tmp_path)], after[str(tmp_path)]
    sessions = str(backend.directory)
    assert {name: one for name, one in after.items() if not name.startswith(sessions)} == {
        name: one for name, one in before.items() if not name.startswith(sessions)
    }


def test_a_copy_that_fails_leaves_nothing(backend: StateBackend, tmp_path: Path) -> None:
    """No session, no folder to put it in, or a damaged source: no file is left half-made."""
    session_id = full(backend)
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(SessionNotFound):
        backend.copy(UNKNOWN_ID, target)
    with pytest.raises(StorageError) as caught:
        backend.copy(session_id, target / "missing" / "copy")
    assert "missing" in str(caught.value)
    damage_page(path_of(backend, session_id))
    with pytest.raises(SessionDamaged):
        backend.copy(session_id, target)
    assert listing(target) == []


def test_a_copy_that_finds_no_room_leaves_nothing(backend: StateBackend, tmp_path: Path) -> None:
    """The error names where the room was missing, and the session goes on being used."""
    with backend.create("default") as session:
        fill(session)
        target = tmp_path / "target"
        target.mkdir()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
        try:
            with pytest.raises(StorageError):
                backend.copy(session.session_id, target)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert listing(target) == []
        assert call(session) == 6
