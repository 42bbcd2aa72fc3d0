"""Indexing by processes that die, and by several at once: nothing half, nothing twice."""

from __future__ import annotations

import pytest

from statebackend import StateBackend
from statebackend.catalogue import Catalogue
from tests.answers import index_rows
from tests.crash import searching
from tests.crash.processes import run, several, started

pytestmark = pytest.mark.crash

SESSIONS, EVENTS = 6, 20


@pytest.fixture
def apples(backend: StateBackend) -> StateBackend:
    """Fill the folder with sessions of several portions each."""
    for _ in range(SESSIONS):
        with backend.create("default") as session, session.batch() as batch:
            for number in range(EVENTS):
                batch.append_prompt(payload=b"apple %d" % number, schema_version="1")
    return backend


@pytest.mark.parametrize("when", ["reading", "writing", "reporting"])
def test_an_indexer_killed_anywhere_leaves_nothing_half(apples: StateBackend, when: str) -> None:
    """Again and again, each time a little later; the next one goes on from what is written."""
    indexed = 0
    for step in range(1, 200, 13 if when == "reading" else 1):
        with started(searching.search_and_die, apples.directory, when, step) as child:
            said = child.rest()
        if said:
            break
        if Catalogue(apples.directory).path.exists() and step > 1:
            found = index_rows(apples)
            assert found >= indexed
            indexed = found
    assert said == [SESSIONS * EVENTS]
    assert index_rows(apples) == SESSIONS * EVENTS
    assert step > 1


def test_several_processes_index_at_once(apples: StateBackend) -> None:
    """Each finds everything, beside a session that is written meanwhile; no row is there twice."""
    with (
        apples.create("default") as session,
        several(4, searching.search_on_request, apples.directory) as children,
    ):
        for number in range(EVENTS):
            session.append_prompt(payload=b"apple %d" % number, schema_version="1")
        for child in children:
            assert child.hear() == "ready"
        for child in children:
            child.say()
        for number in range(EVENTS):
            session.append_prompt(payload=b"pear %d" % number, schema_version="1")
        told = [child.hear() for child in children]
    assert told == [{"hits": (SESSIONS + 1) * EVENTS, "partial": False}] * 4
    apples.search("pear")
    assert index_rows(apples) == (SESSIONS + 2) * EVENTS


def test_an_index_can_be_deleted_while_it_is_used(apples: StateBackend) -> None:
    """The process goes on with its own, and the next one makes another."""
    with started(searching.search_on_request, apples.directory) as child:
        assert child.hear() == "ready"
        apples.search("apple")
        Catalogue(apples.directory).path.unlink()
        assert child.ask() == {"hits": SESSIONS * EVENTS, "partial": False}
    assert run(searching.search_and_die, apples.directory, "none", "0") == [SESSIONS * EVENTS]
