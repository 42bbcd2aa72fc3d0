"""SB-30 to SB-32: the version mark, the refusal of newer files, the ladder for older ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statebackend import BadSession, SchemaTooNew, StateBackend
from statebackend.files import header
from statebackend.opening import read, write
from statebackend.schema import migrate
from statebackend.values.recorded import SCHEMA_VERSION
from tests.session_files import (
    call,
    damage_page,
    full,
    killed_writer,
    path_of,
    rows_of,
    run_python,
    snapshot,
    sql,
)

_NEWER_IN_THE_LOG = """
    import os, signal, sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("ALTER TABLE events ADD COLUMN novelty TEXT")
    connection.execute("PRAGMA user_version = 2")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def newer_file(backend: StateBackend) -> Path:
    """Make a session of a later version."""
    path = path_of(backend, full(backend))
    sql(path, "PRAGMA user_version = 2")
    return path


def newer_log(backend: StateBackend) -> Path:
    """Make a session whose later version is only in the log of a writer that was killed."""
    path = path_of(backend, full(backend))
    run_python(_NEWER_IN_THE_LOG, path, check=False)
    assert path.read_bytes()[60:64] == bytes((0, 0, 0, 1))
    assert path.with_name(path.name + "-wal").stat().st_size > 0
    return path


def newer_log_alone(backend: StateBackend) -> Path:
    """Make the same without the file of shared memory, as a copy from elsewhere would be."""
    path = newer_log(backend)
    path.with_name(path.name + "-shm").unlink()
    return path


def newer_and_damaged(backend: StateBackend) -> Path:
    """Make a session of a later version with a page of noise."""
    path = newer_file(backend)
    damage_page(path)
    return path


NEWER = [newer_file, newer_log, newer_log_alone, newer_and_damaged]


@pytest.mark.conformance("SB-30")
def test_sb30_a_new_file_carries_the_schema_version(backend: StateBackend) -> None:
    """The header of a file just created, and of one long in use, says version 1."""
    with backend.create("default") as session:
        assert int.from_bytes(session.path.read_bytes()[60:64], "big") == SCHEMA_VERSION == 1
        call(session)
    assert sql(session.path, "PRAGMA user_version") == [(1,)]


@pytest.mark.conformance("SB-31")
@pytest.mark.parametrize("make", NEWER)
@pytest.mark.parametrize("method", ["open", "read", "copy", "cost", "list", "tree"])
def test_sb31_a_newer_file_is_refused_and_untouched(
    backend: StateBackend, make: Callable[[StateBackend], Path], method: str
) -> None:
    """Both versions are told, and file, sidecars and folder are as they were, times included."""
    path = make(backend)
    before = snapshot(backend.directory)
    error = refusal(backend, path.stem, method)
    assert isinstance(error, SchemaTooNew)
    assert (error.found_version, error.supported_version) == (2, 1)
    assert "2" in error.problem
    assert snapshot(backend.directory) == before


def refusal(backend: StateBackend, session_id: str, method: str) -> Exception:
    """Return the error with which one session is refused, raised or listed."""
    if method in ("list", "tree"):
        (found,) = backend.list() if method == "list" else backend.tree().unreadable
        assert isinstance(found, BadSession)
        return found.error
    arguments = (backend.directory.parent / "copy",) if method == "copy" else ()
    with pytest.raises(SchemaTooNew) as caught:
        getattr(backend, method)(session_id, *arguments)
    assert not (backend.directory.parent / "copy").exists()
    return caught.value


@pytest.mark.conformance("SB-31")
def test_sb31_a_newer_file_is_refused_before_the_claim(backend: StateBackend) -> None:
    """Not even a lock file is made for a session that this version cannot open."""
    path = newer_file(backend)
    shutil.rmtree(backend.directory / ".locks")
    with pytest.raises(SchemaTooNew):
        backend.open(path.stem)
    assert not (backend.directory / ".locks").exists()


@pytest.mark.conformance("SB-31")
def test_sb31_the_log_of_a_writer_of_this_version_is_no_news(backend: StateBackend) -> None:
    """A killed writer's log with the same version in it is read and opened as usual."""
    session_id = killed_writer(backend)
    with backend.open(session_id) as session:
        assert call(session) == 6


@pytest.fixture
def old_file(
    backend: StateBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> Path:
    """Make a session, then let this process be a program of the next version: one more step."""
    path = path_of(backend, full(backend))
    versions = tmp_path / "migrations" / "sessions"
    shutil.copytree(root / "migrations" / "sessions", versions)
    (versions / "0002_note.py").write_text(
        'revision = "0002"\ndown_revision = "0001"\nbranch_labels = depends_on = None\n\n'
        "def upgrade(op):\n"
        '    op.execute("ALTER TABLE session_meta ADD COLUMN note TEXT")\n'
    )
    monkeypatch.setattr(migrate, "SESSIONS", migrate.Chain(versions, 2))
    for module in (read, write, header):
        monkeypatch.setattr(module, "SCHEMA_VERSION", 2)
    return path


@pytest.mark.conformance("SB-32")
@pytest.mark.parametrize("method", ["open", "read"])
def test_sb32_an_older_file_is_brought_up_before_anything_else(
    backend: StateBackend, old_file: Path, method: str
) -> None:
    """The step runs at the first open, its stamp with it, and every row stays."""
    before = rows_of(old_file)
    with getattr(backend, method)(old_file.stem) as handle:
        assert sql(old_file, "PRAGMA user_version") == [(2,)]
        assert handle.counts().events == 5
    after = rows_of(old_file)
    assert [row[:7] for row in after["session_meta"]] == before.pop("session_meta")
    assert {name: after[name] for name in before} == before


@pytest.mark.conformance("SB-32")
def test_sb32_a_scan_does_not_migrate(backend: StateBackend, old_file: Path) -> None:
    """An older file is listed by what all versions share, and stays at its version."""
    before = old_file.read_bytes()
    (found,) = backend.list()
    assert (found.session_id, getattr(found, "status", None)) == (old_file.stem, "completed")
    assert old_file.read_bytes() == before
