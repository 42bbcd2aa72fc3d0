"""Recovering one session on request."""

from __future__ import annotations

import pytest

from statebackend import SchemaTooNew, SessionLocked, SessionNotFound, StateBackend
from statebackend.bulk.migration import recover_damaged
from tests.session_files import UNKNOWN_ID, damage_index, full, path_of, snapshot, sql


def test_a_sound_session_stays_as_it_is(backend: StateBackend) -> None:
    """It is not even opened for writing."""
    path = path_of(backend, full(backend))
    before = snapshot(path.parent)
    assert recover_damaged(path) is None
    assert snapshot(path.parent) == before


def test_a_damaged_session_is_recovered(backend: StateBackend) -> None:
    """The report is that of the recovery, and the session is closed again."""
    path = path_of(backend, full(backend))
    damage_index(path)
    report = recover_damaged(path)
    assert report is not None
    assert report.complete
    assert recover_damaged(path) is None


def test_what_cannot_be_opened_is_an_error(backend: StateBackend) -> None:
    """A live session, a newer one, and none."""
    with backend.create("default") as session, pytest.raises(SessionLocked):
        recover_damaged(session.path)
    path = path_of(backend, full(backend))
    sql(path, "PRAGMA user_version = 9")
    with pytest.raises(SchemaTooNew):
        recover_damaged(path)
    with pytest.raises(SessionNotFound):
        recover_damaged(path_of(backend, UNKNOWN_ID))
