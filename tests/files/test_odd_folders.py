"""What lies beside, around or in place of a session's file must not cost events or mislead."""

from __future__ import annotations

import copy
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from statebackend import (
    BadSession,
    EventKind,
    InvalidValue,
    SessionDamaged,
    SessionInfo,
    SessionUnreadable,
    StateBackend,
    StateBackendError,
    StorageUnsupported,
)
from statebackend.errors import StorageError
from tests.session_files import TOOL, new, path_of


def foreign_journal(path: Path, scratch: Path) -> bytes:
    """Return the rollback journal of another program's open transaction on a copy of *path*."""
    shutil.copyfile(path, scratch)
    with closing(sqlite3.connect(scratch, isolation_level=None)) as driver:
        driver.execute("PRAGMA journal_mode = DELETE")
        driver.execute("PRAGMA cache_size = 1")
        driver.execute("BEGIN")
        driver.execute("UPDATE events SET payload = zeroblob(9000)")
        driver.execute("CREATE TABLE filler AS SELECT zeroblob(900000) AS b")
        return Path(f"{scratch}-journal").read_bytes()


@pytest.mark.parametrize("fresh", [True, False], ids=["just changed", "quiet"])
def test_a_listing_never_rolls_a_journal_back(
    backend: StateBackend, tmp_path: Path, fresh: bool
) -> None:
    """A journal beside a session is flagged, and both files keep their bytes."""
    path = path_of(backend, new(backend, events=5))
    journal = Path(f"{path}-journal")
    journal.write_bytes(foreign_journal(path, tmp_path / "scratch.db"))
    if not fresh:
        for one in (path, journal):
            os.utime(one, (1_700_000_000, 1_700_000_000))
    before = (path.read_bytes(), journal.read_bytes())
    (found,) = backend.list()
    assert isinstance(found, BadSession)
    assert "journal" in found.problem
    assert (path.read_bytes(), journal.read_bytes()) == before


def test_a_hard_link_is_not_written(backend: StateBackend, tmp_path: Path) -> None:
    """Two names would have two claims and two logs on one file."""
    path = path_of(backend, new(backend))
    other = StateBackend(tmp_path / "other")
    other.directory.mkdir()
    os.link(path, other.directory / path.name)
    for one in (backend, other):
        with pytest.raises(SessionUnreadable, match="hard link"):
            one.open(path.stem)
        assert isinstance(one.list()[0], SessionInfo)


@pytest.mark.parametrize("happens", ["removed", "moved", "replaced"])
def test_nothing_is_acknowledged_into_a_file_that_is_gone(
    backend: StateBackend, tmp_path: Path, happens: str
) -> None:
    """An append says so when its file is not at its name any more."""
    with backend.create("default") as session:
        if happens == "replaced":
            shutil.copyfile(session.path, tmp_path / "copy")
            (tmp_path / "copy").replace(session.path)
        elif happens == "moved":
            session.path.rename(tmp_path / "moved")
        else:
            session.path.unlink()
        with pytest.raises(SessionUnreadable, match="while it was open"):
            session.append(EventKind.APPLY, producer=TOOL, payload=b"", schema_version="1")


def test_a_lock_that_is_a_link_is_not_followed(backend: StateBackend, tmp_path: Path) -> None:
    """Its target keeps its bytes and its mode."""
    session_id = new(backend)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o644)
    (backend.directory / ".locks" / f"{session_id}.lock").symlink_to(victim)
    with pytest.raises(StorageError):
        backend.open(session_id)
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("precious", 0o644)
    assert isinstance(backend.list()[0], SessionInfo)


def test_a_folder_of_locks_that_is_a_link_is_refused(backend: StateBackend, tmp_path: Path) -> None:
    """Two folders could share it, or one folder have two."""
    session_id = new(backend)
    (backend.directory / ".locks").rename(tmp_path / "locks")
    (backend.directory / ".locks").symlink_to(tmp_path / "locks")
    with pytest.raises(StorageUnsupported, match="symbolic link"):
        backend.open(session_id)


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_a_pipe_beside_a_session_blocks_nobody(backend: StateBackend, ending: str) -> None:
    """Opening a pipe waits for its other end, so no sidecar is opened unseen."""
    path = path_of(backend, new(backend))
    os.mkfifo(f"{path}{ending}")
    errors: list[str] = []

    def use() -> None:
        for call in (backend.open, backend.read, lambda _: backend.list(), backend.cost):
            try:
                call(path.stem)
            except StateBackendError as error:
                errors.append(str(error))

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert all("not a regular file" in error for error in errors)
    assert len(errors) >= 2


def test_a_pipe_in_place_of_the_lock_is_refused(backend: StateBackend) -> None:
    """It is neither waited for nor taken away."""
    session_id = new(backend)
    lock = backend.directory / ".locks" / f"{session_id}.lock"
    os.mkfifo(lock)
    with pytest.raises(StorageError):
        backend.open(session_id)
    assert lock.is_fifo()


