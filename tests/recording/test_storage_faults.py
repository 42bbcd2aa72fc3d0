"""Full disks, limits and failing fsyncs: a typed error, no half rows, a session that goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from statebackend import (
    DuplicateEvent,
    InvalidTransition,
    OutcomeUnknown,
    Session,
    SessionClosed,
    SessionExists,
    SessionStatus,
    StateBackend,
    StorageError,
    StorageFull,
)
from tests.crash.kernel import (
    Ballast,
    file_size_limit,
    needs_root,
    needs_seccomp,
    small_disk,
    without_fsync,
)
from tests.crash.samples import MODEL, append, assert_whole, cost, item, litter, session_file

pytestmark = [pytest.mark.crash, pytest.mark.conformance("SB-19")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a disk of its own of 2 MiB."""
    folder = tmp_path / "disk"
    with small_disk(folder, 2048):
        yield folder


@pytest.fixture
def small(disk: Path) -> StateBackend:
    """Return a backend on the small disk."""
    return StateBackend(disk / "sessions")


def fill(session: Session) -> None:
    """Append until the disk, or what else is limited, is full."""
    while True:
        append(session, payload=b"x" * 5000)


def batch(session: Session) -> None:
    """Append a batch of 200 kB."""
    with session.batch() as batch:
        for _ in range(50):
            batch.append_message(producer=MODEL, payload=b"x" * 4000, cost=cost())
        batch.append_plan(producer=MODEL, payload=b"{}", items=[item()])


def plan(session: Session) -> None:
    """Append a large plan."""
    session.append_plan(producer=MODEL, payload=b"x" * 100_000, items=[item()])


@needs_root
@pytest.mark.parametrize("write", [fill, batch, plan])
def test_full_disk_is_a_typed_error_and_the_session_goes_on(
    small: StateBackend, disk: Path, write: Callable[[Session], None]
) -> None:
    """Nothing of the failed write is kept; once there is room, the same session appends again."""
    with small.create("default") as session:
        append(session)
        ballast = Ballast(disk, leave=20_000)
        for _ in range(3):
            with pytest.raises(StorageFull) as caught:
                write(session)
            assert caught.value.path == session.path
        count = session.counts().events
        ballast.drop()
        assert append(session).sequence == count + 1
    assert_whole(session.path)
    assert litter(small) == set()


@needs_root
def test_full_disk_at_a_change_of_status_leaves_the_status(small: StateBackend, disk: Path) -> None:
    """The session is still running, appends and can be ended once there is room."""
    with small.create("default") as session:
        ballast = Ballast(disk)
        with suppress(StorageFull):
            fill(session)  # also what SQLite had at hand within its log
        with pytest.raises(StorageFull):
            session.set_status(SessionStatus.COMPLETED)
        assert session.info.status == "running"
        ballast.drop()
        append(session)
        session.set_status(SessionStatus.COMPLETED)
        assert session.info.status is SessionStatus.COMPLETED
    assert_whole(session.path)


@needs_root
def test_full_disk_at_create_leaves_a_whole_session_or_none(
    small: StateBackend, disk: Path
) -> None:
    """With every amount of room from none to enough; the id can be used afterwards."""
    small.create("default").close()  # the folder is there
    for number, leave in enumerate(range(0, 130_000, 8192)):
        session_id = f"01ARZ3NDEKTSV4RRFFQ69G5{number:03}"
        ballast = Ballast(disk, leave=leave)
        try:
            small.create("default", session_id=session_id).close()
        except StorageFull:
            assert not session_file(small, session_id).exists(), "an error, and yet a session"
        finally:
            ballast.drop()
        with suppress(SessionExists):
            small.create("default", session_id=session_id).close()
        with small.open(session_id) as session:
            append(session)
        assert_whole(session_file(small, session_id))
        session_file(small, session_id).unlink()
        assert litter(small) == set()


@needs_root
def test_full_disk_at_open_is_a_typed_error(small: StateBackend, disk: Path) -> None:
    """With every amount of room opening works or says why not, and works once there is room."""
    with small.create("default") as session:
        append(session)
    for leave in range(0, 60_000, 4096):
        ballast = Ballast(disk, leave=leave)
        with suppress(StorageFull), small.read(session.session_id) as view:
            view.counts()
        with suppress(StorageFull), small.open(session.session_id) as opened:
            append(opened)
        assert len(small.list()) == 1
        ballast.drop()
        with small.open(session.session_id) as opened:
            append(opened)
        assert_whole(session.path)
    assert litter(small) == set()


@needs_root
def test_full_disk_at_a_copy_names_the_copy(backend: StateBackend, disk: Path) -> None:
    """The error is about the disk that is full, no part is left, and the source goes on."""
    with backend.create("default") as session:
        for _ in range(20):
            append(session, payload=b"x" * 200_000)
        target = disk / "copy.sqlite"
        with pytest.raises(StorageFull) as caught:
            backend.copy(session.session_id, target)
        assert disk in caught.value.path.parents
        assert list(disk.iterdir()) == []
        append(session)
        assert session.counts().events == 21


