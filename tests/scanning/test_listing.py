"""Listing many sessions: as few opens as rows, no ghosts, no order but the names'."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from statebackend import BadSession, SessionInfo, StateBackend
from statebackend.values import ids
from tests.session_files import (
    START,
    call,
    damage_page,
    files_opened,
    full,
    killed_writer,
    listing,
    new,
    path_of,
    session_files,
    sql,
)


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """Return the id and the bytes of a session file in the smallest pages."""
    backend = StateBackend(tmp_path_factory.mktemp("stamp"))
    path = path_of(backend, full(backend))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    return path.stem, path.read_bytes()


def stamped(backend: StateBackend, count: int, small_file: tuple[str, bytes]) -> list[str]:
    """Make so many sessions, a minute apart, and return their ids, newest first."""
    backend.directory.mkdir(exist_ok=True)
    stem, content = small_file
    made = [
        ids.session_id_from(START + timedelta(minutes=number), bytes(10)) for number in range(count)
    ]
    for session_id in made:
        path_of(backend, session_id).write_bytes(
            content.replace(stem.encode(), session_id.encode())
        )
    return made[::-1]


def found_ids(found: list[SessionInfo | BadSession]) -> list[str]:
    """Return the ids of a page."""
    return [one.session_id for one in found]


def test_the_newest_twenty_of_ten_thousand_cost_twenty_opens(
    backend: StateBackend, small_file: tuple[str, bytes]
) -> None:
    """A page of a huge folder opens the files that it shows and no other."""
    newest = stamped(backend, 20, small_file)
    oldest = path_of(backend, newest[-1])
    for number in range(10_000):
        session_id = ids.session_id_from(START - timedelta(minutes=number + 1), bytes(10))
        os.link(oldest, path_of(backend, session_id))
    with files_opened() as seen:
        page = backend.list(limit=20)
    assert found_ids(page) == newest
    assert session_files(seen) == sorted(newest)
    with files_opened() as seen:
        assert len(list(backend.ids())) == 10_020
    assert not session_files(seen)


@pytest.mark.slow
def test_ten_thousand_sessions_in_pages(
    backend: StateBackend, small_file: tuple[str, bytes]
) -> None:
    """Page after page shows every session once, also while new ones are being created."""
    every = stamped(backend, 10_000, small_file)
    seen: list[str] = []
    while page := backend.list(limit=100, after=seen[-1] if seen else None):
        seen += found_ids(page)
        if len(seen) % 1000 == 0:
            new(backend)
    assert seen == every


def test_pages_follow_each_other(backend: StateBackend, small_file: tuple[str, bytes]) -> None:
    """Pages of any size put together are the whole list, and a limit of None is the whole."""
    every = stamped(backend, 30, small_file)
    for size in (1, 7, 30, 31):
        seen: list[str] = []
        while page := backend.list(limit=size, after=seen[-1] if seen else None):
            seen += found_ids(page)
        assert seen == every
    assert found_ids(backend.list(limit=None)) == every
    assert backend.list(limit=0) == []


def test_a_page_can_go_on_behind_a_session_that_is_gone(
    backend: StateBackend, small_file: tuple[str, bytes]
) -> None:
    """The cursor is an id, not a file: it works after its session was removed."""
    every = stamped(backend, 6, small_file)
    path_of(backend, every[2]).unlink()
    assert found_ids(backend.list(after=every[2])) == every[3:]


def test_files_deleted_by_hand_drop_out(
    backend: StateBackend, small_file: tuple[str, bytes]
) -> None:
    """Ten files that are gone are not listed, and no error tells of them."""
    every = stamped(backend, 30, small_file)
    for session_id in every[5:15]:
        path_of(backend, session_id).unlink()
    assert found_ids(backend.list(limit=None)) == every[:5] + every[15:]


def test_files_deleted_while_listing_drop_out(
    backend: StateBackend, small_file: tuple[str, bytes]
) -> None:
    """A scan under way passes over a file that goes before it is reached."""
    every = stamped(backend, 5, small_file)
    scan = backend.scan()
    first = next(scan)
    path_of(backend, every[1]).unlink()
    shutil.rmtree(backend.directory / ".locks", ignore_errors=True)
    assert [first.session_id, *(one.session_id for one in scan)] == [every[0], *every[2:]]


def test_a_file_copied_in_by_hand_appears(backend: StateBackend, tmp_path: Path) -> None:
    """A session from another state folder is listed, read and opened at once."""
    elsewhere = StateBackend(tmp_path / "elsewhere")
    session_id = full(elsewhere)
    new(backend)
    shutil.copy(path_of(elsewhere, session_id), backend.directory)
    assert session_id in found_ids(backend.list())
    with backend.read(session_id) as view:
        assert view.counts().events == 5
    with backend.open(session_id) as session:
        session.set_status("running")
        assert call(session) == 6


@pytest.mark.parametrize("where", ["first", "last", "middle"])
def test_one_damaged_file_never_ends_the_listing(
    backend: StateBackend, small_file: tuple[str, bytes], where: str
) -> None:
    """Wherever it stands, it is one row with a reason, and all others are there."""
    every = stamped(backend, 5, small_file)
    bad = every[{"first": 0, "middle": 2, "last": 4}[where]]
    damage_page(path_of(backend, bad), "session_meta")
    found = backend.list()
    assert found_ids(found) == every
    assert [one.session_id for one in found if isinstance(one, BadSession)] == [bad]


def test_foreign_words_and_times_are_shown_as_they_are(backend: StateBackend) -> None:
    """A status or a time in another form is handed out as the stored text; nothing fails."""
    path = path_of(backend, full(backend))
    foreign = {
        "status": "zombie",
        "started_at": "yesterday",
        "ended_at": "2026-13-01T00:00:00.000Z",
    }
    for column, text in foreign.items():
        sql(path, f"UPDATE session_meta SET {column} = ?", text)
    (listed,) = backend.list()
    with backend.read(path.stem) as view:
        info = view.info
    assert listed == info
    assert {column: getattr(info, column) for column in foreign} == foreign


@pytest.mark.parametrize("value", [7, 2.5])
def test_numbers_for_times_do_not_end_the_listing(backend: StateBackend, value: float) -> None:
    """SQLite keeps them as text in a column of text, which is shown like any other foreign form."""
    path = path_of(backend, full(backend))
    sql(path, "UPDATE session_meta SET started_at = ?, ended_at = ?", value, value)
    sql(path, "UPDATE events SET timestamp = ?", value)
    (listed,) = backend.list()
    assert getattr(listed, "started_at", None) == str(value)
    with backend.read(path.stem) as view:
        assert {event.timestamp for event in view.events()} == {str(value)}


def test_a_blob_for_a_time_is_a_flagged_row(backend: StateBackend) -> None:
    """In the one row of a session it is damage, as at open; in an event it is shown as text."""
    sound, damaged = path_of(backend, full(backend)), path_of(backend, full(backend))
    sql(damaged, "UPDATE session_meta SET started_at = ?", b"\xff\x00")
    sql(sound, "UPDATE events SET timestamp = ?", b"\xff\x00")
    found = {one.session_id: one for one in backend.list()}
    flagged = found[damaged.stem]
    assert isinstance(flagged, BadSession)
    assert "started_at has the wrong type" in flagged.problem
    assert isinstance(found[sound.stem], SessionInfo)
    with backend.read(sound.stem) as view:
        assert {type(event.timestamp) for event in view.events()} == {str}


@pytest.mark.parametrize(("stored", "read"), [("text", b"text"), (7, b"7")])
def test_a_payload_of_another_type_reads_as_bytes(
    backend: StateBackend, stored: object, read: bytes
) -> None:
    """A foreign program may have stored a payload as text; here it is always bytes."""
    path = path_of(backend, new(backend, events=1))
    sql(path, "UPDATE events SET payload = ?", stored)
    with backend.read(path.stem) as view:
        assert [event.payload for event in view.events()] == [read]


def test_a_text_that_is_not_utf8_is_a_flagged_row(backend: StateBackend) -> None:
    """Bytes that are no text, in a column of text, are damage of that session alone."""
    good, bad = full(backend), full(backend)
    sql(path_of(backend, bad), "UPDATE session_meta SET profile = CAST(x'ff' AS TEXT)")
    found = backend.list()
    assert {one.session_id: type(one) for one in found} == {good: SessionInfo, bad: BadSession}


def test_file_times_mean_nothing(backend: StateBackend, small_file: tuple[str, bytes]) -> None:
    """Touching all files in any order leaves every listing as it was."""
    every = stamped(backend, 12, small_file)
    before = backend.list(limit=None)
    shuffled = random.Random(7).sample(every, len(every))
    for number, session_id in enumerate(shuffled):
        os.utime(path_of(backend, session_id), (number, number))
    assert backend.list(limit=None) == before
    assert found_ids(before) == every


def test_the_order_shown_is_the_order_sorted_by(backend: StateBackend) -> None:
    """Newest id first, also where the stored start says otherwise or is equal."""
    made = [new(backend, started_at=START) for _ in range(5)]
    sql(
        path_of(backend, made[0]), "UPDATE session_meta SET started_at = '2030-01-01T00:00:00.000Z'"
    )
    assert found_ids(backend.list()) == sorted(made, reverse=True)
    assert [node.session.session_id for node in backend.tree().nodes] == sorted(made, reverse=True)


def test_since_and_until_go_by_the_id(backend: StateBackend) -> None:
    """Since takes its moment in, until leaves it out; a time before 1970 is just early."""
    days = [new(backend, started_at=START + timedelta(days=day)) for day in range(4)]
    since, until = START + timedelta(days=1), START + timedelta(days=3)
    assert found_ids(backend.list(since=since)) == days[:0:-1]
    assert found_ids(backend.list(since=since, until=until)) == [days[2], days[1]]
    long_ago = datetime(1950, 1, 1, tzinfo=UTC)
    assert found_ids(backend.list(since=long_ago)) == days[::-1]
    assert backend.list(until=long_ago) == []


def test_filters_leave_the_rest_out(backend: StateBackend) -> None:
    """By status, profile, parent, or having none, each alone and together, before the limit."""
    root = new(backend, profile="a")
    child = new(backend, profile="b", parent_session_id=root)
    done = full(backend, profile="a", parent_session_id=root)
    assert found_ids(backend.list(status="completed")) == [done]
    assert found_ids(backend.list(profile="a")) == [done, root]
    assert found_ids(backend.list(parent_session_id=root)) == [done, child]
    assert found_ids(backend.list(roots=True, limit=1)) == [root]
    assert backend.list(profile="b", status="completed") == []


def test_a_listing_leaves_a_folder_as_it_was(
    backend: StateBackend, small_file: tuple[str, bytes]
) -> None:
    """No sidecar appears beside closed sessions, whether they were changed just now or long ago."""
    stamped(backend, 50, small_file)
    for _ in range(3):
        full(backend)
    before = listing(backend.directory)
    backend.list(limit=None)
    backend.tree()
    assert listing(backend.directory) == before


def test_a_killed_writers_commits_are_seen(backend: StateBackend) -> None:
    """What is only in the log of a dead writer counts in the listing."""
    session_id = killed_writer(backend)
    (found,) = backend.list()
    assert (found.session_id, getattr(found, "cost_usd", None)) == (session_id, 0.25)


def test_a_missing_folder_is_an_empty_one(backend: StateBackend) -> None:
    """Nothing was created yet, so there is nothing to list, and looking makes no folder."""
    assert backend.list() == []
    assert not [*backend.scan(), *backend.ids(), *backend.stale()]
    assert backend.tree().nodes == ()
    assert not backend.directory.exists()
