"""The catalogue's file: made anew whenever it is of no use, and done without where it cannot be."""

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
    """Return the catalogue of a folder with two sessions, made."""
    full(backend)
    new(backend, events=2)
    made = Catalogue(backend.directory)
    made.refresh()
    return made


def entries(catalogue: Catalogue) -> int:
    """Return how many sessions are in the file as it is."""
    ((count,),) = sql(catalogue.path, "SELECT count(*) FROM sessions")
    return int(count)


def of_another_folder(path: Path) -> None:
    """Let it say that it is of another folder, as if two had one digest."""
    sql(path, "UPDATE folder SET directory = x'2f746d70'")


def cut_within(path: Path) -> None:
    """Cut the file within a page, and take its log."""
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
def test_what_is_of_no_use_is_made_anew(
    backend: StateBackend, catalogue: Catalogue, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Never migrated, never an error; the log has a warning."""
    SPOILERS[name](catalogue.path)
    with caplog.at_level(logging.WARNING, "statebackend"):
        assert not differences(backend, [*backend.ids()])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "rebuilding it" in caplog.text
    assert entries(catalogue) == 2
    assert state_of(backend.directory).schema == NUMBER


def test_damage_that_shows_late_is_no_answer_either(
    backend: StateBackend, catalogue: Catalogue, caplog: pytest.LogCaptureFixture
) -> None:
    """A page that is met in the middle of a question: the question is asked again of a new file."""
    sql(catalogue.path, "PRAGMA wal_checkpoint(TRUNCATE)")
    damage_page(catalogue.path, "plan_rules")
    rules = backend.plan_rules()
    assert rules == StateBackend(backend.directory, catalogue=False).plan_rules()
    assert "the catalogue is damaged" in caplog.text


def test_a_missing_one_is_made_without_a_word(
    backend: StateBackend, catalogue: Catalogue, caplog: pytest.LogCaptureFixture
) -> None:
    """Who deletes it need not be told that it was deleted."""
    catalogue.path.unlink()
    catalogue.refresh()
    assert entries(catalogue) == 2
    assert not caplog.records


def test_small_folders_have_none(backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made when a folder has many sessions, and not for a listing of the newest."""
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


def test_where_nothing_can_be_written_files_are_read(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No folder for it: the answers are the same, and asking for it alone says what is wrong."""
    full(backend)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cross_session, "CATALOGUE_FROM", 1)
    assert not differences(backend, [*backend.ids()], usable=False)
    with pytest.raises(StorageError):
        Catalogue(backend.directory).refresh()


@pytest.mark.parametrize("linked", [False, True])
def test_it_never_lies_among_the_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    """Where the cache folder is the sessions' folder, by a link or not, there is none."""
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


def test_a_link_in_its_place_is_not_followed(backend: StateBackend, tmp_path: Path) -> None:
    """It may lead to a session, whose log would be folded in; it is told, and then replaced."""
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
    """Whatever part of it could be written."""
    for _ in range(30):
        full(backend)
    run_python(_FULL, backend.directory)
    assert not differences(backend, [*backend.ids()][:1])


@pytest.mark.parametrize("room", [0, 100, 4096, 8192, 20_000, 45_000])
def test_what_does_not_fit_is_taken_away(backend: StateBackend, room: int) -> None:
    """One that could not be made leaves nothing on the full disk; with room, it is made."""
    full(backend)
    path = Catalogue(backend.directory).path
    with file_size_limit(room), pytest.raises(StorageError):
        Catalogue(backend.directory).refresh()
    assert list(path.parent.glob(f"{path.name}*")) == []
    Catalogue(backend.directory).refresh()
    assert list(path.parent.glob(f"{path.name}*")) == [path]


def test_one_that_is_being_made_is_not_waited_for_without_end(
    backend: StateBackend, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stopped in the middle keeps nobody: the files are read."""
    catalogue.path.unlink()
    monkeypatch.setattr(file, "_BUILDING_TIMEOUT_S", 0.05)
    with file._lock_building(catalogue.path, backend.directory):
        with pytest.raises(StorageBusy):
            catalogue.refresh()
        monkeypatch.setattr(cross_session, "CATALOGUE_FROM", 1)
        assert not differences(backend, [*backend.ids()][:1], usable=False)


def test_another_writer_is_not_waited_for_without_end(
    backend: StateBackend, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has its write lock for long makes the others read the files."""
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
def test_it_may_be_killed_at_any_moment(backend: StateBackend, tmp_path: Path) -> None:
    """While it is made, filled or put in place; who comes next finds a good one or makes it."""
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
    """Beside a writer, while it is thrown away now and then: each answer is a good one."""
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


def test_a_folder_that_was_moved_has_another(backend: StateBackend, catalogue: Catalogue) -> None:
    """The file is named by the folder's path."""
    moved = backend.directory.rename(backend.directory.with_name("moved"))
    other = Catalogue(moved)
    assert other.path != catalogue.path
    other.refresh()
    assert entries(other) == 2


def test_its_state_is_told_without_making_it(backend: StateBackend) -> None:
    """None, then its size and contents, then what is wrong with it."""
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