def test_a_copy_under_another_id_is_not_to_be_renamed_over_the_session(
    backend: StateBackend,
) -> None:
    """The advice depends on whether the rightful file is there."""
    path = path_of(backend, new(backend))
    other = path.with_name("01ARZ3NDEKTSV4RRFFQ69G5FAV.sqlite")
    shutil.copyfile(path, other)
    with pytest.raises(SessionUnreadable, match="move this copy out"):
        backend.open(other.stem)
    path.unlink()
    with pytest.raises(SessionUnreadable, match="rename it back"):
        backend.open(other.stem)


def test_an_open_session_is_not_copied_as_an_object(backend: StateBackend) -> None:
    """A copy's end would close the original and free its claim."""
    with backend.create("default") as session:
        for clone in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="session_id"):
                clone(session)
        session.append(EventKind.APPLY, producer=TOOL, payload=b"", schema_version="1")


def test_the_advice_fits_the_status(backend: StateBackend) -> None:
    """A final status cannot be set back to running, so nobody is told to."""
    for status, said in (("completed", "set it to running"), ("failed", "it is final")):
        with backend.create("default") as session:
            session.set_status(status)
            with pytest.raises(StateBackendError, match=said):
                session.append_prompt(payload=b"", schema_version="1")


@pytest.mark.parametrize("cursor", ["", "a/b", "a\0b", 5, b"x"])
def test_a_cursor_is_a_name(backend: StateBackend, cursor: str) -> None:
    """What no file can be called is refused."""
    new(backend)
    with pytest.raises(InvalidValue, match="after"):
        backend.list(after=cursor)


def test_pages_go_past_names_that_are_no_ids(backend: StateBackend) -> None:
    """They come last, and each can be the cursor, also when it is gone by then."""
    ids = sorted((new(backend) for _ in range(3)), reverse=True)
    names = ["ü", "lower", "Z" * 30, ids[0].lower(), " "]
    for name in names:
        (backend.directory / f"{name}.sqlite").touch()
    every = [*ids, *names]
    seen: list[str] = []
    while page := backend.list(limit=1, after=seen[-1] if seen else None):
        seen += [one.session_id for one in page]
    assert seen == every
    for number, name in enumerate(every):
        (backend.directory / f"{name}.sqlite").unlink()
        left = [one.session_id for one in backend.list(limit=None, after=name)]
        assert left == every[number + 1 :]


@pytest.mark.parametrize("cursor", ["x", "~", "!", "0", "Z" * 26, "\udcff", "a" * 300])
def test_a_cursor_that_was_never_there_has_a_place(backend: StateBackend, cursor: str) -> None:
    """That of a file with this name; so no page begins anew."""
    new(backend)
    for name in ("lower", "Z" * 30):
        (backend.directory / f"{name}.sqlite").touch()
    every = [one.session_id for one in backend.list(limit=None)]
    places = sorted([*every[1:], cursor], reverse=True)
    behind = places[places.index(cursor) + 1 :]
    assert [one.session_id for one in backend.list(limit=None, after=cursor)] == behind


@pytest.mark.parametrize("path", ["", "\0", "\ud800", "x" * 5000, 5])
def test_a_path_for_a_copy_that_is_none(backend: StateBackend, path: str) -> None:
    """The error is the package's own and nothing is written."""
    session_id = new(backend)
    with pytest.raises(StateBackendError):
        backend.copy(session_id, path)


def test_a_row_without_an_id_is_damage(backend: StateBackend) -> None:
    """SQLite lets a text key be NULL; no name fits it."""
    path = path_of(backend, new(backend))
    with closing(sqlite3.connect(path)) as driver, driver:
        driver.execute("UPDATE session_meta SET session_id = NULL")
    with pytest.raises(SessionDamaged, match="no id"):
        backend.read(path.stem)
    (found,) = backend.list()
    assert isinstance(found, BadSession)


def test_a_batch_takes_nothing_outside_its_block(backend: StateBackend) -> None:
    """What would never be written is refused at once."""
    with backend.create("default") as session:
        batch = session.batch()
        with pytest.raises(InvalidValue, match="with"):
            batch.append_prompt(payload=b"", schema_version="1")


def test_a_close_that_was_interrupted_is_finished_by_the_next(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing again frees the claim; in between nothing can be appended."""
    session = backend.create("default")
    connection = session._held.connection
    with monkeypatch.context() as patch:

        def interrupted() -> None:
            raise KeyboardInterrupt

        patch.setattr(connection, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.close()
    with pytest.raises(StateBackendError):
        session.append_prompt(payload=b"", schema_version="1")
    session.close()
    backend.open(session.session_id).close()
