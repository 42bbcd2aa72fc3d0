"""The order of the steps of opening, where a demand does not show it."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from statebackend import (
    SessionLocked,
    SessionNotFound,
    SessionUnreadable,
    StateBackend,
    StorageError,
)
from statebackend.sqlite import authorizer, engine
from tests.session_files import UNKNOWN_ID, call, full, listing, new, path_of


def test_an_unknown_session_leaves_no_trace(backend: StateBackend) -> None:
    """Neither a folder nor a lock file is made to find that out."""
    for method in (backend.open, backend.read):
        with pytest.raises(SessionNotFound) as caught:
            method(UNKNOWN_ID)
        assert (caught.value.session_id, caught.value.directory) == (UNKNOWN_ID, backend.directory)
    assert not backend.directory.exists()


def test_a_refused_open_gives_its_claim_back(backend: StateBackend) -> None:
    """After an open that failed, another finds the same, not a lock."""
    path = path_of(backend, full(backend))
    path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(SessionUnreadable):
            backend.open(path.stem)
    assert listing(backend.directory / ".locks") == []


@pytest.mark.parametrize(
    ("module", "step"),
    [(engine, "connect_for_writing"), (authorizer, "allow_appends_only")],
)
def test_a_step_that_fails_leaves_the_session_to_the_next(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str
) -> None:
    """Claim and connections are gone, so that it can be opened again."""
    session_id = full(backend)

    def fail(*_given: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(module, step, fail)
        with pytest.raises(MemoryError):
            backend.open(session_id)
    with backend.open(session_id) as session:
        session.set_status("running")
        call(session)
    assert listing(backend.directory) == [".locks", f"{session_id}.sqlite"]


def test_a_create_that_fails_while_building_leaves_nothing(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id is free again."""

    def fail(*_given: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError):
            backend.create("default", session_id=UNKNOWN_ID)
    assert listing(backend.directory) in ([], [".locks"])
    new(backend, session_id=UNKNOWN_ID)


def test_a_reader_needs_no_claim(backend: StateBackend) -> None:
    """It opens beside a writer, takes no lock, and stops no other writer."""
    with (
        backend.create("default") as session,
        backend.read(session.session_id),
        pytest.raises(SessionLocked),
    ):
        backend.open(session.session_id)
    with backend.read(session.session_id), backend.open(session.session_id):
        pass


def test_a_file_that_is_not_in_wal_mode_becomes_so(backend: StateBackend) -> None:
    """By the writer, not by a reader."""
    from tests.session_files import sql

    path: Path = path_of(backend, full(backend))
    sql(path, "PRAGMA journal_mode = DELETE")
    with backend.read(path.stem):
        pass
    assert path.read_bytes()[18:20] == b"\1\1"
    with backend.open(path.stem):
        pass
    assert path.read_bytes()[18:20] == b"\2\2"


def test_an_index_that_a_reader_makes_meanwhile_is_no_missing_right(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not there when it is asked for first, and then it is."""
    session_id = full(backend)
    access, made = os.access, []

    def reading(place: Path, mode: int) -> bool:
        told = access(place, mode)
        if str(place).endswith("-shm") and not told:
            Path(place).touch()
            made.append(place)
        return told

    with monkeypatch.context() as patch:
        patch.setattr(os, "access", reading)
        backend.open(session_id).close()
    assert made
