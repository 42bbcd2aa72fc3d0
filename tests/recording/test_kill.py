"""Writers that die by SIGKILL: what was acknowledged is there, and nothing by halves."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from statebackend import Event, EventKind, SessionInfo, SessionStatus, StateBackend
from tests.crash import children
from tests.crash.processes import run, started
from tests.crash.samples import append, assert_whole, litter, new_session, session_file

pytestmark = pytest.mark.crash


def assert_nothing_lost(backend: StateBackend, session_id: str, acknowledged: int) -> None:
    """Assert what holds after the death of a writer whose event ids are the numbers from 1."""
    with backend.read(session_id) as view:
        found = [(event.sequence, event.id) for event in view.events()]
    assert len(found) >= acknowledged
    assert found == [(number, str(number)) for number in range(1, len(found) + 1)]
    with backend.open(session_id) as session:
        assert [event.sequence for event in session.events()] == [number for number, _ in found]
        assert append(session).sequence == len(found) + 1
    assert_whole(session_file(backend, session_id))


@pytest.mark.conformance("SB-16", "SB-17", "SB-18", "SB-19")
@pytest.mark.parametrize(
    "rounds", [pytest.param(12, id="12"), pytest.param(200, id="200", marks=pytest.mark.slow)]
)
def test_kill_in_a_loop_of_appends_loses_nothing_acknowledged(
    backend: StateBackend, rounds: int
) -> None:
    """At random moments: every returned append is there whole, with its cost, plan and producer."""
    seen = 0
    with started(children.kill_appending, backend.directory, rounds, rounds) as killer:
        for _ in range(rounds):
            said = killer.hear()
            assert_nothing_lost(backend, said["session_id"], said["acknowledged"])
            seen += said["acknowledged"]
        assert killer.wait() == 0
    assert seen > rounds
    assert litter(backend) == set()


@pytest.mark.conformance("SB-19")
def test_kill_at_every_step_of_create_leaves_a_whole_session_or_none(tmp_path: Path) -> None:
    """After each call that changes something; the id is usable again, and nothing is left."""
    folders = [Path(folder) for folder in run(children.kill_creating, tmp_path)]
    assert len(folders) > 30
    assert StateBackend(folders[-1]).list() != []  # the last one was not killed
    outcomes = set()
    for folder in folders:
        backend = StateBackend(folder)
        listed = backend.list()
        outcomes.add(len(listed))
        for info in listed:
            assert isinstance(info, SessionInfo)
            assert (info.status, info.live) == (SessionStatus.RUNNING, False)
        opened = (
            backend.open(children.SESSION_ID)
            if listed
            else backend.create("default", session_id=children.SESSION_ID)
        )
        with opened as session:
            append(session)
        assert_whole(session_file(backend, children.SESSION_ID))
        assert litter(backend) == set()
    assert outcomes == {0, 1}


def test_kill_between_call_and_result_leaves_exactly_that_call_open(
    backend: StateBackend,
) -> None:
    """A call that has its result is not among the open ones."""
    session_id = new_session(backend)
    with started(children.die_between_call_and_result, backend.directory, session_id) as child:
        assert child.wait() == -signal.SIGKILL
    with backend.read(session_id) as view:
        (event,) = view.open_tool_calls(_payload_text)
    assert (event.kind, event.payload, event.sequence) == (EventKind.TOOL_CALL, b"two", 3)


def _payload_text(event: Event) -> str:
    return event.payload.decode()


@pytest.mark.conformance("SB-20", "SB-27")
def test_killed_session_is_running_without_a_writer(backend: StateBackend) -> None:
    """It is listed so and counts as stale; reading changes neither its row nor its bytes."""
    session_id = new_session(backend)
    living = backend.create("default")
    with started(children.append_until_killed, backend.directory, session_id) as writer:
        while writer.hear() < 7:
            pass
        assert [one.session_id for one in backend.stale()] == []
        writer.kill()
    before = contents(backend, session_id)
    assert [one.session_id for one in backend.stale()] == [session_id]
    (info,) = [one for one in backend.list() if one.session_id == session_id]
    assert isinstance(info, SessionInfo)
    assert (info.status, info.live, info.ended_at) == (SessionStatus.RUNNING, False, None)
    assert contents(backend, session_id) == before
    living.close()


def contents(backend: StateBackend, session_id: str) -> list[bytes]:
    """Return the bytes of a session's file and of its log."""
    path = session_file(backend, session_id)
    return [path.read_bytes(), path.with_name(path.name + "-wal").read_bytes()]


def test_killed_session_can_be_closed_by_hand(backend: StateBackend) -> None:
    """Opening it and setting the status is all it takes, and it is stale no more."""
    session_id = new_session(backend)
    with started(children.append_until_killed, backend.directory, session_id) as writer:
        writer.hear()
        writer.kill()
    with backend.open(session_id) as session:
        session.set_status(SessionStatus.FAILED)
    assert backend.stale() == []
    assert litter(backend) == set()


def test_follow_ends_when_the_writer_is_killed(backend: StateBackend) -> None:
    """A follower gets every acknowledged event, in order, and then an end, not a wait for ever."""
    session_id = new_session(backend)
    with started(children.append_until_killed, backend.directory, session_id) as writer:
        writer.hear()
        with started(children.follow, backend.directory, session_id) as follower:
            followed = [follower.hear() for _ in range(20)]
            writer.kill()
            followed += follower.rest()
            assert follower.wait() == 0
        acknowledged = writer.rest()
    assert followed == list(range(1, len(followed) + 1))
    assert len(followed) >= acknowledged[-1]
