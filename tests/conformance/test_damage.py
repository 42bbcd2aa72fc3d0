"""SB-33: the integrity check at every open, and what it leaves alone."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from statebackend import (
    BadSession,
    SessionDamaged,
    SessionExists,
    SessionInfo,
    SessionUnreadable,
    StateBackend,
    StateBackendError,
    StorageError,
)
from tests.session_files import (
    Found,
    damage_index,
    damage_page,
    full,
    new,
    overwrite,
    path_of,
    process,
    run_python,
    snapshot,
    sql,
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
def test_sb33_reading_finds_damage_and_changes_nothing(
    backend: StateBackend, damage: Callable[[StateBackend], Path]
) -> None:
    """A reader runs SQLite's check, says what it found, and leaves the repair to a writer."""
    path = damage(backend)
    before = kept(backend)
    with pytest.raises(SessionDamaged) as caught:
        backend.read(path.stem)
    assert caught.value.path == path
    assert caught.value.findings
    assert kept(backend) == before


@pytest.mark.conformance("SB-33", "SB-34", "SB-35")
@pytest.mark.parametrize("damage", DAMAGES)
def test_sb34_opening_saves_what_is_left(
    backend: StateBackend, damage: Callable[[StateBackend], Path]
) -> None:
    """Opening for writing runs the check, and what can be read goes into a new file at the name."""
    path = damage(backend)
    before = {Path(name).name: found.content for name, found in kept(backend).items()}
    with backend.open(path.stem) as session:
        report = session.recovery
        assert report is not None
        events = list(session.events())
    assert report.original == path.with_name(f"{path.name}.corrupt")
    for ending in ("", "-wal"):
        was = before.get(f"{path.name}{ending}")
        now = path.with_name(f"{path.name}.corrupt{ending}")
        assert (now.read_bytes() if now.exists() else None) == was
    assert len(events) == report.tables[0].kept
    missing = {
        number for first, last in report.tables[0].missing for number in range(first, last + 1)
    }
    assert missing | {event.sequence for event in events} == set(
        range(1, max({event.sequence for event in events} | missing) + 1)
    )
    assert not missing & {event.sequence for event in events}
    with backend.open(path.stem) as session:
        assert session.recovery is None


@pytest.mark.conformance("SB-35")
def test_sb35_a_later_damage_never_takes_an_earlier_original(backend: StateBackend) -> None:
    """Each original is kept under a name of its own."""
    path = page_of_noise(backend)
    originals = []
    for _ in range(3):
        originals.append(path.read_bytes())
        with backend.open(path.stem) as session:
            assert session.recovery is not None
        damage_index(path)
    names = [f"{path.name}.corrupt", f"{path.name}.corrupt.2", f"{path.name}.corrupt.3"]
    assert [path.with_name(name).read_bytes() for name in names] == originals
    assert [one.original for one in backend.recoveries()] == [
        path.with_name(name) for name in reversed(names)
    ]


@pytest.mark.conformance("SB-36")
def test_sb36_a_recovery_is_told(backend: StateBackend, caplog: pytest.LogCaptureFixture) -> None:
    """To the caller as a value, in the log at WARNING with counts, and later from its file."""
    path = truncated(backend)
    with caplog.at_level(logging.WARNING), backend.open(path.stem) as session:
        report = session.recovery
    assert report is not None
    assert backend.recoveries() == [report]
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    events = report.tables[0]
    assert events.lost
    assert f"events {events.kept} kept {events.lost} lost" in record.getMessage()
    assert path.name in record.getMessage()


