"""SB-26 to SB-29: listing and trees from the files alone, without writing, deleting or an index."""

from __future__ import annotations

import ast
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from statebackend import BadSession, SessionInfo, SessionUnreadable, StateBackend
from tests.session_files import (
    START,
    UNKNOWN_ID,
    call,
    damage_index,
    damage_page,
    files_opened,
    fill,
    full,
    killed_writer,
    listing,
    new,
    path_of,
    session_files,
    snapshot,
    sql,
)


def bad_files(backend: StateBackend) -> set[str]:
    """Put every kind of bad session file into the folder and return their stems."""
    made: set[str] = set()

    def bad(number: int) -> Path:
        session_id = f"01KJMG7C0000000000000000{number:02}"
        made.add(session_id)
        return path_of(backend, session_id)

    whole = path_of(backend, full(backend))

    def good(path: Path) -> Path:
        image = whole.read_bytes().replace(whole.stem.encode(), path.stem.encode())
        path.write_bytes(image)
        return path

    bad(1).write_bytes(b"")
    bad(2).write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    bad(3).write_bytes(bytes(range(256)) * 200)
    sql(good(bad(4)), "PRAGMA user_version = 99")
    bad(5).mkdir()
    bad(6).symlink_to("nowhere")
    damaged = good(bad(7))
    damaged.rename(damaged.with_name(damaged.name + ".corrupt"))
    bad(8).with_name(bad(8).name + "-wal").write_bytes(b"left over")
    bad(9).write_bytes(whole.read_bytes())
    sql(good(bad(10)), "DELETE FROM session_meta")
    sql(bad(11), "CREATE TABLE other (x)")
    sql(good(bad(12)), "PRAGMA user_version = 0")
    bad(13).write_bytes(whole.read_bytes()[:100])
    os.mkfifo(bad(14))
    sql(good(bad(15)), "INSERT INTO session_meta SELECT 'x', NULL, 'p', 'running', 0, '', NULL")
    return made


@pytest.mark.conformance("SB-26")
def test_sb26_the_folder_is_the_truth(backend: StateBackend) -> None:
    """A new file is listed, a deleted one is not, and nothing else is stored anywhere."""
    first, second = new(backend), new(backend)
    aside = backend.directory.parent / "aside.sqlite"
    path_of(backend, first).rename(aside)
    assert [one.session_id for one in backend.list()] == [second]
    aside.rename(path_of(backend, first))
    assert [one.session_id for one in backend.list()] == [second, first]
    assert listing(backend.directory.parent) == ["sessions"]


@pytest.mark.conformance("SB-26")
def test_sb26_children_and_trees_come_from_session_meta(backend: StateBackend) -> None:
    """Changing the stored parent, with any program, changes the tree."""
    parent, other = new(backend), new(backend)
    child = new(backend, parent_session_id=parent)
    assert [one.session_id for one in backend.children(parent)] == [child]
    sql(path_of(backend, child), "UPDATE session_meta SET parent_session_id = ?", other)
    assert backend.children(parent) == []
    levels = {node.session.session_id: node.level for node in backend.tree(other).nodes}
    assert levels == {other: 0, child: 1}


@pytest.mark.conformance("SB-26")
def test_sb26_a_listing_reads_one_row_and_one_sum_a_file(backend: StateBackend) -> None:
    """Events are not read: a listing works while the events table cannot be read."""
    session_id = full(backend)
    damage_page(path_of(backend, session_id), "events")
    (found,) = backend.list()
    assert isinstance(found, SessionInfo)
    assert found.cost_usd == 0.25


@pytest.mark.conformance("SB-27")
def test_sb27_one_bad_file_is_one_flagged_row(backend: StateBackend) -> None:
    """Good sessions are all listed, each bad file once with its reason in one line."""
    good = {full(backend) for _ in range(4)}
    bad = bad_files(backend)
    good |= {one.session_id for one in backend.list(limit=None) if isinstance(one, SessionInfo)}
    found = backend.list(limit=None)
    assert {one.session_id for one in found if isinstance(one, SessionInfo)} == good
    flagged = [one for one in found if isinstance(one, BadSession)]
    assert sorted(one.session_id for one in flagged) == sorted(bad)
    assert len(good) == 5
    assert not [one for one in flagged if "\n" in one.problem or not one.problem]
    assert [one.session_id for one in backend.scan()] == [one.session_id for one in found]
    assert list(backend.ids()) == sorted(good | bad, reverse=True)


@pytest.mark.conformance("SB-27")
def test_sb27_trees_and_sums_say_that_they_are_partial(backend: StateBackend) -> None:
    """Every question across sessions continues past the bad files and names them."""
    session_id = full(backend)
    bad = len(bad_files(backend))
    assert len(backend.tree().unreadable) == bad
    assert backend.cost(session_id, tree=True).partial
    assert len(backend.cost_by("model").unreadable) == bad
    assert len(backend.plan_rules().unreadable) == bad
    assert len(backend.referenced_producers().unreadable) == bad
    assert len(backend.stale()) == bad
    assert len(backend.children(session_id)) == bad
    assert not backend.cost(session_id).partial


