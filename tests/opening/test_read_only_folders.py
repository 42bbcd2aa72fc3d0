"""Folders that may not be written: a session is read from them, and nothing is changed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statebackend import StateBackend, StorageBusy
from statebackend.sqlite.read_mode import IMMUTABLE, checked_read_mode
from tests.crash import rights
from tests.crash.kernel import needs_root, small_disk
from tests.crash.processes import run
from tests.session_files import (
    call,
    damage_page,
    full,
    killed_writer,
    modes,
    new,
    path_of,
    snapshot,
)

pytestmark = [pytest.mark.crash, pytest.mark.conformance("SB-38")]

READABLE = {"list": "SessionInfo", "read": 5, "partial": 5, "copy": 1}
REFUSED = {"open": "StorageError named", "create": "StorageError named"}
NO_SHM = {
    "list": "BadSession",
    **dict.fromkeys(("read", "partial", "copy"), "StorageError named"),
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that every user can reach, as those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        (folder / "sessions").chmod(0o755)


def closed(backend: StateBackend) -> str:
    """Make a session that nobody has open."""
    return full(backend)


def with_a_wal(backend: StateBackend) -> str:
    """Make one all of whose events are in the WAL of a killed writer."""
    return killed_writer(backend)


def without_the_shm(backend: StateBackend) -> str:
    """Make one with a WAL but without a shm, as after a restore from an archive."""
    session_id = killed_writer(backend)
    Path(f"{path_of(backend, session_id)}-shm").unlink()
    return session_id


MAKERS = pytest.mark.parametrize(
    ("make", "answers"),
    [(closed, READABLE), (with_a_wal, READABLE), (without_the_shm, NO_SHM)],
)


@MAKERS
def test_a_folder_of_another_user_is_read(
    open_folder: Path, make: Callable[[StateBackend], str], answers: dict[str, object]
) -> None:
    """Every event is shown or none; writing is refused; nothing is changed."""
    backend = StateBackend(open_folder / "sessions")
    session_id = make(backend)
    for path in (backend.directory, *backend.directory.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = snapshot(backend.directory)
    (said,) = run(rights.use_as_nobody, backend.directory, session_id)
    assert said == answers | REFUSED
    assert snapshot(backend.directory) == before


@needs_root
@MAKERS
def test_a_read_only_mount_is_read(
    tmp_path: Path, make: Callable[[StateBackend], str], answers: dict[str, object]
) -> None:
    """The same where the kernel refuses every change; after a remount it is written again."""
    disk = tmp_path / "disk"
    with small_disk(disk, 4096):
        backend = StateBackend(disk / "sessions")
        session_id = make(backend)
        before = snapshot(backend.directory)
        remount(disk, "ro")
        (said,) = run(rights.use, backend.directory, session_id)
        assert said == answers | REFUSED
        assert snapshot(backend.directory) == before
        remount(disk, "rw")
        with backend.open(session_id) as session:
            if make is not closed:
                assert call(session) == 6
            assert session.recovery is None


@needs_root
def test_reading_what_may_not_be_written_leaves_nothing_that_locks_its_owner_out(
    open_folder: Path,
) -> None:
    """Another user reads a session in a folder that both may write."""
    backend = StateBackend(open_folder / "sessions")
    session_id = full(backend)
    path = path_of(backend, session_id)
    backend.directory.chmod(0o777)
    path.chmod(0o644)
    before = snapshot(backend.directory)
    (said,) = run(rights.use_as_nobody, backend.directory, session_id)
    assert said | REFUSED | {"create": None} == READABLE | REFUSED | {"create": None}
    assert {name for name in snapshot(backend.directory) if path.name in name} == {str(path)}
    assert snapshot(backend.directory)[str(path)] == before[str(path)]


@needs_root
def test_what_lies_beside_a_session_and_may_not_be_written_is_named(open_folder: Path) -> None:
    """An earlier version left such files; SQLite would only speak of a database."""
    backend = StateBackend(open_folder / "sessions")
    session_id = full(backend)
    path = path_of(backend, session_id)
    index = Path(f"{path}-shm")
    index.write_bytes(bytes(32768))
    for one in (backend.directory, *backend.directory.rglob("*")):
        one.chmod(0o777 if one.is_dir() else 0o666)
    index.chmod(0o400)
    (said,) = run(rights.open_as_nobody, backend.directory, session_id)
    assert (
        said
        == f"{index}: cannot be written by this user; change its permissions, or read the session"
    )


def remount(disk: Path, mode: str) -> None:
    """Let a small disk be read-only, or not."""
    subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], check=True)  # noqa: S607


@needs_root
def test_damage_on_a_read_only_mount_is_kept(tmp_path: Path) -> None:
    """It is told as damage to readers; opening says that it cannot write; nothing is renamed."""
    disk = tmp_path / "disk"
    with small_disk(disk, 4096):
        backend = StateBackend(disk / "sessions")
        session_id = full(backend)
        damage_page(path_of(backend, session_id))
        before = snapshot(backend.directory)
        remount(disk, "ro")
        (said,) = run(rights.use, backend.directory, session_id)
        assert said["read"] == "SessionDamaged named"
        assert said["partial"] >= 0
        assert (said["open"], said["create"]) == ("StorageError named", "StorageError named")
        assert snapshot(backend.directory) == before
        remount(disk, "rw")
        with backend.open(session_id) as session:
            assert session.recovery is not None


def test_what_a_recovery_makes_is_for_the_owner_only(backend: StateBackend) -> None:
    """The new file, the report, and the original, under umask 000 as well."""
    before = os.umask(0)
    try:
        session_id = full(backend)
        damage_page(path_of(backend, session_id), "cost_ledger")
        with backend.open(session_id) as session:
            assert session.recovery is not None
            found = modes(backend.directory)
    finally:
        os.umask(before)
    assert {".corrupt", ".json"} <= {Path(name).suffix for name in found}
    folders = {"sessions", ".locks"}
    assert {mode for name, mode in found.items() if name not in folders} == {0o600}
    assert {found[name] for name in folders} == {0o700}


@needs_root
def test_a_file_without_rights_is_no_damage(open_folder: Path) -> None:
    """It is told by name, to readers and writers, and nothing is renamed."""
    backend = StateBackend(open_folder / "sessions")
    session_id = full(backend)
    backend.directory.chmod(0o777)
    (backend.directory / ".locks").chmod(0o777)
    path_of(backend, session_id).chmod(0)
    (said,) = run(rights.use_as_nobody, backend.directory, session_id)
    created = said.pop("create")
    assert created is None
    assert said.pop("list") in {"BadSession", "SessionInfo"}  # the one created is listed as well
    assert set(said.values()) == {"StorageError named"}
    assert not list(backend.directory.glob("*.corrupt*"))


@needs_root
def test_a_user_who_may_start_no_thread_is_told(open_folder: Path) -> None:
    """No append waits for ever, and what was refused is not written later, when one may."""
    backend = StateBackend(open_folder / "sessions")
    session_id = new(backend)
    for path in (backend.directory, *backend.directory.rglob("*")):
        os.chown(path, 65534, 65534)
    ((errors, events),) = run(rights.append_without_threads, backend.directory, session_id)
    assert [error.partition(":")[0] for error in errors] == ["StorageError"] * 3
    assert all("raise the limit of processes" in error for error in errors)
    assert events == ["kept"]


@pytest.fixture
def archived(backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a session file that this user may not write, by the answers of ``os.access``."""
    path = path_of(backend, full(backend))
    access = os.access
    monkeypatch.setattr(os, "access", lambda name, mode: mode != os.W_OK and access(name, mode))
    return path


def test_a_file_that_changes_between_two_reads_is_busy(
    backend: StateBackend, archived: Path
) -> None:
    """A view of it ends; a new one shows what is there now."""
    with backend.read(archived.stem) as view:
        assert view.counts().events == 5
        archived.touch()
        with pytest.raises(StorageBusy) as caught:
            view.counts()
        assert caught.value.path == archived
    with backend.read(archived.stem) as view:
        assert view.counts().events == 5


def test_a_file_that_changes_during_a_read_is_busy(backend: StateBackend, archived: Path) -> None:
    """What was read may be a mix of old and new pages, so it is not returned."""
    with backend.read(archived.stem) as view, pytest.raises(StorageBusy), view.orm() as orm:
        orm.connection()
        Path(f"{archived}-wal").write_bytes(b"a writer has come")


def test_a_file_that_changes_during_a_scan_is_busy(archived: Path) -> None:
    """An error of SQLite from half of a change does not count as damage."""
    with pytest.raises(StorageBusy), checked_read_mode(archived) as parameters:
        assert parameters == IMMUTABLE
        archived.touch()
        raise sqlite3.DatabaseError
