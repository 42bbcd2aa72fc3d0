"""SB-26 and SB-39: the catalogue of many sessions is derived, and outside their folder."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest

from statebackend import StateBackend
from statebackend.bulk import cross_session
from statebackend.catalogue import Catalogue
from statebackend.scanning import scan
from tests.answers import differences
from tests.conformance.test_across import bad_files
from tests.session_files import (
    files_opened,
    full,
    killed_writer,
    listing,
    new,
    path_of,
    session_files,
    snapshot,
)


def quiet() -> None:
    """Wait until the files just written may be relied on."""
    time.sleep(0.15)


@pytest.fixture
def many(backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Create a folder that is large enough for a catalogue; return its ids, newest first."""
    monkeypatch.setattr(cross_session, "CATALOGUE_FROM", 20)
    root = new(backend)
    made = [root] + [full(backend, parent_session_id=root) for _ in range(30)]
    quiet()
    return sorted(made, reverse=True)


@pytest.mark.conformance("SB-39")
def test_sb39_a_page_of_the_newest_opens_only_what_it_shows(
    backend: StateBackend, many: list[str]
) -> None:
    """It neither needs nor creates a catalogue."""
    with files_opened() as seen:
        found = backend.list(limit=5)
    assert [one.session_id for one in found] == many[:5]
    assert session_files(seen) == sorted(many[:5])


@pytest.mark.conformance("SB-39")
def test_sb39_a_second_question_opens_no_file_that_has_not_changed(
    backend: StateBackend, many: list[str]
) -> None:
    """Trees, sums, rules, producers and filters are answered from the catalogue."""
    backend.tree()
    changed = many[3]
    with backend.open(changed) as session:
        session.set_status("running")
    with files_opened() as seen:
        assert len(backend.tree().nodes) == len(many)
        backend.cost_by("model")
        backend.plan_rules()
        backend.referenced_producers()
        backend.stale()
        assert len(backend.list(limit=None, status="completed")) == len(many) - 2
    known = Catalogue(backend.directory).path.stem
    assert set(session_files(seen)) == {changed, known}


@pytest.mark.conformance("SB-39")
def test_sb39_a_tree_among_many_opens_its_root_alone(
    backend: StateBackend, many: list[str]
) -> None:
    """For the children and the inclusive cost of one session."""
    root = many[-1]
    backend.tree()
    with files_opened() as seen:
        assert len(backend.children(root)) == len(many) - 1
        assert backend.cost(root, tree=True).sessions == len(many)
    assert set(session_files(seen)) == {root, Catalogue(backend.directory).path.stem}


@pytest.mark.conformance("SB-39", "SB-26")
def test_sb39_the_cache_can_be_deleted(backend: StateBackend, many: list[str]) -> None:
    """At any time: the next question creates it again, with the same answer."""
    before = backend.tree()
    catalogue = Catalogue(backend.directory)
    for path in catalogue.path.parent.glob(f"{catalogue.path.name}*"):
        path.unlink()
    assert backend.tree() == before
    assert catalogue.is_there()
    assert not differences(backend, many[:1])


@pytest.mark.conformance("SB-26")
def test_sb26_a_cache_over_an_empty_folder_hides_nothing(
    backend: StateBackend, tmp_path: Path
) -> None:
    """A hundred files put in after it was created are all listed at once (report 24)."""
    backend.directory.mkdir()
    Catalogue(backend.directory).refresh()
    assert backend.tree().nodes == ()
    elsewhere = StateBackend(tmp_path / "elsewhere")
    made = [new(elsewhere, profile="p") for _ in range(100)]
    for session_id in made:
        shutil.copy(path_of(elsewhere, session_id), backend.directory)
    found = backend.list(limit=None, profile="p")
    assert [one.session_id for one in found] == sorted(made, reverse=True)
    assert len(backend.tree().nodes) == 100


