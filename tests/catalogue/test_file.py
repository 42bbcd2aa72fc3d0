"""The catalogue's file: rebuilt if it cannot be used, and optional where it cannot be created."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from statebackend import StateBackend, StorageBusy, StorageError
from statebackend.bulk import cross_session
from statebackend.catalogue import Catalogue, file
from statebackend.catalogue.schema import APPLICATION_ID, NUMBER
from statebackend.catalogue.state import state_of
from tests.answers import differences
from tests.crash.kernel import file_size_limit
from tests.damage.bases import files_of, put
from tests.session_files import call, damage_page, full, listing, new, path_of, run_python, sql


@pytest.fixture
def catalogue(backend: StateBackend) -> Catalogue:
    """Return the filled catalogue of a folder with two sessions."""
    full(backend)
    new(backend, events=2)
    made = Catalogue(backend.directory)
    made.refresh()
    return made


def entries(catalogue: Catalogue) -> int:
    """Count the sessions in the file."""
    ((count,),) = sql(catalogue.path, "SELECT count(*) FROM sessions")
    return int(count)


def of_another_folder(path: Path) -> None:
    """Store another folder's path in it, as if two paths had the same digest."""
    sql(path, "UPDATE folder SET directory = x'2f746d70'")


def cut_within(path: Path) -> None:
    """Truncate the file within a page, and remove its WAL."""
    sql(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes()[:-1000])


SPOILERS: dict[str, Callable[[Path], object]] = {
    "an older schema": lambda path: sql(path, "PRAGMA user_version = 1"),
    "a newer schema": lambda path: sql(path, f"PRAGMA user_version = {NUMBER + 1}"),
    "something else": lambda path: sql(path, "PRAGMA application_id = 5"),
    "another folder's": of_another_folder,
    "no database": lambda path: path.write_bytes(b"noise " * 1000),
    "an empty file": lambda path: path.write_bytes(b""),
    "a cut one": cut_within,
    "no folder": lambda path: sql(path, "DROP TABLE folder"),
}


