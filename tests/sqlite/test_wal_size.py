"""The write-ahead log stays short beside readers of every kind, and goes with the close."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, select

from statebackend import Session, StateBackend
from statebackend.recording import guard
from statebackend.replay import replay
from statebackend.schema import models
from statebackend.sqlite import checkpoint, settings
from tests.crash.samples import litter, new_session

pytestmark = pytest.mark.crash

# SQLite folds a log in from this length on, if it can.
_OWN_FOLD_BYTES = 1000 * 4096


@pytest.fixture
def session(backend: StateBackend) -> Iterator[Session]:
    """Return a session with enough events for several pages of reading."""
    with backend.open(new_session(backend, 5000)) as session:
        yield session


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch, backend: StateBackend) -> Iterator[Session]:
    """Return such a session with lower limits for the log, so that less need be written."""
    monkeypatch.setattr(settings, "WAL_KEPT_BYTES", 3 << 20)
    monkeypatch.setattr(guard, "RESTART_BYTES", 6 << 20)
    with backend.open(new_session(backend, 5000)) as session:
        yield session


def write(session: Session, mebibytes: int) -> int:
    """Append about so much to the log, and return the length that it had at most, in bytes."""
    log = Path(f"{session.path}-wal")
    longest = written = 0
    while written < mebibytes << 20:
        with session.batch() as batch:
            for _ in range(40):
                batch.append_prompt(payload=b"x" * 1000, schema_version="1")
        longest = max(longest, log.stat().st_size)
        written += 60_000
    return longest


Reader = Callable[[StateBackend, Session, ExitStack], None]


def idle(backend: StateBackend, session: Session, stack: ExitStack) -> None:
    """Keep a view that has read something."""
    stack.enter_context(backend.read(session.session_id)).counts()


def stopped(backend: StateBackend, session: Session, stack: ExitStack) -> None:
    """Keep iterators that were stopped after their first event."""
    view = stack.enter_context(backend.read(session.session_id))
    kept = [view.events(), session.events(), replay(view)]
    for one in kept:
        next(one)
    stack.callback(kept.clear)


def slow_follower(backend: StateBackend, session: Session, stack: ExitStack) -> None:
    """Follow in another thread, at a tenth of the writer's pace."""
    stop = threading.Event()

    def work() -> None:
        with backend.read(session.session_id) as view:
            for _ in view.follow():
                if stop.wait(0.001):
                    return

    thread = threading.Thread(target=work)
    thread.start()
    stack.callback(thread.join)
    stack.callback(stop.set)


@pytest.mark.parametrize("reader", [idle, stopped, slow_follower])
def test_readers_that_hold_no_snapshot_let_the_log_be_short(
    backend: StateBackend, session: Session, reader: Reader
) -> None:
    """Beside them it is hardly longer than SQLite lets it become alone."""
    with ExitStack() as stack:
        reader(backend, session, stack)
        assert write(session, 20) < 2 * _OWN_FOLD_BYTES


@contextmanager
def overlapping_snapshots(path: Path) -> Iterator[None]:
    """Let there be a snapshot at any moment, each of them a short one."""
    stop = threading.Event()

    def work() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            while not stop.is_set():
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM session_meta").fetchone()
                time.sleep(0.03)
                reader.execute("COMMIT")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
        time.sleep(0.01)
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_readers_that_overlap_for_ever_cannot_make_the_log_grow(
    limited: Session,
) -> None:
    """SQLite by itself would never begin it anew; the writer waits for the moment.

    Some 160 MB are written; on a loaded machine the writer may miss the moment a few times, and
    it looks for it at 16, 32, 64 and 128 MB.
    """
    with overlapping_snapshots(limited.path):
        assert write(limited, 36) < 140 << 20


def test_without_the_writers_own_fold_the_log_would_grow(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the readers of the test above are such readers."""
    monkeypatch.setattr(checkpoint, "restart_wal", lambda _driver: False)
    with overlapping_snapshots(session.path):
        assert write(session, 12) > 13 << 20


def test_a_snapshot_that_is_held_makes_the_log_grow_until_its_end(
    backend: StateBackend, limited: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit that is documented: appends go on, and afterwards the room is given back."""
    tried: list[bool] = []
    fold_log = checkpoint.restart_wal

    def counted(driver: sqlite3.Connection) -> bool:
        tried.append(fold_log(driver))
        return tried[-1]

    monkeypatch.setattr(checkpoint, "restart_wal", counted)
    with backend.read(limited.session_id) as view, view.orm() as orm:
        count = select(func.count()).select_from(models.Event)
        assert orm.scalar(count) == 5000
        assert write(limited, 12) > 10 << 20
        assert orm.scalar(count) == 5000
        assert len(tried) <= 6  # it doubles in between, so waiting costs little
    write(limited, 1)
    assert Path(f"{limited.path}-wal").stat().st_size <= settings.WAL_KEPT_BYTES
    assert limited._held.driver.execute("PRAGMA busy_timeout").fetchone() == (
        settings.BUSY_TIMEOUT_MS,
    )
    limited.close()
    assert litter(backend) == set()


def test_a_fold_that_fails_fails_no_append(session: Session) -> None:
    """As within a transaction: the log keeps everything, and the answer is no."""
    session._held.driver.execute("BEGIN IMMEDIATE")
    assert not checkpoint.restart_wal(session._held.driver)
    session._held.driver.execute("ROLLBACK")
    assert checkpoint.restart_wal(session._held.driver)
