"""SB-33: the integrity check at every open, and what it leaves alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from statebackend import SessionDamaged, SessionInfo, StateBackend, StateBackendError
from tests.session_files import (
    Found,
    damage_index,
    damage_page,
    full,
    new,
    overwrite,
    path_of,
    run_python,
    snapshot,
)


def index_emptied(backend: StateBackend) -> Path:
    """Damage an index: every table still reads well."""
    path = path_of(backend, full(backend))
    damage_index(path)
    return path


def page_of_noise(backend: StateBackend) -> Path:
    """Damage a page of events."""
    path = path_of(backend, full(backend))
    damage_page(path)
    return path


def page_of_nothing(backend: StateBackend) -> Path:
    """Zero a page in the middle, as blocks that were never written read."""
    path = path_of(backend, new(backend, events=300, size=200))
    overwrite(path, path.stat().st_size // 4096 // 2, bytes(4096))
    return path


def truncated(backend: StateBackend) -> Path:
    """Cut whole pages off the end."""
    path = path_of(backend, new(backend, events=300, size=200))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 8192 * 4096)
    return path


_KILLED = """
    import os, signal, sys
    from statebackend import StateBackend
    from tests.session_files import call
    session = StateBackend(sys.argv[1]).open(sys.argv[2])
    call(session)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def zeroed_under_a_log(backend: StateBackend) -> Path:
    """Damage the file below a killed writer's log, in a page that the log does not replace."""
    path = path_of(backend, new(backend, events=300, size=200))
    run_python(_KILLED, backend.directory, path.stem, check=False)
    assert path.with_name(path.name + "-wal").stat().st_size > 0
    # The page of an early event: an append touches the last one, and any page of the indexes.
    overwrite(path, path.read_bytes().index(b"100:...") // 4096 + 1, bytes(4096))
    return path


def kept(backend: StateBackend) -> dict[str, Found]:
    """Look at the session and its log: not at claims, nor at SQLite's index of a log in use."""
    return {
        name: found
        for name, found in snapshot(backend.directory).items()
        if found.content is not None and not name.endswith((".lock", "-shm"))
    }


DAMAGES = [index_emptied, page_of_noise, page_of_nothing, truncated, zeroed_under_a_log]


@pytest.mark.conformance("SB-33")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("method", ["open", "read"])
def test_sb33_damage_is_found_at_every_open(
    backend: StateBackend, damage: Callable[[StateBackend], Path], method: str
) -> None:
    """Opening for writing and for reading both run SQLite's check, and say what it found."""
    path = damage(backend)
    before = kept(backend)
    with pytest.raises(SessionDamaged) as caught:
        getattr(backend, method)(path.stem)
    assert caught.value.path == path
    assert caught.value.findings
    assert kept(backend) == before


@pytest.mark.conformance("SB-33")
def test_sb33_a_reader_may_ask_for_no_check(backend: StateBackend) -> None:
    """With check=False, what can be read of a damaged session is read."""
    path = index_emptied(backend)
    with backend.read(path.stem, check=False) as view:
        assert [event.sequence for event in view.events()] == [1, 2, 3, 4, 5]


@pytest.mark.conformance("SB-33")
def test_sb33_the_check_runs_once_an_open(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader's and a writer's open each run it once; a scan, which is no open, never does."""
    from statebackend import integrity

    runs: list[object] = []
    check = integrity._findings

    def noting(driver: sqlite3.Connection) -> list[str]:
        runs.append(driver)
        return check(driver)

    monkeypatch.setattr(integrity, "_findings", noting)
    session_id = full(backend)
    with backend.open(session_id), backend.read(session_id):
        assert len(runs) == 2
    backend.list()
    backend.tree()
    backend.cost(session_id, tree=True)
    assert len(runs) == 2


@pytest.mark.conformance("SB-33", "SB-27")
def test_sb33_a_scan_runs_no_check(backend: StateBackend) -> None:
    """A session whose damage only the check can find is listed as it reads."""
    index_emptied(backend)
    (found,) = backend.list()
    assert isinstance(found, SessionInfo)
    assert found.cost_usd == 0.25


@pytest.mark.conformance("SB-33")
def test_sb33_an_unreadable_session_is_never_an_empty_one(backend: StateBackend) -> None:
    """A file of which the tables are gone is an error, not a session without events."""
    path = path_of(backend, full(backend))
    overwrite(path, 1, bytes(3000), offset=100)
    for method in (backend.open, backend.read):
        with pytest.raises(StateBackendError):
            method(path.stem)
