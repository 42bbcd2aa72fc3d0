"""The catalogue follows the folder: what comes, changes and goes, and whose entry is kept."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

from statebackend import StateBackend
from statebackend.catalogue import Catalogue
from tests.session_files import call, full, new, path_of


def entries(catalogue: Catalogue, columns: str = "stem") -> list[tuple[Any, ...]]:
    """Refresh the catalogue and return these columns of its sessions, oldest first."""
    catalogue.refresh()
    with closing(sqlite3.connect(catalogue.path)) as driver:
        return driver.execute(f"SELECT {columns} FROM sessions ORDER BY stem").fetchall()


def test_an_entry_says_what_the_session_says(backend: StateBackend) -> None:
    """The row of its summary, its sums, its first prompt, and how many events it has."""
    session_id = full(backend)
    catalogue = Catalogue(backend.directory)
    columns = "stem, status, profile, cost_usd, title, events, last_sequence"
    assert entries(catalogue, columns) == [
        (session_id, "completed", "default", 0.25, "do it", 5, 5)
    ]


def test_sessions_come_change_and_go(backend: StateBackend) -> None:
    """The entries are those of the files in the folder, also of what is written right now."""
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


def test_a_number_is_a_file_as_long_as_it_grows(backend: StateBackend, tmp_path: Path) -> None:
    """More events keep it; another file at the name, or one that lost events, gets a new one."""
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
    """Nothing of it lies in the folder of the sessions."""
    full(backend)
    catalogue = Catalogue(backend.directory)
    catalogue.refresh()
    assert stat.S_IMODE(catalogue.path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["sessions"]
