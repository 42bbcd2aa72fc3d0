"""The check of a WAL before SQLite reads it, where a writer comes meanwhile."""

from __future__ import annotations

import pytest

from statebackend import SessionDamaged, StateBackend
from statebackend.files import header
from statebackend.sqlite import wal_check
from tests.session_files import killed_writer, path_of


def test_a_problem_counts_only_if_it_is_found_twice(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that restarts the WAL during the check makes it look broken for a moment."""
    path = path_of(backend, killed_writer(backend))
    page_size = header.read_header(path).page_size
    problems = iter(["broken", None, "broken", "broken in another way", None, "broken", "broken"])
    monkeypatch.setattr(wal_check, "_find_problem", lambda *_given: next(problems))
    wal_check.check_wal(path, page_size)
    wal_check.check_wal(path, page_size)
    with pytest.raises(SessionDamaged, match="broken"):
        wal_check.check_wal(path, page_size)


def test_a_wal_that_goes_on_changing_is_a_writers(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content at one moment says nothing."""
    path = path_of(backend, killed_writer(backend))
    page_size = header.read_header(path).page_size

    def grow(*_given: object) -> str:
        with path.with_name(f"{path.name}-wal").open("ab") as wal:
            wal.write(b"\0")
        return "broken"

    monkeypatch.setattr(wal_check, "_find_problem", grow)
    wal_check.check_wal(path, page_size)