@pytest.mark.parametrize("name", SPOILERS)
def test_an_unusable_file_is_rebuilt(
    backend: StateBackend, catalogue: Catalogue, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """It is never migrated and never an error; a warning is logged."""
    SPOILERS[name](catalogue.path)
    with caplog.at_level(logging.WARNING, "statebackend"):
        assert not differences(backend, [*backend.ids()])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "rebuilding it" in caplog.text
    assert entries(catalogue) == 2
    assert state_of(backend.directory).schema == NUMBER


def test_damage_found_during_a_question_is_repaired(
    backend: StateBackend, catalogue: Catalogue, caplog: pytest.LogCaptureFixture
) -> None:
    """The catalogue is rebuilt, and the question asked again."""
    sql(catalogue.path, "PRAGMA wal_checkpoint(TRUNCATE)")
    damage_page(catalogue.path, "plan_rules")
    rules = backend.plan_rules()
    assert rules == StateBackend(backend.directory, catalogue=False).plan_rules()
    assert "the catalogue is damaged" in caplog.text


def test_a_missing_file_is_created_without_a_warning(
    backend: StateBackend, catalogue: Catalogue, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleting it is allowed."""
    catalogue.path.unlink()
    catalogue.refresh()
    assert entries(catalogue) == 2
    assert not caplog.records


def test_small_folders_have_no_catalogue(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is created for a folder with many sessions, but not to list the newest."""
    full(backend)
    catalogue = Catalogue(backend.directory)
    backend.tree()
    assert not catalogue.is_there()
    monkeypatch.setattr(cross_session, "CATALOGUE_FROM", 1)
    backend.list()
    list(backend.scan())
    StateBackend(backend.directory, catalogue=False).tree()
    assert not catalogue.is_there()
    backend.tree()
    assert catalogue.is_there()


def test_without_a_writable_cache_files_are_read(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The answers are the same; using the catalogue itself raises an error."""
    full(backend)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cross_session, "CATALOGUE_FROM", 1)
    assert not differences(backend, [*backend.ids()], usable=False)
    with pytest.raises(StorageError):
        Catalogue(backend.directory).refresh()


@pytest.mark.parametrize("linked", [False, True])
def test_it_is_never_among_the_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    """If the cache folder is the sessions' folder, directly or by a link, there is no catalogue."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    backend = StateBackend(tmp_path / ("sessions" if linked else "agent"))
    full(backend)
    if linked:
        (tmp_path / "agent").symlink_to(tmp_path / "sessions")
    before = listing(backend.directory)
    with pytest.raises(StorageError, match="among the sessions"):
        Catalogue(backend.directory).refresh()
    monkeypatch.setattr(cross_session, "CATALOGUE_FROM", 1)
    assert not differences(backend, [*backend.ids()], usable=False)
    assert listing(backend.directory) == before


def test_a_symbolic_link_is_not_followed(backend: StateBackend, tmp_path: Path) -> None:
    """It may lead to a session, whose WAL would be checkpointed; it is reported, then replaced."""
    with StateBackend(tmp_path / "made").create("default") as session:
        call(session)
        files = files_of(session.path)
    target = tmp_path / "target.sqlite"
    put(files, target)
    catalogue = Catalogue(backend.directory)
    catalogue.path.parent.mkdir(parents=True, exist_ok=True)
    catalogue.path.symlink_to(target)
    assert state_of(backend.directory).problem == "is a symbolic link"
    catalogue.refresh()
    assert not catalogue.path.is_symlink()
    assert files_of(target) == files


_FULL = """
    import resource, sys
    from statebackend import StateBackend
    from statebackend.bulk import cross_session
    cross_session.CATALOGUE_FROM = 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    backend = StateBackend(sys.argv[1])
    scanning = StateBackend(sys.argv[1], catalogue=False)
    for _ in range(3):
        assert backend.tree() == scanning.tree()
        assert backend.plan_rules() == scanning.plan_rules()
"""


def test_a_full_disk_means_a_scan(backend: StateBackend) -> None:
    """However much of the catalogue could be written."""
    for _ in range(30):
        full(backend)
    run_python(_FULL, backend.directory)
    assert not differences(backend, [*backend.ids()][:1])


@pytest.mark.parametrize("room", [0, 100, 4096, 8192, 20_000, 45_000])
def test_a_file_that_does_not_fit_is_removed(backend: StateBackend, room: int) -> None:
    """A failed creation leaves nothing on the full disk; with room, it succeeds."""
    full(backend)
    path = Catalogue(backend.directory).path
    with file_size_limit(room), pytest.raises(StorageError):
        Catalogue(backend.directory).refresh()
    assert list(path.parent.glob(f"{path.name}*")) == []
    Catalogue(backend.directory).refresh()
    assert list(path.parent.glob(f"{path.name}*")) == [path]


def test_waiting_for_a_builder_has_a_limit(
    backend: StateBackend, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the building process stops halfway, the others read the files."""
    catalogue.path.unlink()
    monkeypatch.setattr(file, "_BUILDING_TIMEOUT_S", 0.05)
    with file._lock_building(catalogue.path, backend.directory):
        with pytest.raises(StorageBusy):
            catalogue.refresh()
        monkeypatch.setattr(cross_session, "CATALOGUE_FROM", 1)
        assert not differences(backend, [*backend.ids()][:1], usable=False)


def test_waiting_for_a_writer_has_a_limit(
    backend: StateBackend, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a process holds the write lock for long, the others read the files."""
    monkeypatch.setattr(file, "_BUSY_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(catalogue.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        full(backend)
        assert not differences(backend, [*backend.ids()][:1], usable=False)
        assert entries(catalogue) == 2


_REFRESHING = """
    import sys
    from pathlib import Path
    from statebackend.catalogue import Catalogue
    catalogue = Catalogue(Path(sys.argv[1]))
    print("ready", flush=True)
    while True:
        catalogue.rebuild()
"""


@pytest.mark.crash
def test_a_process_may_be_killed_at_any_moment(backend: StateBackend, tmp_path: Path) -> None:
    """The next process finds a usable catalogue, or builds one."""
    for _ in range(12):
        new(backend, events=1)
    time.sleep(0.11)
    for number in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_REFRESHING), backend.directory],
            env={name: value for name, value in os.environ.items() if "COVERAGE" not in name},
            stdout=subprocess.PIPE,
        ) as running:
            assert running.stdout is not None
            running.stdout.readline()
            time.sleep(0.013 * number)
            running.send_signal(signal.SIGKILL)
        assert not differences(backend, [*backend.ids()][:1])
    Catalogue(backend.directory).refresh()
    assert sql(Catalogue(backend.directory).path, "PRAGMA integrity_check") == [("ok",)]


def test_threads_and_processes_may_refresh_at_once(backend: StateBackend) -> None:
    """Also beside a writer, and while it is rebuilt now and then: every answer is right."""
    for _ in range(5):
        full(backend)
    catalogue = Catalogue(backend.directory)
    catalogue.refresh()
    scanning = StateBackend(backend.directory, catalogue=False)
    expected = scanning.plan_rules()
    code = """
        import sys
        from statebackend import StateBackend
        backend = StateBackend(sys.argv[1])
        for _ in range(30):
            assert len(backend.tree().nodes) >= 6, backend.tree()
    """
    with backend.create("default") as session, ThreadPoolExecutor(4) as threads:
        other = threads.submit(run_python, code, backend.directory)
        asked = [threads.submit(backend.plan_rules) for _ in range(20)]
        for number in range(20):
            call(session)
            if number % 7 == 0:
                threads.submit(catalogue.rebuild)
        assert all(one.result() == expected for one in asked)
        other.result()
    assert not differences(backend, [*backend.ids()][:1])
    assert sql(catalogue.path, "PRAGMA integrity_check") == [("ok",)]


def test_a_moved_folder_has_another_catalogue(backend: StateBackend, catalogue: Catalogue) -> None:
    """The file is named by the folder's path."""
    moved = backend.directory.rename(backend.directory.with_name("moved"))
    other = Catalogue(moved)
    assert other.path != catalogue.path
    other.refresh()
    assert entries(other) == 2


def test_reading_its_state_does_not_create_it(backend: StateBackend) -> None:
    """No size, then its size and contents, then its problem."""
    session_id = full(backend)
    catalogue = Catalogue(backend.directory)
    state = state_of(backend.directory)
    assert (state.path, state.size_bytes, state.sessions) == (catalogue.path, None, None)
    assert not catalogue.is_there()
    catalogue.refresh()
    path_of(backend, session_id).unlink()
    state = state_of(backend.directory)
    assert (state.sessions, state.schema, state.problem) == (1, NUMBER, None)
    assert state.size_bytes is not None
    assert sql(catalogue.path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    catalogue.path.write_bytes(b"noise" * 100)
    assert state_of(backend.directory).problem is not None