@pytest.mark.conformance("SB-26")
def test_sb26_the_cache_has_no_ghosts(backend: StateBackend, many: list[str]) -> None:
    """Files that were deleted by hand are in no answer (report 25)."""
    backend.tree()
    for session_id in many[2:12]:
        path_of(backend, session_id).unlink()
    left = many[:2] + many[12:]
    assert sorted(node.session.session_id for node in backend.tree().nodes) == sorted(left)
    children = backend.children(many[-1])
    assert [one.session_id for one in children] == left[:-1]


@pytest.mark.conformance("SB-26")
def test_sb26_a_file_put_in_by_hand_is_known_at_once(
    backend: StateBackend, many: list[str], tmp_path: Path
) -> None:
    """A session of another folder is included in sums and can be opened (report 26)."""
    backend.tree()
    elsewhere = StateBackend(tmp_path / "elsewhere")
    session_id = full(elsewhere, parent_session_id=many[-1])
    shutil.copy(path_of(elsewhere, session_id), backend.directory)
    assert session_id in [one.session_id for one in backend.children(many[-1])]
    with backend.read(session_id) as view:
        assert view.counts().events == 5


@pytest.mark.conformance("SB-27")
def test_sb27_bad_files_are_in_no_cache(backend: StateBackend, many: list[str]) -> None:
    """Each is flagged in each answer, with the reason a scan gives (report 27)."""
    bad = bad_files(backend)
    quiet()
    for _ in range(2):
        assert not differences(backend, many[:1])
        assert {one.session_id for one in backend.tree().unreadable} == bad
        flagged = {one.session_id: one.problem for one in backend.tree().unreadable}
        scanned = StateBackend(backend.directory, catalogue=False).tree().unreadable
        assert flagged == {one.session_id: one.problem for one in scanned}


@pytest.mark.conformance("SB-26", "SB-27")
def test_sb26_the_folder_is_as_it_was(backend: StateBackend, many: list[str]) -> None:
    """Names, bytes, modes and times, also beside the WAL of a killed writer (report 29)."""
    bad_files(backend)
    killed = killed_writer(backend)
    quiet()
    backend.list(limit=None)  # SQLite's index of the log is made by the first reader
    before = snapshot(backend.directory)
    for _ in range(2):
        assert not differences(backend, [killed])
    Catalogue(backend.directory).rebuild()
    after = snapshot(backend.directory)
    shared_memory = f"{path_of(backend, killed)}-shm"
    assert before.pop(shared_memory).mode == after.pop(shared_memory).mode
    assert after == before
    assert [node.own.cost_usd for node in backend.tree(killed).nodes] == [0.25]


@pytest.mark.conformance("SB-26")
def test_sb26_file_times_do_not_order_answers(backend: StateBackend, many: list[str]) -> None:
    """After touching all files, every answer is in the order of the ids (reports 30, 31)."""
    before = backend.tree(), backend.children(many[-1]), backend.list(limit=None, profile="default")
    shuffled = random.Random(5).sample(many, len(many))
    for number, session_id in enumerate(shuffled):
        os.utime(path_of(backend, session_id), (number, number))
    after = backend.tree(), backend.children(many[-1]), backend.list(limit=None, profile="default")
    assert after == before
    assert [one.session_id for one in after[1]] == many[:-1]


@pytest.mark.conformance("SB-26")
def test_sb26_pages_have_no_gap_while_sessions_come_and_go(
    backend: StateBackend, many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filtered listing continues after the last id, even if that is deleted (report 23)."""
    monkeypatch.setattr(scan, "READ_FIRST", 3)
    children = many[:-1]
    seen: list[str] = []
    while page := backend.list(limit=4, status="completed", after=seen[-1] if seen else None):
        seen += [one.session_id for one in page]
        full(backend)
        path_of(backend, seen[-1]).unlink()
    assert seen == children


@pytest.mark.conformance("SB-26")
def test_sb26_no_other_file_is_beside_the_sessions(backend: StateBackend, many: list[str]) -> None:
    """The cache is in the cache folder; the sessions' folder holds sessions."""
    before = listing(backend.directory)
    backend.tree()
    assert Catalogue(backend.directory).is_there()
    assert listing(backend.directory) == before
    assert not Catalogue(backend.directory).path.is_relative_to(backend.directory.parent)
