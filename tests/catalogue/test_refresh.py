"""The catalogue follows the folder: new, changed and deleted sessions, and reused entries."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from statebackend import BadSession, SessionInfo, StateBackend, StorageBusy
from statebackend.catalogue import Catalogue, folder_state, refresh
from statebackend.catalogue.schema import transaction
from tests.damage.bases import files_of, put
from tests.session_files import call, full, new, path_of, sql


def entries(catalogue: Catalogue, columns: str = "stem") -> list[tuple[Any, ...]]:
    """Refresh the catalogue and return these columns of its sessions, oldest first."""
    catalogue.refresh()
    with closing(sqlite3.connect(catalogue.path)) as driver:
        return driver.execute(f"SELECT {columns} FROM sessions ORDER BY stem").fetchall()


def test_an_entry_holds_what_the_session_holds(backend: StateBackend) -> None:
    """The row of its summary, its sums, its first prompt, and how many events it has."""
    session_id = full(backend)
    catalogue = Catalogue(backend.directory)
    columns = "stem, status, profile, cost_usd, title, events, last_sequence"
    assert entries(catalogue, columns) == [
        (session_id, "completed", "default", 0.25, "do it", 5, 5)
    ]


def test_new_changed_and_deleted_sessions(backend: StateBackend) -> None:
    """The entries are those of the files in the folder, also while one is written."""
    first = new(backend, events=2)
    catalogue = Catalogue(backend.directory)
    assert entries(catalogue, "stem, events") == [(first, 2)]
    with backend.create("default") as session:
        call(session)
        call(session)
        second = session.session_id
        assert entries(catalogue, "stem, events, live") == [(first, 2, 0), (second, 2, 1)]
        call(session)
        assert entries(catalogue, "stem, events, live") == [(first, 2, 0), (second, 3, 1)]
    path_of(backend, first).unlink()
    assert entries(catalogue, "stem, events, live") == [(second, 3, 0)]


def test_a_session_keeps_its_number_while_it_grows(backend: StateBackend, tmp_path: Path) -> None:
    """Another file under its name, or one that lost events, gets a new number."""
    session_id = new(backend, events=2)
    path = path_of(backend, session_id)
    early = path.read_bytes()
    catalogue = Catalogue(backend.directory)
    assert entries(catalogue, "number") == [(1,)]
    with backend.open(session_id) as session:
        call(session)
    assert entries(catalogue, "number, events") == [(1, 3)]
    path.write_bytes(early)
    assert entries(catalogue, "number, events") == [(2, 2)]
    path.rename(tmp_path / "old")
    path.write_bytes(early)
    assert entries(catalogue, "number, events") == [(3, 2)]


def test_it_is_for_its_owner_only_and_outside_the_sessions(
    backend: StateBackend, tmp_path: Path
) -> None:
    """The folder of the sessions has no file of it."""
    full(backend)
    catalogue = Catalogue(backend.directory)
    catalogue.refresh()
    assert stat.S_IMODE(catalogue.path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["sessions"]


@pytest.mark.parametrize(
    ("payload", "title"),
    [
        (b"list  the\n files", "list the files"),
        (b'{"text": "list the files"}', "list the files"),
        (b'{"role": "user", "content": [{"type": "text", "text": "hello"}]}', "hello"),
        (b'"a word"', "a word"),
        (b"12", "12"),
        (b'{"other": 1}', None),
        (b"[]", None),
        (b"\xff\xfe\x00", None),
        (b"", None),
        (b"[" * 5000, "[" * 200),
        (("ä" * 40_000).encode(), "ä" * 200),
    ],
)
def test_the_title_is_the_beginning_of_the_first_prompt(
    backend: StateBackend, payload: bytes, title: str | None
) -> None:
    """In one line, from text or from JSON that contains it; None if the bytes are not text."""
    with backend.create("default") as session:
        session.append_prompt(payload=payload, schema_version="1")
        session.append_prompt(payload=b"a later one", schema_version="1")
    assert entries(Catalogue(backend.directory), "title") == [(title,)]


def test_a_session_open_here_is_read_again(backend: StateBackend) -> None:
    """Also one that is only open for reading: a scan reads it the shared way."""
    session_id = full(backend)
    time.sleep(0.15)
    catalogue = Catalogue(backend.directory)
    assert entries(catalogue, "mtime_ns IS NULL") == [(0,)]
    with backend.read(session_id):
        assert entries(catalogue, "mtime_ns IS NULL") == [(1,)]
    time.sleep(0.15)
    assert entries(catalogue, "mtime_ns IS NULL") == [(0,)]


def test_an_entry_read_just_after_a_change_is_not_relied_on(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another change may leave the file's times as they are; later the entry is relied on."""
    new(backend)
    catalogue = Catalogue(backend.directory)
    monkeypatch.setattr(folder_state, "_GRAIN_NS", 3600 * 10**9)
    assert entries(catalogue, "mtime_ns IS NULL") == [(1,)]
    monkeypatch.setattr(folder_state, "_GRAIN_NS", 0)
    assert entries(catalogue, "mtime_ns IS NULL") == [(0,)]


