"""Reading many files: the quiet way, the shared way, and what changes in between."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from statebackend import BadSession, SessionDamaged, SessionInfo, StateBackend, scan
from tests.session_files import UNKNOWN_ID, call, full, listing, new, path_of, sql


@pytest.fixture
def quiet(backend: StateBackend) -> Path:
    """Return a session file that has not been changed for a while."""
    path = path_of(backend, full(backend))
    time.sleep(0.06)
    return path


def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note in which modes the scan connects."""
    modes: list[str] = []
    query = scan._query

    def noting(path: Path, mode: str, *rest: object) -> object:
        modes.append(mode)
        return query(path, mode, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(scan, "_query", noting)
    return modes


def test_a_quiet_file_is_read_as_immutable(
    backend: StateBackend, quiet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One connection that leaves nothing behind."""
    modes = connections(monkeypatch)
    assert [one.session_id for one in backend.list()] == [quiet.stem]
    assert modes == ["mode=ro&immutable=1"]


def test_a_file_changed_just_now_is_read_as_shared(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look before and after proves nothing within the grain of the clock."""
    modes = connections(monkeypatch)
    with backend.create("default") as session:
        backend.list()
        call(session)
        backend.list()
    assert modes in (["mode=rw", "mode=ro"], ["mode=ro", "mode=ro"])


def test_a_change_during_the_quiet_read_is_read_again(
    backend: StateBackend, quiet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read meanwhile, an error too, is thrown away."""
    read = scan._query

    def disturbed(path: Path, mode: str, *rest: object) -> object:
        if "immutable" in mode:
            sql(path, "UPDATE session_meta SET profile = 'changed meanwhile'")
        return read(path, mode, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(scan, "_query", disturbed)
    (found,) = backend.list()
    assert isinstance(found, SessionInfo)
    assert found.profile == "changed meanwhile"


def test_an_error_during_a_change_is_no_damage(
    backend: StateBackend, quiet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a change can look like it, so the file is read again."""
    read = scan._query

    def disturbed(path: Path, mode: str, *rest: object) -> object:
        if "immutable" in mode:
            os.utime(path)
            raise SessionDamaged(path, ("half of a change",))
        return read(path, mode, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(scan, "_query", disturbed)
    (found,) = backend.list()
    assert isinstance(found, SessionInfo)


def test_stems_are_names_without_opening(backend: StateBackend) -> None:
    """Session files, what is left of some, and nothing else of the folder."""
    backend.directory.mkdir()
    for name in (
        "A.sqlite",
        "B.sqlite.corrupt",
        "C.sqlite-wal",
        "D.sqlite-journal",
        "A.sqlite-shm",
        "E.sqlite-shm",
        "F.sqlite.creating",
        "G.txt",
        ".sqlite3",
        "A.sqlite-wal",
    ):
        (backend.directory / name).write_bytes(b"")
    assert scan.stems(backend.directory) == ["D", "C", "B", "A"]


def test_named_stems_come_in_the_order_given(backend: StateBackend) -> None:
    """Those that are not there are left out."""
    one, two = new(backend), new(backend)
    found = list(scan.read_each(backend.directory, scan.read_summary, [two, UNKNOWN_ID, one]))
    assert [getattr(info, "session_id", None) for info in found] == [two, one]


def test_a_scan_is_lazy(backend: StateBackend) -> None:
    """Files behind the one asked for are not opened."""
    from tests.session_files import files_opened, session_files

    made = sorted((new(backend) for _ in range(3)), reverse=True)
    with files_opened() as seen:
        next(backend.scan())
    assert session_files(seen) == [made[0]]


def test_a_reader_that_fails_flags_its_file(backend: StateBackend) -> None:
    """Whatever SQLite raises for it is that file's row."""
    new(backend)

    def fails(driver: sqlite3.Connection, _info: SessionInfo) -> None:
        driver.execute("SELECT * FROM missing")

    (found,) = scan.read_each(backend.directory, fails, scan.stems(backend.directory))
    assert isinstance(found, BadSession)
    assert listing(backend.directory / ".locks") == []
