"""Room in a young log: it is there, it is not read, and it harms nobody."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from statebackend import StateBackend
from statebackend.files import wal
from statebackend.files.paths import SessionFiles
from statebackend.sqlite import log_room
from statebackend.sqlite.log_room import ROOM_BYTES, LogRoom
from tests.crash import children
from tests.crash.processes import started
from tests.damage.bases import files_of, put, without_room
from tests.session_files import call, new, path_of

FRAME = 24 + 4096


def has_room(path: Path) -> bool:
    """Tell whether the log beside a file is longer than its frames."""
    files = files_of(path)
    return len(without_room(files)["-wal"]) < len(files["-wal"])


def test_a_log_gets_room_once_it_is_of_more_than_a_few_events(backend: StateBackend) -> None:
    """What an append then needs was there before it, so its commit makes no file longer."""
    session_id = new(backend)
    with backend.open(session_id) as session:
        log = SessionFiles(session.path).wal
        call(session)
        assert len(without_room(files_of(session.path))["-wal"]) == log.stat().st_size
        while log.stat().st_size < 200 * 1024:
            call(session)
        longer = 0
        for _ in range(100):
            before = log.stat().st_size
            call(session)
            longer += log.stat().st_size > before
    assert longer < 30
    assert not log.exists()


def test_room_is_as_good_as_no_log_behind(backend: StateBackend, tmp_path: Path) -> None:
    """Readers, a look from outside and an opening after a kill see the same with and without."""
    with backend.create("default") as session:
        for _ in range(5):
            call(session, b"." * 20_000)
        files = files_of(session.path)
        assert len(files["-wal"]) > len(without_room(files)["-wal"])
        assert [one.sequence for one in session.events()] == list(range(1, 6))
        with backend.read(session.session_id) as view:
            assert view.counts().events == 5
        with closing(sqlite3.connect(session.path)) as driver:
            assert driver.execute("SELECT count(*) FROM events").fetchone() == (5,)
    found = []
    for name, left in {"room": files, "none": without_room(files)}.items():
        folder = tmp_path / name
        folder.mkdir(mode=0o700)
        put(left, folder / session.path.name)
        log = wal.read(folder / session.path.name)
        with StateBackend(folder).open(session.session_id) as again:
            assert again.recovery is None
            assert call(again) == 6
            found.append((log, list(again.events())[:5]))
    assert found[0] == found[1]


def test_what_others_wrote_meanwhile_stays(backend: StateBackend) -> None:
    """Zeros go behind the end wherever that is, so they are never on somebody's frames."""
    path = path_of(backend, new(backend))
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        log = SessionFiles(path).wal
        room = LogRoom(str(log))
        made = 0
        for number in range(40):
            driver.execute("UPDATE session_meta SET profile = ?", (f"{number}" * 100,))
            before = log.read_bytes()
            room.make()
            after = log.read_bytes()
            assert after.startswith(before)
            assert not any(after[len(before) :])
            made += len(after) > len(before)
        assert made
        size = log.stat().st_size
        assert log_room._lengthen(str(log), size - FRAME, FRAME) == 0  # it grew meanwhile
        assert log.stat().st_size == size
        driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        room.make()
        assert log.stat().st_size == 0
        driver.execute("UPDATE session_meta SET profile = 'p'")
    with closing(sqlite3.connect(path)) as driver:
        assert driver.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_log_of_full_length_is_left_alone(backend: StateBackend) -> None:
    """Then SQLite writes over it, or readers keep it from that, and it grows by its commits."""
    with backend.create("default") as session:
        log = SessionFiles(session.path).wal
        for _ in range(30):
            call(session, bytes(ROOM_BYTES // 20))
        size = log.stat().st_size
        assert size < ROOM_BYTES + 300 * FRAME
        for _ in range(30):
            call(session)
        assert log.stat().st_size == size
        room = LogRoom(str(log))  # of a writer that opens the session beside it
        room.make()
        assert log.stat().st_size == size
        assert not room.is_wanted


def test_room_that_cannot_be_made_hinders_nobody(tmp_path: Path) -> None:
    """The log is gone, or is a link to something else: the next commit will tell what is wrong."""
    other = tmp_path / "other"
    other.write_bytes(b"a" * 200_000)
    log = tmp_path / "x-wal"
    log.symlink_to(other)
    for path in (log, tmp_path / "gone-wal"):
        room = LogRoom(str(path))
        room.make()
    assert log_room._lengthen(str(log), 200_000, FRAME) == 0
    assert other.read_bytes() == b"a" * 200_000
    assert not room.is_wanted


@pytest.mark.parametrize("appends", [2, 25])
def test_a_killed_writer_leaves_room_that_nobody_minds(backend: StateBackend, appends: int) -> None:
    """Its acknowledged events are all there, in a listing and at the next opening."""
    session_id = new(backend)
    path = path_of(backend, session_id)
    numbers: list[object] = []
    with started(children.append_until_killed, backend.directory, session_id) as child:
        while len(numbers) < appends or (appends > 2 and not has_room(path)):
            numbers.append(child.hear())
        child.kill()
    (summary,) = backend.list()
    assert summary.session_id == session_id
    with backend.open(session_id) as session:
        assert session.recovery is None
        assert session.counts().events >= len(numbers)