@pytest.mark.conformance("SB-27")
def test_sb27_a_bad_session_is_refused_by_reading_too(backend: StateBackend) -> None:
    """A file flagged in a listing raises an error of its own kind when it is read.

    Only what has no version may turn out, when it is looked at closely, to be no session at all.
    """
    bad_files(backend)
    flagged = [one for one in backend.list(limit=None) if isinstance(one, BadSession)]
    for one in flagged:
        unversioned = "no schema version" in one.problem
        for method in (backend.read, backend.cost):
            with pytest.raises((type(one.error), *[SessionUnreadable] * unversioned)):
                method(one.session_id)


@pytest.mark.conformance("SB-27")
def test_sb27_a_scan_changes_nothing(backend: StateBackend) -> None:
    """Bytes, times, modes and names are the same after every query across the sessions."""
    bad_files(backend)
    damage_index(path_of(backend, full(backend)))
    killed = killed_writer(backend)
    sql(path_of(backend, full(backend)), "PRAGMA journal_mode = DELETE")
    time.sleep(0.2)  # a file that has just changed is read with SQLite's locks, beside a log
    before = snapshot(backend.directory)
    backend.list(limit=None)
    backend.tree()
    backend.cost(killed, tree=True)
    backend.cost_by("day", tree=True)
    backend.plan_rules()
    backend.referenced_producers()
    backend.stale()
    after = snapshot(backend.directory)
    shared_memory = f"{path_of(backend, killed)}-shm"  # an index of the log that readers share
    assert before.pop(shared_memory).mode == after.pop(shared_memory).mode
    assert after == before


@pytest.mark.conformance("SB-27")
def test_sb27_a_file_and_its_wal_from_elsewhere_stay_as_they_are(backend: StateBackend) -> None:
    """Listing them adds no more than the shm that SQLite shares among readers."""
    path = path_of(backend, killed_writer(backend))
    path.with_name(path.name + "-shm").unlink()
    before = snapshot(backend.directory)
    (found,) = backend.list()
    assert isinstance(found, SessionInfo)
    assert found.cost_usd == 0.25
    after = snapshot(backend.directory)
    after.pop(f"{path}-shm")
    assert after.pop(str(backend.directory)).mode == before.pop(str(backend.directory)).mode
    assert after == before


@pytest.mark.conformance("SB-28")
def test_sb28_a_live_session_opens_no_other_file(backend: StateBackend) -> None:
    """Creating a child, appending and reading sums open no file but the session's own."""
    parent = full(backend)
    with files_opened() as seen, backend.create("p", parent_session_id=parent, depth=1) as session:
        fill(session)
        session.cost_totals()
        session.set_status("completed")
    assert session_files(seen) == [session.session_id]


@pytest.mark.conformance("SB-28")
def test_sb28_depth_and_parent_are_taken_as_given(backend: StateBackend) -> None:
    """The caller's live state decides: neither is derived from, or checked against, the files."""
    with backend.create("p", parent_session_id=UNKNOWN_ID, depth=7) as session:
        assert (session.info.parent_session_id, session.info.depth) == (UNKNOWN_ID, 7)


@pytest.mark.conformance("SB-28")
def test_sb28_the_writing_side_does_not_know_the_scan(root: Path) -> None:
    """No module of a live session imports what reads across files."""
    for name in (
        "recording/session",
        "reading/view",
        "recording/appends",
        "repositories/events",
        "repositories/meta",
    ):
        source = (root / "src" / "statebackend" / f"{name}.py").read_text()
        imported = {
            alias.name
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.ImportFrom | ast.Import)
            for alias in node.names
        }
        assert not imported & {"scan", "tree", "backend", "StateBackend"}, name


@pytest.mark.conformance("SB-29")
def test_sb29_nothing_is_ever_deleted(backend: StateBackend) -> None:
    """Old sessions, and the files beside them, survive every operation of the library."""
    long_ago = START - timedelta(days=365 * 7)
    for day in range(20):
        full(backend, started_at=long_ago + timedelta(days=day))
    bad_files(backend)
    (backend.directory / "notes.txt").write_text("not ours")
    before = listing(backend.directory)
    backend.list(limit=None)
    backend.tree()
    some = [one for one in backend.list(limit=None) if isinstance(one, SessionInfo)]
    for one in some:
        with backend.read(one.session_id):
            pass
        with backend.open(one.session_id) as session:
            if session.info.status != "running":
                session.set_status("running")
            call(session)
    StateBackend(backend.directory)
    assert listing(backend.directory) == sorted({*before, ".locks"})


@pytest.mark.conformance("SB-29")
def test_sb29_the_library_has_no_way_to_delete_a_session() -> None:
    """The store's public methods are these, and none removes a file."""
    public = {name for name in dir(StateBackend) if not name.startswith("_")}
    assert not {name for name in public if "delete" in name or "expire" in name or "remove" in name}
