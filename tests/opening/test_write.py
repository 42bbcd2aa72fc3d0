"""Opening for writing: the order of the steps, and what a failed one leaves."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from statebackend import (
    SessionDamaged,
    SessionNotFound,
    SessionUnreadable,
    StateBackend,
)
from statebackend.files import claim, header
from statebackend.opening import write
from statebackend.sqlite import authorizer, engine
from tests.session_files import (
    UNKNOWN_ID,
    call,
    damage_index,
    full,
    killed_writer,
    listing,
    path_of,
    sql,
)


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


def test_a_file_that_is_not_in_wal_mode_becomes_so(backend: StateBackend) -> None:
    """By the writer, not by a reader."""
    path: Path = path_of(backend, full(backend))
    sql(path, "PRAGMA journal_mode = DELETE")
    with backend.read(path.stem):
        pass
    assert path.read_bytes()[18:20] == b"\1\1"
    with backend.open(path.stem):
        pass
    assert path.read_bytes()[18:20] == b"\2\2"


def test_a_shm_that_a_reader_makes_meanwhile_is_not_write_protected(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not exist when its permissions are asked for first, and then it does."""
    session_id = full(backend)
    access, made = os.access, []

    def make_shm(path: Path, mode: int) -> bool:
        allowed = access(path, mode)
        if str(path).endswith("-shm") and not allowed:
            Path(path).touch()
            made.append(path)
        return allowed

    with monkeypatch.context() as patch:
        patch.setattr(os, "access", make_shm)
        backend.open(session_id).close()
    assert made


def record_steps(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each step as it begins."""
    steps: list[str] = []

    def record(module: ModuleType, name: str) -> None:
        function = getattr(module, name)

        def recorded(*arguments: object, **named: object) -> object:
            steps.append(name)
            return function(*arguments, **named)

        patch.setattr(module, name, recorded)

    for step in STEPS:
        owners = {"find_session": header}
        record(owners.get(step, claim if hasattr(claim, step) else write), step)
    return steps


STEPS = [
    "find_session",
    "refuse_if_held_here",
    "refuse_newer_version",
    "check_permissions",
    "acquire",
    "remove_unfinished_create",
    "refuse_second_name",
    "check_header_and_wal",
    "read_file_ahead",
    "check_integrity",
    "recover",
    "connect",
]


def test_the_steps_of_an_open_have_an_order(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a WAL; a damaged file is recovered where its check fails."""
    session_id = killed_writer(backend)
    with monkeypatch.context() as patch:
        steps = record_steps(patch)
        backend.open(session_id).close()
    assert steps == [step for step in STEPS if step != "recover"]
    damage_index(path_of(backend, session_id))
    with monkeypatch.context() as patch:
        steps = record_steps(patch)
        backend.open(session_id).close()
    assert steps == [*STEPS[:9], "connect", "recover", "refuse_second_name", "connect"]


def test_a_damaged_session_is_left_alone_on_request(backend: StateBackend) -> None:
    """The error has the findings, and the folder stays as it was."""
    path = path_of(backend, full(backend))
    damage_index(path)
    before = path.read_bytes()
    with pytest.raises(SessionDamaged) as caught:
        write.open_for_writing(path, may_recover=False)
    assert caught.value.findings
    assert path.read_bytes() == before
    assert listing(backend.directory) == [".locks", path.name]
