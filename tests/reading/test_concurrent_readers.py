"""Readers beside writers in other processes: nobody waits, nothing is missed, nothing is left."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from statebackend import Event, SessionInfo, StateBackend
from statebackend.replay import replay
from tests.crash import children
from tests.crash.processes import Child, several, started
from tests.crash.samples import append, litter, new_session, session_file

pytestmark = pytest.mark.crash


def picture(backend: StateBackend) -> dict[str, bytes]:
    """Return every file of the folder with its bytes, but the index of logs (`-shm`)."""
    return {
        path.name: path.read_bytes()
        for path in backend.directory.rglob("*")
        if path.is_file() and not path.name.endswith("-shm")
    }


def look(backend: StateBackend, session_id: str) -> int:
    """Use everything that reads, and return the number of events seen."""
    assert [one.session_id for one in backend.list()] == [session_id]
    assert list(backend.scan()) == backend.list()
    assert len(backend.tree().nodes) == 1
    backend.cost(session_id, tree=True)
    backend.cost_by("model")
    backend.plan_rules()
    backend.referenced_producers()
    backend.stale()
    with backend.read(session_id) as view:
        list(view.costs())
        with view.orm():
            return len(list(view.events()))


@pytest.mark.conformance("SB-08")
def test_open_read_transaction_does_not_block_the_writer(backend: StateBackend) -> None:
    """While another process holds a snapshot 100 events are appended, which it does not see."""
    session_id = new_session(backend, 5)
    with (
        backend.open(session_id) as session,
        started(children.hold_snapshot, session_file(backend, session_id)) as reader,
    ):
        assert reader.hear() == 5
        for _ in range(100):
            append(session)
        assert reader.ask() == 5
        assert session.counts().events == 105


@pytest.mark.conformance("SB-08")
def test_open_write_transaction_does_not_block_a_reader(backend: StateBackend) -> None:
    """While the writer is within a transaction, another process lists and reads the rest."""
    session_id = new_session(backend, 5)
    with (
        backend.open(session_id) as session,
        started(children.read_on_demand, backend.directory, 0) as reader,
        started(children.list_on_demand, backend.directory) as lister,
    ):
        session._held.driver.execute("BEGIN IMMEDIATE")
        assert reader.ask(session_id) == 5
        assert lister.ask() == [session_id]
        session._held.driver.execute("ROLLBACK")
        append(session)
        assert reader.ask(session_id) == 6


@pytest.mark.conformance("SB-08", "SB-27")
def test_readers_leave_a_closed_session_as_it_was(backend: StateBackend) -> None:
    """No name in the folder and no byte of the file changes, whatever is read."""
    session_id = new_session(backend, 5)
    before = picture(backend)
    assert look(backend, session_id) == 5
    assert picture(backend) == before
    assert litter(backend) == set()


@pytest.mark.conformance("SB-08", "SB-27")
def test_readers_see_the_commits_of_a_killed_writer_and_leave_its_log(
    backend: StateBackend,
) -> None:
    """Neither the file nor the log is changed by a byte, and every commit is seen."""
    session_id = new_session(backend)
    with started(children.append_on_demand, backend.directory, session_id) as writer:
        assert writer.ask("-7") == 7
        writer.kill()
    (backend.directory / ".locks" / f"{session_id}.lock").unlink()
    before = picture(backend)
    assert f"{session_id}.sqlite-wal" in before
    assert look(backend, session_id) == 7
    (info,) = backend.list()
    assert isinstance(info, SessionInfo)
    assert info.cost_usd == 3.5
    assert picture(backend) == before


@pytest.mark.conformance("SB-08")
def test_reader_that_was_open_before_the_writer_sees_every_commit(backend: StateBackend) -> None:
    """Over many openings and closings of the writer the reader sees all, and never an error."""
    session_id = new_session(backend, 1)
    with (
        backend.read(session_id) as view,
        started(children.append_on_demand, backend.directory, session_id) as writer,
    ):
        for _ in range(10):
            count = writer.ask("3")
            assert len(list(view.events())) == count
    assert litter(backend) == set()


@pytest.mark.conformance("SB-08")
def test_readers_that_come_and_go_beside_such_a_writer_never_fail(backend: StateBackend) -> None:
    """Opening, listing and reading hit every moment of a writer's opening, appending, closing."""
    session_id = new_session(backend)
    rounds, known = 60, 0
    with started(children.churn_appending, backend.directory, session_id, rounds) as writer:
        done = threading.Event()
        answers: list[int] = []
        hearing = threading.Thread(target=_hear_all, args=(writer, rounds, answers, done))
        hearing.start()
        while not done.is_set():
            known = answers[-1] if answers else 0
            (info,) = backend.list()
            assert isinstance(info, SessionInfo), info
            with backend.read(session_id) as view:
                assert len(list(view.events())) >= known
        hearing.join()
        assert writer.wait() == 0
    assert known > 0