@pytest.mark.conformance("SB-37")
@pytest.mark.parametrize("content", [b"", b"x", bytes(8192), b"no database" * 900])
def test_sb37_what_cannot_be_saved_is_flagged_and_kept(
    backend: StateBackend, content: bytes
) -> None:
    """Never an empty session in its stead; its id stays taken, and the others go on."""
    path = path_of(backend, full(backend))
    other = full(backend)
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(SessionUnreadable):
            backend.open(path.stem)
    assert not path.exists()
    assert path.with_name(f"{path.name}.corrupt").read_bytes() == content
    with pytest.raises(SessionExists):
        backend.create("default", session_id=path.stem)
    assert {one.session_id: isinstance(one, BadSession) for one in backend.list()} == {
        path.stem: True,
        other: False,
    }
    with backend.open(other) as session:
        assert session.recovery is None


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
    from statebackend.sqlite import integrity

    runs: list[object] = []
    check = integrity._run_integrity_check

    def noting(driver: sqlite3.Connection) -> list[str]:
        runs.append(driver)
        return check(driver)

    monkeypatch.setattr(integrity, "_run_integrity_check", noting)
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
def test_sb33_a_session_without_its_tables_is_never_an_empty_one(backend: StateBackend) -> None:
    """Where the schema is gone, reading is an error, and opening still finds the events."""
    path = path_of(backend, full(backend))
    overwrite(path, 1, bytes(3000), offset=100)
    with pytest.raises(SessionDamaged):
        backend.read(path.stem)
    with backend.open(path.stem) as session:
        assert session.recovery is not None
        assert [event.sequence for event in session.events()] == [1, 2, 3, 4, 5]


@pytest.mark.conformance("SB-38")
def test_sb38_what_is_no_damage_renames_nothing(backend: StateBackend) -> None:
    """A newer version, a lock, a foreign database, missing rights: nothing is recovered."""
    path = path_of(backend, full(backend))
    sql(path, "PRAGMA user_version = 99")
    foreign = path_of(backend, full(backend))
    foreign.unlink()
    sql(foreign, "CREATE TABLE other (a)")
    linked = path_of(backend, full(backend))
    (backend.directory / "second").hardlink_to(linked)
    before = snapshot(backend.directory)
    for session_id in (path.stem, foreign.stem, linked.stem):
        with pytest.raises(StateBackendError):
            backend.open(session_id)
    after = snapshot(backend.directory)
    assert before.keys() == after.keys()
    assert {name: one.content for name, one in before.items()} == {
        name: one.content for name, one in after.items()
    }


@pytest.mark.conformance("SB-38")
def test_sb38_a_damaged_session_that_is_in_use_is_left_alone(backend: StateBackend) -> None:
    """What another process, or a view of this one, has open is not replaced below it."""
    path = index_emptied(backend)
    with (
        backend.read(path.stem, check=False),
        pytest.raises(StorageError, match="this process has it open"),
    ):
        backend.open(path.stem)
    reader = """
        import sqlite3, sys
        driver = sqlite3.connect(sys.argv[1])
        driver.execute("SELECT count(*) FROM session_meta").fetchone()
        print("reading", flush=True)
        sys.stdin.read()
    """
    with process(reader, path), pytest.raises(StorageError, match="another program has it open"):
        backend.open(path.stem)
    with backend.open(path.stem) as session:
        assert session.recovery is not None


@pytest.mark.conformance("SB-33", "SB-34")
def test_sb34_the_log_of_another_new_session_is_not_taken_for_its_own(
    backend: StateBackend,
) -> None:
    """Two writers were killed after their first appends, and their logs are mixed up."""
    first, second = (path_of(backend, new(backend)) for _ in range(2))
    for path in (first, second):
        run_python(_KILLED, backend.directory, path.stem, check=False)
    log = second.with_name(f"{second.name}-wal").read_bytes()
    first.with_name(f"{first.name}-wal").write_bytes(log)
    flagged = {one.session_id for one in backend.list() if isinstance(one, BadSession)}
    assert flagged == {first.stem}
    with pytest.raises(SessionDamaged, match="another session"):
        backend.read(first.stem)
    with backend.open(first.stem) as session:
        assert session.recovery is not None
        assert session.counts().events == 0
    assert first.with_name(f"{first.name}.corrupt-wal").read_bytes() == log
