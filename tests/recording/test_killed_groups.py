"""Many writers in one process that dies, or forks, in the middle of what they write together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from statebackend import StateBackend
from tests.crash import grouped
from tests.crash.processes import run, started
from tests.crash.samples import append, assert_whole, litter, new_session, session_file

pytestmark = pytest.mark.crash


@pytest.mark.conformance("SB-06", "SB-19")
@pytest.mark.parametrize("child", [grouped.append_in_threads, grouped.append_in_tasks])
@pytest.mark.parametrize(
    "rounds", [pytest.param(4, id="4"), pytest.param(60, id="60", marks=pytest.mark.slow)]
)
def test_kill_among_appends_that_share_commits_loses_nothing_acknowledged(
    backend: StateBackend, child: Callable[[str, str], None], rounds: int
) -> None:
    """Each one is there once, whole, under the number that its thread or task was told."""
    for number in range(rounds):
        session_id = new_session(backend)
        with started(child, backend.directory, session_id) as writers:
            acknowledged = [writers.hear() for _ in range(40 + 7 * number)]
            writers.kill()
            acknowledged += writers.rest()
        with backend.open(session_id) as session:
            stored = {event.id: event.sequence for event in session.events()}
            assert sorted(stored.values()) == list(range(1, len(stored) + 1))
            assert {name: stored.get(name) for name, _sequence in acknowledged} == dict(
                acknowledged
            )
            assert append(session).sequence == len(stored) + 1
        assert_whole(session_file(backend, session_id))
    assert litter(backend) == set()


@pytest.mark.slow  # also because coverage would use SQLite in the child, which is what may hang
@pytest.mark.conformance("SB-05")
def test_fork_while_others_append(backend: StateBackend) -> None:
    """Every child is refused, at once, and the threads of the parent go on."""
    session_id = new_session(backend)
    (said,) = run(grouped.fork_beside_appends, backend.directory, session_id)
    assert said == [["SessionForked"], True]
    assert_whole(session_file(backend, session_id))