def _hear_all(writer: Child, rounds: int, answers: list[int], done: threading.Event) -> None:
    try:
        answers.extend(writer.hear() for _ in range(rounds))
    finally:
        done.set()


@pytest.mark.conformance("SB-08")
def test_reader_of_a_session_whose_writer_dies_leaves_the_log_in_place(
    backend: StateBackend,
) -> None:
    """A reader that was there first does not fold a dead writer's log in when it closes."""
    session_id = new_session(backend, 1)
    main = session_file(backend, session_id)
    with backend.read(session_id) as view:
        with started(children.append_on_demand, backend.directory, session_id) as writer:
            assert writer.ask("-4") == 5
            writer.kill()
        before = main.read_bytes()
        assert len(list(view.events())) == 5
    assert main.read_bytes() == before
    with backend.read(session_id) as view:
        assert len(list(view.events())) == 5


def log_size(backend: StateBackend, session_id: str) -> int:
    """Return the size of the log in bytes."""
    return Path(f"{session_file(backend, session_id)}-wal").stat().st_size


def test_abandoned_replay_does_not_keep_the_log_growing(backend: StateBackend) -> None:
    """A replay that stopped after one event holds no snapshot over 3,000 appends."""
    session_id = new_session(backend, 600)
    with backend.read(session_id) as view, backend.open(session_id) as session:
        abandoned = [iter(view.events()), iter(session.events()), iter(replay(view))]
        for one in abandoned:
            next(one)
        for _ in range(300):
            with session.batch() as batch:
                for _ in range(10):
                    batch.append_prompt(payload=b"x" * 1000, schema_version="1")
        assert log_size(backend, session_id) < 8_000_000
        assert len(list(view.events())) == 3600
        del abandoned


def test_append_inside_a_replay_loop(backend: StateBackend) -> None:
    """A loop over a session's events may append to that session, and sees what it appended."""
    session_id = new_session(backend, 600)
    seen: list[Event] = []
    with backend.open(session_id) as session:
        for event in session.events():
            seen.append(event)
            if len(seen) % 20 == 0:
                append(session)
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
    assert len(seen) == 631


def test_readers_open_a_session_that_was_just_created(backend: StateBackend) -> None:
    """8 processes read the same new session at once, 20 times, and none fails."""
    with several(8, children.read_on_demand, backend.directory) as readers:
        for _ in range(20):
            with backend.create("default") as session:
                append(session)
                for reader in readers:
                    reader.say(session.session_id)
                assert [reader.hear() for reader in readers] == [1] * 8


def test_parallel_readers_of_a_closed_session(backend: StateBackend) -> None:
    """16 processes read the same closed session at once, none fails, and nothing is left."""
    session_id = new_session(backend, 3)
    with several(16, children.read_on_demand, backend.directory) as readers:
        for _ in range(15):  # two that close at once are seldom enough
            for reader in readers:
                reader.say(session_id)
            assert [reader.hear() for reader in readers] == [3] * 16
        for reader in readers:  # they answer before they close
            reader.say("")
        assert [reader.wait() for reader in readers] == [0] * 16
    assert litter(backend) == set()
