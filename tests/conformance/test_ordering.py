"""SB-04 to SB-08: order, the sole writer, parallel appends, WAL, readers beside the writer."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from statebackend import (
    EventKind,
    Session,
    SessionLocked,
    SessionView,
    StateBackend,
    StorageUnsupported,
)
from statebackend.files.paths import sqlite_uri
from statebackend.replay import replay
from statebackend.sqlite import engine
from tests.session_files import (
    MODEL,
    START,
    TOOL,
    call,
    cost,
    fill,
    full,
    killed_writer,
    listing,
    new,
    path_of,
    process,
    run_python,
    snapshot,
    sql,
)


@contextmanager
def statements(handle: Session | SessionView) -> Iterator[list[str]]:
    """Collect the SQL that a handle's connection runs."""
    seen: list[str] = []
    driver = engine.driver_of(handle._held.connection)
    driver.set_trace_callback(seen.append)
    try:
        yield seen
    finally:
        driver.set_trace_callback(None)


@pytest.mark.conformance("SB-04")
def test_sb04_falling_timestamps_do_not_change_the_order(backend: StateBackend) -> None:
    """Events come back in sequence order, whatever their wall clock said."""
    with backend.create("default") as session:
        for hours in (5, 3, 4, 1, 2):
            call(session, str(hours).encode(), timestamp=START - timedelta(hours=hours))
        assert [event.payload for event in session.events()] == [b"5", b"3", b"4", b"1", b"2"]
        assert [event.sequence for event in session.events()] == [1, 2, 3, 4, 5]


@pytest.mark.conformance("SB-04")
def test_sb04_no_statement_orders_or_compares_by_time(backend: StateBackend) -> None:
    """Reading and replaying run no SQL that sorts or filters by a timestamp."""
    with backend.read(full(backend)) as view, statements(view) as seen:
        list(view.events(1, [EventKind.MESSAGE], 5))
        list(view.events(last=2))
        list(replay(view))
        list(view.costs())
        list(view.plan_items("deny"))
        view.producers()
    conditions = [text.partition("FROM")[2] for text in seen if text.startswith("SELECT")]
    assert conditions
    assert not [text for text in conditions if "timestamp" in text or "_at" in text]


@pytest.mark.conformance("SB-04")
def test_sb04_a_sequence_is_never_used_again(backend: StateBackend) -> None:
    """The table keeps its highest number, also over a deletion made by another program."""
    session_id = new(backend, events=3)
    sql(path_of(backend, session_id), "DELETE FROM events WHERE sequence = 3")
    with backend.open(session_id) as session:
        assert call(session) == 4


@pytest.mark.conformance("SB-05")
def test_sb05_second_writer_in_this_process_is_refused(backend: StateBackend) -> None:
    """Another open of the same session names this process as the holder."""
    with backend.create("default") as session:
        for other in (backend, StateBackend(backend.directory)):
            with pytest.raises(SessionLocked) as caught:
                other.open(session.session_id)
            assert caught.value.pid == os.getpid()
            assert str(os.getpid()) in str(caught.value)


@pytest.mark.conformance("SB-05")
def test_sb05_second_writer_in_another_process_is_refused(backend: StateBackend) -> None:
    """A process that opens a session which is being written learns who writes it."""
    with backend.create("default") as session:
        code = """
            import sys
            from statebackend import SessionLocked, StateBackend
            try:
                StateBackend(sys.argv[1]).open(sys.argv[2])
            except SessionLocked as error:
                print(error.pid, error.host is not None, error.since is not None)
        """
        told = run_python(code, backend.directory, session.session_id)
    assert told == f"{os.getpid()} True True"


@pytest.mark.conformance("SB-05")
def test_sb05_the_claim_ends_with_close_and_with_death(backend: StateBackend) -> None:
    """A session that was closed, or whose writer was killed, can be opened again."""
    closed, killed = new(backend), killed_writer(backend)
    for session_id in (closed, killed):
        with backend.open(session_id) as session:
            assert call(session)


@pytest.mark.conformance("SB-06")
def test_sb06_threads_get_gapless_sequences(backend: StateBackend) -> None:
    """Parallel appends each get a sequence of their own, and none is left out."""
    got: list[int] = []
    with backend.create("default") as session:

        def work(name: int) -> None:
            got.extend(call(session, f"{name}/{one}".encode()) for one in range(25))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == list(range(1, 201))
        stored = [event.payload.decode() for event in session.events()]
    for name in range(8):
        mine = [text for text in stored if text.startswith(f"{name}/")]
        assert mine == [f"{name}/{one}" for one in range(25)]


@pytest.mark.conformance("SB-06")
def test_sb06_asyncio_tasks_get_gapless_sequences(backend: StateBackend) -> None:
    """Tasks that append through threads of the loop share the session without gaps."""

    async def run(session: Session) -> list[int]:
        tasks = (asyncio.to_thread(call, session, str(one).encode()) for one in range(50))
        return await asyncio.gather(*tasks)

    with backend.create("default") as session:
        assert sorted(asyncio.run(run(session))) == list(range(1, 51))