def limit_pages(session: Session, extra: int) -> int:
    """Let the file grow by so many pages only; return the limit that was in force."""
    driver = session._held.driver
    driver.set_authorizer(None)
    (before,) = driver.execute("PRAGMA max_page_count").fetchone()
    (pages,) = driver.execute("PRAGMA page_count").fetchone()
    driver.execute(f"PRAGMA max_page_count = {pages + extra}")
    return int(before)


@pytest.mark.parametrize("write", [fill, batch, plan])
def test_full_file_is_a_typed_error_and_the_session_goes_on(
    backend: StateBackend, write: Callable[[Session], None]
) -> None:
    """The same through SQLite's own limit of pages."""
    with backend.create("default") as session:
        append(session)
        before = limit_pages(session, 3)
        for _ in range(3):
            with pytest.raises(StorageFull):
                write(session)
        count = session.counts().events
        session._held.driver.execute(f"PRAGMA max_page_count = {before}")
        assert append(session).sequence == count + 1
        session.set_status(SessionStatus.COMPLETED)
    assert_whole(session_file(backend, session.session_id))


def settle(backend: StateBackend, session: Session, event_id: str) -> None:
    """Do what the error of an unknown outcome asks for: open again, append with the same id."""
    with pytest.raises(SessionClosed):
        append(session)
    with backend.open(session.session_id) as reopened:
        known = reopened.event(event_id) is not None
        with pytest.raises(DuplicateEvent, match="same content") if known else nullcontext():
            append(reopened, event_id, b"x" * 5000)
        assert [event.id for event in reopened.events()].count(event_id) == 1
        append(reopened)
    assert_whole(session_file(backend, session.session_id))
    assert litter(backend) == set()


def test_write_that_the_system_refuses_is_typed_and_can_be_settled(backend: StateBackend) -> None:
    """At a limit of the file's size: no half rows, and a retry with the same id settles it."""
    with backend.create("default") as session:
        append(session)
        size = Path(f"{session.path}-wal").stat().st_size
        tried: list[str] = []
        with file_size_limit(size + 9000), pytest.raises(StorageError):
            append_while_possible(session, tried)
        with suppress(SessionClosed):
            session.close()
        settle(backend, session, tried[-1])


def append_while_possible(session: Session, tried: list[str]) -> None:
    """Append until an error comes, noting each id before it is tried."""
    while True:
        tried.append(str(len(tried)))
        append(session, tried[-1], b"x" * 5000)


@needs_seccomp
def test_failed_fsync_of_a_commit_is_called_unknown(backend: StateBackend) -> None:
    """The session is closed then; opened again, the same event id settles what happened."""
    with backend.create("default") as session:
        append(session)
        with pytest.raises(OutcomeUnknown) as caught:
            without_fsync(lambda: append(session, "unsure", b"x" * 5000))
        assert caught.value.path == session.path
        settle(backend, session, "unsure")


@needs_seccomp
def test_failed_fsync_of_a_batch_is_called_unknown(backend: StateBackend) -> None:
    """Afterwards either all of the batch is there or nothing of it."""
    with backend.create("default") as session:
        append(session)
        with pytest.raises(OutcomeUnknown):
            without_fsync(lambda: batch(session))
    with backend.read(session.session_id) as view:
        assert view.counts().events in {1, 52}
    backend.open(session.session_id).close()
    assert_whole(session.path)


@needs_seccomp
def test_failed_fsync_of_a_status_is_called_unknown(backend: StateBackend) -> None:
    """The status is the old or the new one; the session opens and can be ended."""
    with backend.create("default") as session:
        append(session)
        with pytest.raises(OutcomeUnknown):
            without_fsync(lambda: session.set_status(SessionStatus.FAILED))
        with pytest.raises(SessionClosed):
            session.set_status(SessionStatus.FAILED)
    with backend.open(session.session_id) as reopened, suppress(InvalidTransition):
        reopened.set_status(SessionStatus.FAILED)
    (info,) = backend.list()
    assert getattr(info, "status", None) is SessionStatus.FAILED
    assert_whole(session.path)


@needs_seccomp
def test_failed_fsync_at_create_is_a_typed_error(backend: StateBackend) -> None:
    """No session is there that nobody was told of, and the same id can be used."""
    backend.create("default", session_id="01ARZ3NDEKTSV4RRFFQ69G5FAA").close()
    session_id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    with pytest.raises(StorageError):
        without_fsync(lambda: backend.create("default", session_id=session_id))
    assert [one.session_id for one in backend.list()] == ["01ARZ3NDEKTSV4RRFFQ69G5FAA"]
    backend.create("default", session_id=session_id).close()
    assert litter(backend) == set()


@needs_seccomp
def test_close_without_fsync_loses_nothing(backend: StateBackend) -> None:
    """The last fold of the log fails then, so the log stays, and the next open finds all."""
    session = backend.create("default")
    append(session)
    with suppress(StorageError, sqlite3.Error):
        without_fsync(session.close)
    with backend.open(session.session_id) as reopened:
        assert reopened.counts().events == 1
        append(reopened)
    assert_whole(session.path)
