"""Opening for reading: beside a writer, and of an older file."""

from __future__ import annotations

from pathlib import Path

import pytest

from statebackend import SessionLocked, StateBackend
from statebackend.files.header import Header
from statebackend.opening import write
from tests.chains import make_chain, program_of
from tests.session_files import full, path_of, sql


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


def test_a_version_that_sqlite_does_not_see_is_migrated(
    backend: StateBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The WAL's bytes may show a migration whose commit a power loss has cut off."""
    path = path_of(backend, full(backend))

    def read_newer(path: Path, *, claimed: bool) -> Header:
        return Header(path.stat().st_size, 4096, 3)

    monkeypatch.setattr(write, "check_header_and_wal", read_newer)
    with program_of(make_chain(tmp_path / "chain", 3)), backend.read(path.stem) as view:
        assert view.counts().events == 5
    assert sql(path, "PRAGMA user_version") == [(3,)]