@pytest.mark.conformance("SB-06")
def test_sb06_a_refused_append_takes_no_number(backend: StateBackend) -> None:
    """The sequence goes on without a gap behind an append that was rolled back."""
    with backend.create("default") as session:
        call(session, event_id="one")
        with pytest.raises(Exception, match="one"):
            call(session, event_id="one")
        assert call(session) == 2


@pytest.mark.conformance("SB-07")
def test_sb07_a_session_is_in_wal_mode_from_the_start(backend: StateBackend) -> None:
    """The file says WAL in its header, and SQLite answers wal while it is written."""
    with backend.create("default") as session:
        driver = engine.driver_of(session._held.connection)
        assert driver.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert path_of(backend, session.session_id).read_bytes()[18:20] == b"\2\2"


@pytest.mark.conformance("SB-07")
def test_sb07_a_file_system_without_wal_is_refused(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where SQLite answers something else than wal, the error names the file and the reason."""
    path = path_of(backend, new(backend))
    sql(path, "PRAGMA journal_mode = DELETE")
    without_wal(monkeypatch)
    with pytest.raises(StorageUnsupported) as caught:
        backend.open(path.stem)
    assert caught.value.path == path
    assert "WAL" in str(caught.value)
    assert "'delete'" in str(caught.value)


@pytest.mark.conformance("SB-07")
def test_sb07_a_session_on_a_file_system_without_wal_is_refused(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moved there, it says WAL already, and SQLite can only say that it cannot open it."""
    path = path_of(backend, new(backend))
    before = path.read_bytes()
    without_wal(monkeypatch)
    with pytest.raises(StorageUnsupported, match="keep sessions on a local disk") as caught:
        backend.open(path.stem)
    assert caught.value.path == path
    assert path.read_bytes() == before


@pytest.mark.conformance("SB-07")
def test_sb07_create_refuses_a_file_system_without_wal(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new session is not left behind where it could never be opened."""
    without_wal(monkeypatch)
    with pytest.raises(StorageUnsupported):
        backend.create("default")
    assert list(backend.ids()) == []


def without_wal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make SQLite use a file-system layer that has no shared memory, hence no WAL."""
    monkeypatch.setattr(
        engine, "sqlite_uri", lambda path, rest: sqlite_uri(path, f"{rest}&vfs=unix-dotfile")
    )


@pytest.mark.conformance("SB-08")
def test_sb08_a_reader_neither_blocks_nor_is_blocked(backend: StateBackend) -> None:
    """Another process holds a read transaction while appends go on, and sees its own moment."""
    with backend.create("default") as session:
        call(session)
        code = """
            import sys
            from sqlalchemy import func, select
            from statebackend import StateBackend, models
            view = StateBackend(sys.argv[1]).read(sys.argv[2])
            with view.orm() as orm:
                count = select(func.count()).select_from(models.Event)
                before = orm.scalar(count)
                print("ready", flush=True)
                sys.stdin.readline()
                print(before, orm.scalar(count), view.counts().events, flush=True)
            view.close()
        """
        with process(code, backend.directory, session.session_id) as reader:
            for _ in range(20):
                call(session)
            told, _ = reader.communicate("\n", timeout=30)
    assert told.split() == ["1", "1", "21"]


@pytest.mark.conformance("SB-08")
def test_sb08_reading_leaves_the_folder_as_it_was(backend: StateBackend) -> None:
    """A reader of a closed session changes no byte of it and leaves no file beside it."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    before = listing(backend.directory), path.read_bytes(), path.stat().st_mtime_ns
    with backend.read(session_id) as view:
        assert len(list(replay(view))) == 5
        with view.orm():
            pass
    assert (listing(backend.directory), path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.conformance("SB-08")
def test_sb08_reading_a_killed_writers_session_leaves_its_log(backend: StateBackend) -> None:
    """The commits in a dead writer's log are seen, and the file and its log stay as they are."""
    path = path_of(backend, killed_writer(backend))
    wal = path.with_name(path.name + "-wal")
    before = listing(backend.directory), path.read_bytes(), wal.read_bytes()
    with backend.read(path.stem) as view:
        assert view.counts().events == 5
    assert (listing(backend.directory), path.read_bytes(), wal.read_bytes()) == before


@pytest.mark.conformance("SB-08")
def test_sb08_reading_beside_this_process_writer(backend: StateBackend) -> None:
    """A view in the writer's own process sees what is committed, and closing it harms nothing."""
    with backend.create("default") as session:
        fill(session)
        names = listing(backend.directory)
        with backend.read(session.session_id) as view:
            assert view.counts().events == 5
        assert listing(backend.directory) == names
        session.append_message(producer=MODEL, payload=b"", cost=cost())
        session.append(EventKind.APPLY, producer=TOOL, payload=b"", schema_version="1")
    assert snapshot(backend.directory)
    with backend.read(session.session_id) as view:
        assert view.counts().events == 7
