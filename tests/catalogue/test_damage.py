"""A damaged catalogue is rebuilt; doctor finds damage that causes no error."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from statebackend import SearchHit, StateBackend, StorageError
from statebackend.bulk import cross_session
from statebackend.catalogue import Catalogue
from statebackend.catalogue.state import check, state_of
from tests.answers import differences, questions
from tests.session_files import fill, sql

WORDS = ("apple", "pear", "plum", "日本", "Straße")
SECTOR = 512


def fill_folder(backend: StateBackend, *, sessions: int = 6, events: int = 30) -> None:
    """Create a small tree of sessions with rows in every table, and some text to search."""
    rng = random.Random(0)
    ids: list[str] = []
    for number in range(sessions):
        parent = rng.choice(ids) if ids and number % 3 else None
        with backend.create("ab"[number % 2], parent_session_id=parent) as session:
            ids.append(session.session_id)
            for place in range(events):
                text = f"n{number}e{place} {' '.join(rng.choices(WORDS, k=20))}"
                session.append_prompt(payload=text.encode(), schema_version="1")
            fill(session)
            if number % 2:
                session.set_status("completed")
    time.sleep(0.15)  # a file changed later than that is read again each time


@pytest.fixture
def built(backend: StateBackend) -> bytes:
    """Return the bytes of a catalogue with an index of texts."""
    fill_folder(backend)
    found_in(backend)
    path = Catalogue(backend.directory).path
    sql(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


def put(path: Path, content: bytes) -> None:
    """Replace the catalogue by these bytes."""
    for ending in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).unlink()
    path.write_bytes(content)


def found_in(backend: StateBackend) -> list[tuple[SearchHit, ...]]:
    """Return the hits of some searches, for rare and frequent words."""
    asked = ("apple", "n3e7", '"日本"', "strasse pear", "n5e29 plum", "nowhere")
    return [backend.search(words, limit=None).hits for words in asked]


def damage(content: bytes, rng: random.Random) -> bytes:
    """Return *content* with some sectors zeroed or replaced by others, or with a bit flipped."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 3))):
        place = rng.randrange(len(content) // SECTOR) * SECTOR
        kind = rng.randrange(4)
        if kind < 2:
            size = SECTOR * rng.choice((1, 1, 2, 8))
            changed[place : place + size] = bytes(len(changed[place : place + size]))
        elif kind == 2:
            other = rng.randrange(len(content) // SECTOR) * SECTOR
            changed[place : place + SECTOR] = content[other : other + SECTOR]
        else:
            changed[place + rng.randrange(SECTOR)] ^= 1 << rng.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize(
    "seed,rounds", [(3, 25), pytest.param(4, 80, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_no_damage_raises_an_error(
    backend: StateBackend, built: bytes, seed: int, rounds: int
) -> None:
    """Whatever error of SQLite or wrong value it causes, the catalogue is rebuilt."""
    path = Catalogue(backend.directory).path
    ask = questions(backend, [*backend.ids()])
    rng = random.Random(seed)
    for _ in range(rounds):
        put(path, damage(built, rng))
        found_in(backend)
        for name in rng.sample([*ask], 6):
            ask[name]()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE texts",
        "DROP TABLE text_progress",
        "DROP TABLE sessions",
        "DELETE FROM sessions WHERE number = 2",
        "DELETE FROM texts WHERE rowid = (SELECT max(rowid) FROM texts)",
        "UPDATE sessions SET started_at = NULL WHERE status = 'completed'",
        "UPDATE folder SET unread = 'SECRET'",
        "UPDATE texts_content SET c0 = NULL",
        "UPDATE texts_content SET c7 = CAST(x'ff53454352455400' AS TEXT), c6 = NULL",
    ],
)
def test_missing_rows_are_noticed(
    backend: StateBackend,
    caplog: pytest.LogCaptureFixture,
    statement: str,
) -> None:
    """A part is never shown as the whole; the warning quotes nothing that is stored."""
    fill_folder(backend)
    expected = found_in(backend)
    path = Catalogue(backend.directory).path
    sql(path, statement)
    with caplog.at_level(logging.WARNING, "statebackend"):
        assert not differences(backend, [*backend.ids()])
        assert found_in(backend) == expected
    (record,) = caplog.records
    assert "rebuilding it" in record.getMessage()
    assert "SECRET" not in caplog.text


def test_an_error_of_the_caller_is_not_damage(
    backend: StateBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that its progress function raises is passed on, and the catalogue is kept."""
    fill_folder(backend)
    raised = ValueError("mine")

    def report(done: int, total: int) -> None:
        raise raised

    with caplog.at_level(logging.WARNING, "statebackend"):
        for ask in (
            lambda: backend.search("apple", progress=report),
            lambda: Catalogue(backend.directory).refresh(report),
        ):
            Catalogue(backend.directory).path.unlink(missing_ok=True)
            with pytest.raises(ValueError, match="mine") as caught:
                ask()
            assert caught.value is raised
    assert not caplog.records


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE texts_content SET c7 = 'other words' WHERE c0 = 3",
        "DELETE FROM texts_data WHERE id > 100",
        "DELETE FROM texts_docsize WHERE id = (SELECT max(id) FROM texts_docsize)",
        "DELETE FROM costs WHERE number = 2",
        "UPDATE sessions SET inode = NULL",
    ],
)
def test_doctor_finds_damage_without_an_error(
    backend: StateBackend, built: bytes, statement: str
) -> None:
    """It checks pages, constraints, the words of each text, and the number of rows."""
    path = Catalogue(backend.directory).path
    with closing(sqlite3.connect(path)) as driver, driver:
        driver.execute("PRAGMA writable_schema = ON")
        driver.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'inode INTEGER NOT NULL', 'inode INTEGER')"
        )
    sql(path, statement)
    with closing(sqlite3.connect(path)) as driver, driver:
        driver.execute("PRAGMA writable_schema = ON")
        driver.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'inode INTEGER', 'inode INTEGER NOT NULL')"
        )
    assert check(state_of(backend.directory)).problem is not None


def test_doctor_finds_nothing_in_a_sound_catalogue(backend: StateBackend, built: bytes) -> None:
    """It changes nothing, and leaves a catalogue in use alone."""
    path = Catalogue(backend.directory).path
    state = state_of(backend.directory)
    assert check(state) == state
    assert path.read_bytes() == built
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert check(state_of(backend.directory)).problem is None


@pytest.mark.parametrize("what", ["folder", "pipe"])
@pytest.mark.parametrize("ending", ["", ".building"])
def test_something_else_in_its_place_is_refused(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch, what: str, ending: str
) -> None:
    """The error says what to do, nothing is removed, and a scan answers other questions."""
    monkeypatch.setattr(cross_session, "CATALOGUE_FROM", 1)
    fill_folder(backend, sessions=2)
    path = Catalogue(backend.directory).path
    place = path.with_name(path.name + ending)
    path.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir() if what == "folder" else os.mkfifo(place)
    with pytest.raises(StorageError, match="remove it, or set XDG_CACHE_HOME"):
        backend.search("apple")
    assert not differences(backend, [*backend.ids()], usable=False)
    assert not place.is_file()
    problem = state_of(backend.directory).problem
    assert problem is None if ending else "remove it" in str(problem)


def test_a_dangling_link_as_cache_folder_is_refused(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error says what to set."""
    fill_folder(backend, sessions=2)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "link"))
    with pytest.raises(StorageError, match="set XDG_CACHE_HOME to a folder"):
        backend.search("apple")
