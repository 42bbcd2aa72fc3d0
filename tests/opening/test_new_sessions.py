"""Creating sessions: whole or not at all, private, where the standard says, never over another."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from statebackend import SessionExists, SessionUnreadable, StateBackend
from tests.session_files import (
    UNKNOWN_ID,
    call,
    fill,
    full,
    killed_writer,
    listing,
    modes,
    new,
    path_of,
    run_python,
    snapshot,
)

_KILLED_AT_EVERY_STEP = """
    import os, signal, sys
    from statebackend import BadSession, StateBackend
    from tests.session_files import UNKNOWN_ID, new

    backend = StateBackend(sys.argv[1])
    new(backend)  # everything is imported and cached now

    def create_and_die(step):
        def count(frame, event, argument):
            nonlocal step
            if event != "c_call":
                return
            module = getattr(argument, "__module__", None) or type(argument.__self__).__module__
            if module in ("posix", "fcntl", "sqlite3", "_io"):
                step -= 1
                if step == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.setprofile(count)
        session = backend.create("default", session_id=UNKNOWN_ID)
        os._exit(0)

    step, kept = 0, 0
    while True:
        step += 1
        child = os.fork()
        if not child:
            create_and_die(step)
        _, status = os.waitpid(child, 0)
        found = [one for one in backend.list() if one.session_id == UNKNOWN_ID]
        assert not [one for one in found if isinstance(one, BadSession)], (step, found)
        if found:
            kept += 1
            with backend.open(UNKNOWN_ID) as session:
                assert session.counts().events == 0, step
            for name in os.listdir(backend.directory):
                if name.startswith(UNKNOWN_ID):
                    os.unlink(os.path.join(backend.directory, name))
        else:
            backend.create("default", session_id=UNKNOWN_ID).close()
            os.unlink(os.path.join(backend.directory, UNKNOWN_ID + ".sqlite"))
        left = [name for name in os.listdir(backend.directory) if name.startswith(UNKNOWN_ID)]
        assert not left, (step, left)
        if status == 0:
            break
    print(step, kept)
"""


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Take no permission away from new files, as a careless shell might have it."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.crash
def test_killed_at_any_step_a_session_is_or_is_not(backend: StateBackend) -> None:
    """After a kill before any call to the system or SQLite, the id is free or a session's."""
    told = run_python(_KILLED_AT_EVERY_STEP, backend.directory, check=False)
    steps, kept = map(int, told.split())
    assert steps > kept > 1


def test_an_id_is_created_once(backend: StateBackend) -> None:
    """A second create of one id is refused, and no file of the folder changes for it."""
    session_id = full(backend)
    (backend.directory / "notes.txt").write_text("beside it")
    before = snapshot(backend.directory)
    with pytest.raises(SessionExists) as caught:
        backend.create("other", session_id=session_id)
    assert caught.value.path == path_of(backend, session_id)
    after = snapshot(backend.directory)
    for folder in (str(backend.directory), str(backend.directory / ".locks")):
        del before[folder], after[folder]  # the claim came and went
    assert after == before


@pytest.mark.parametrize("ending", [".corrupt", "-wal", "-journal"])
def test_what_is_left_of_a_session_keeps_its_id(backend: StateBackend, ending: str) -> None:
    """An id of which only a damaged original or a log is left is taken, and is no empty session."""
    path = path_of(backend, killed_writer(backend))
    kept = path.with_name(path.name + "-wal").read_bytes()
    for name in listing(backend.directory):
        if name.startswith(path.stem):
            (backend.directory / name).unlink()
    left = path.with_name(path.name + ending)
    left.write_bytes(kept)
    with pytest.raises(SessionExists):
        backend.create("default", session_id=path.stem)
    for method in (backend.open, backend.read):
        with pytest.raises(SessionUnreadable):
            method(path.stem)
    assert left.read_bytes() == kept
    assert not path.exists()


def test_a_dangling_link_is_not_followed(backend: StateBackend, tmp_path: Path) -> None:
    """A link of a session's name is refused by create, open and read; its target is not made."""
    backend.directory.mkdir()
    path_of(backend, UNKNOWN_ID).symlink_to(tmp_path / "target")
    with pytest.raises(SessionExists):
        backend.create("default", session_id=UNKNOWN_ID)
    for method in (backend.open, backend.read):
        with pytest.raises(SessionUnreadable):
            method(UNKNOWN_ID)
    assert not (tmp_path / "target").exists()


def test_what_a_killed_create_left_is_cleared_away(backend: StateBackend) -> None:
    """A half-built file of an earlier create is in nobody's way."""
    backend.directory.mkdir()
    path_of(backend, UNKNOWN_ID).with_suffix(".sqlite.creating").write_bytes(b"half")
    assert backend.list() == []
    new(backend, session_id=UNKNOWN_ID)
    assert listing(backend.directory) == [".locks", f"{UNKNOWN_ID}.sqlite"]


def test_everything_is_for_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_umask: None
) -> None:
    """Under umask 000, folders are 0700 and files 0600: sidecars, lock files and copies too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    backend = StateBackend()
    (tmp_path / "export").mkdir(mode=0o755)
    with backend.create("default") as session:
        fill(session)
        with backend.read(session.session_id), session.orm():
            found = modes(tmp_path / "state")
        backend.copy(session.session_id, tmp_path / "export")
    names = {name.partition(".")[2] for name in found if name.startswith(session.session_id)}
    assert names == {"sqlite", "sqlite-wal", "sqlite-shm", "lock"}
    folders = {"state", "agent", "sessions", ".locks"}
    assert {name: mode for name, mode in found.items() if name in folders} == dict.fromkeys(
        folders, 0o700
    )
    assert {mode for name, mode in found.items() if name not in folders} == {0o600}
    assert modes(tmp_path / "export") == {"export": 0o755, f"{session.session_id}.sqlite": 0o600}


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    """What somebody else made is not changed."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o750)
    new(StateBackend(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750


@pytest.mark.parametrize("value", ["{}", "{}/", "{}/with a space", "{}/%41?#", "{}/ünïcode"])
def test_odd_state_folders_are_honoured(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trailing slash, spaces and characters that mean something in a URL are just names."""
    monkeypatch.setenv("XDG_STATE_HOME", value.format(tmp_path))
    backend = StateBackend()
    with backend.open(full(backend)) as session:
        session.set_status("running")
        call(session)
        with session.orm():
            pass
    with backend.read(session.session_id) as view:
        assert view.counts().events == 6
    (listed,) = backend.list()
    assert listed.session_id == session.session_id
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [Path(value.format(tmp_path)) / "agent" / "sessions" / session.path.name]


def test_a_change_of_directory_does_not_move_the_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After chdir, an open session still writes, and reads, its own file."""
    monkeypatch.chdir(tmp_path)
    with StateBackend("relative").create("default") as session:
        call(session)
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        call(session)
        assert session.counts().events == 2
        with session.orm():
            pass
    assert listing(tmp_path / "other") == []
    monkeypatch.chdir(tmp_path)
    with StateBackend("relative").open(session.session_id) as again:
        assert again.counts().events == 2
