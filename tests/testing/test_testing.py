"""What ``statebackend.testing`` offers to other people's tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from statebackend import EventKind, Producer, StateBackend
from statebackend.testing import fixed_clock, fixed_ids, temporary_backend
from tests import released_files

TOOL = Producer("tool", "shell", "1")


def _record(backend: StateBackend) -> Path:
    with backend.create("x") as session:
        session.append(EventKind.TOOL_CALL, producer=TOOL, payload=b"1", schema_version="1")
        session.append(EventKind.TOOL_RESULT, producer=TOOL, payload=b"2", schema_version="1")
        return session.path


def test_a_temporary_backend_is_real_and_vanishes() -> None:
    """Sessions are files as everywhere, and gone with the block."""
    with temporary_backend() as backend:
        path = _record(backend)
        assert path.is_file()
    assert not path.parent.exists()


def test_time_and_ids_can_be_fixed() -> None:
    """Two runs under fixed clock and ids make the same session."""
    made = []
    for _ in range(2):
        with temporary_backend() as backend, fixed_clock(), fixed_ids():
            path = _record(backend)
            made.append((path.name, released_files.rows(path)))
    assert made[0] == made[1]


def test_the_clock_goes_by_steps() -> None:
    """The first time asked for is the start, each further one a step later."""
    start, step = datetime(2030, 1, 1, tzinfo=UTC), timedelta(seconds=5)
    with temporary_backend() as backend, fixed_clock(start, step):
        with backend.create("x") as session:
            times = [
                session.append_prompt(payload=b"", schema_version="1").timestamp for _ in range(2)
            ]
        assert session.path.is_file()
    (first, second) = times
    assert isinstance(first, datetime)
    assert isinstance(second, datetime)
    assert second - first == step


def test_time_and_ids_vary_again_afterwards() -> None:
    """Outside the blocks nothing is fixed."""
    with temporary_backend() as backend:
        with fixed_clock(), fixed_ids():
            fixed = _record(backend)
        free = _record(backend)
    assert fixed.name < free.name
    assert free.name[10:] != fixed.name[10:]


def test_contents_tell_every_file(tmp_path: Path) -> None:
    """Also those in hidden folders, by their paths."""
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    assert sorted(released_files.contents(tmp_path)) == [".hidden/a", "b"]