def test_a_file_with_a_second_name_is_read_again(backend: StateBackend) -> None:
    """It may be in the middle of a recovery, which a scan checks each time."""
    path = path_of(backend, new(backend))
    os.link(path, path.with_name("copy"))
    time.sleep(0.15)
    assert entries(Catalogue(backend.directory), "mtime_ns IS NULL") == [(1,)]


def test_a_name_that_is_not_utf8_affects_no_answer(backend: StateBackend) -> None:
    """The file is a bad session, as in a scan; the catalogue and its index are unchanged."""
    session_id = new(backend, events=2)
    backend.search("0")
    catalogue = Catalogue(backend.directory)
    before = os.lstat(catalogue.path).st_ino
    Path(os.fsdecode(os.fsencode(backend.directory) + b"/caf\xe9.sqlite")).write_bytes(b"x" * 100)
    scanning = StateBackend(backend.directory, catalogue=False)
    for _ in range(2):
        assert problems(backend.list(roots=True, limit=None)) == problems(
            scanning.list(roots=True, limit=None)
        )
        inclusive = scanning.cost(session_id, tree=True).inclusive
        assert backend.cost(session_id, tree=True).inclusive == inclusive
        assert len(backend.search("0").hits) == 1
    assert os.lstat(catalogue.path).st_ino == before


def problems(answers: list[SessionInfo | BadSession]) -> list[tuple[str, str]]:
    """Return ids and problems of a listing."""
    return [(one.session_id, getattr(one, "problem", "")) for one in answers]


def test_a_changed_shm_makes_an_entry_invalid(backend: StateBackend, tmp_path: Path) -> None:
    """It says which frames of a killed writer's WAL count; a scan reads it each time."""
    backend.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    other = StateBackend(tmp_path / "made")
    with other.create("default") as session:
        for _ in range(3):
            call(session)
        files = files_of(session.path)
    path = backend.directory / session.path.name
    put(files, path)
    backend.search("0")  # makes the catalogue
    time.sleep(0.2)
    assert [one.session_id for one in backend.stale()] == [path.stem]
    index = Path(f"{path}-shm")
    index.rename(tmp_path / "index")
    index.symlink_to(tmp_path / "index")
    scanning = StateBackend(backend.directory, catalogue=False)
    assert problems(list(backend.list(roots=True))) == problems(list(scanning.list(roots=True)))
    (flagged,) = backend.list(roots=True)
    assert isinstance(flagged, BadSession)
    assert "-shm" in flagged.problem


def test_progress_is_reported(backend: StateBackend) -> None:
    """How many files have been read, and of how many; no call if none is read."""
    for _ in range(3):
        new(backend)
    time.sleep(0.15)
    calls: list[tuple[int, int]] = []
    catalogue = Catalogue(backend.directory)
    catalogue.refresh(lambda done, of: calls.append((done, of)))
    catalogue.refresh(lambda done, of: calls.append((done, of)))
    assert calls == [(3, 3)]


def outdate(catalogue: Catalogue, columns: str = "size = 1", *values: object) -> None:
    """Change its entries, as a process does that has read an older state."""
    with (
        closing(sqlite3.connect(catalogue.path, isolation_level=None)) as driver,
        transaction(driver, "BEGIN IMMEDIATE"),
    ):
        driver.execute("UPDATE folder SET digest = NULL")
        driver.execute(f"UPDATE sessions SET {columns}", values)


def test_a_folder_that_keeps_changing_is_scanned(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process invalidates each entry: the caller scans instead."""
    new(backend)
    time.sleep(0.15)
    catalogue = Catalogue(backend.directory)
    catalogue.refresh()
    read = refresh._read

    def disturbed(*arguments: Any, **options: Any) -> None:
        read(*arguments, **options)
        outdate(catalogue)

    monkeypatch.setattr(refresh, "_read", disturbed)
    outdate(catalogue)
    with pytest.raises(StorageBusy, match="faster than the catalogue can be updated"):
        catalogue.refresh()
    assert len(backend.tree().nodes) == 1
    assert len(backend.tree(next(backend.ids())).nodes) == 1


def test_an_older_entry_of_another_process_is_read_again(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry stored between reading and answering is noticed."""
    session_id = new(backend, events=1)
    time.sleep(0.15)
    catalogue = Catalogue(backend.directory)
    catalogue.refresh()
    with backend.open(session_id) as session:
        call(session)
    time.sleep(0.15)
    (old,) = sql(catalogue.path, "SELECT size, ctime_ns, events FROM sessions")
    read = refresh._read
    times: list[int] = []

    def late(*arguments: Any, **options: Any) -> None:
        read(*arguments, **options)
        times.append(1)
        if len(times) == 1:
            outdate(catalogue, "(size, ctime_ns, events) = (?, ?, ?)", *old)

    monkeypatch.setattr(refresh, "_read", late)
    assert entries(catalogue, "events") == [(2,)]
    assert len(times) == 2
