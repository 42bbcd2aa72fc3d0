"""Sessions and ``fork``: the child is refused, and whatever it does harms nothing of the parent."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from statebackend import StateBackend
from tests.crash import forked
from tests.crash.processes import run
from tests.crash.samples import assert_whole, litter, new_session, session_file

pytestmark = [pytest.mark.crash, pytest.mark.conformance("SB-05")]


def scenario(
    backend: StateBackend, function: Callable[..., None], *arguments: str, fresh: bool = False
) -> Any:
    """Run a scenario on a session; afterwards the session is whole and nothing is left."""
    session_id = new_session(backend, 2)
    (said,) = run(function, backend.directory, session_id, *arguments, fresh=fresh)
    assert_whole(session_file(backend, session_id))
    assert litter(backend) == set()
    return said


@pytest.mark.parametrize("use", forked.USES)
def test_inherited_handles_are_refused(backend: StateBackend, use: str) -> None:
    """Every use of a session, or view, in the child is a SessionForked, and the parent goes on."""
    assert scenario(backend, forked.use_in_child, use) == ["SessionForked", 3]


@pytest.mark.parametrize("use", forked.USES)
def test_inherited_handles_are_refused_while_a_thread_of_the_parent_held_their_lock(
    backend: StateBackend, use: str
) -> None:
    """Nothing in the child waits for a lock whose holder was not forked with it."""
    assert scenario(backend, forked.use_in_child_of_busy_parent, use) == ["SessionForked", 3]


@pytest.mark.parametrize("way", ["exit", "_exit", "error", "exec"])
def test_end_of_a_child_leaves_the_parent_alone(backend: StateBackend, way: str) -> None:
    """Locks, log and data stay, also when the child's interpreter ends with all its destructors."""
    said = scenario(backend, forked.end_of_child, way, fresh=True)
    assert said == {"locks kept": True, "log kept": True, "claimed": True, "events": 4}


@pytest.mark.parametrize("way", ["exit", "error"])
def test_end_of_a_child_that_outlives_the_session_writes_nothing(
    backend: StateBackend, way: str
) -> None:
    """It does not fold the log that it remembers into the file, which has gone on since."""
    said = scenario(backend, forked.child_outlives, way, fresh=True)
    assert said == list(range(1, 38))


def test_session_opened_anew_in_the_child_is_refused(backend: StateBackend) -> None:
    """Opening or reading the same file in the child would act with locks that it has not."""
    said = scenario(backend, forked.open_anew)
    assert said == ["SessionForked", "SessionForked", "SessionForked"]


def test_child_uses_other_sessions(backend: StateBackend) -> None:
    """It creates, opens, appends, lists; the parent's session is flagged in its listing."""
    said = scenario(backend, forked.use_others)
    assert said == {"created": 1, "opened": 3, "listed": 3, "flagged": 1}


def test_grandchild_is_refused_as_well(backend: StateBackend) -> None:
    """What was inherited stays inherited over a second fork."""
    assert scenario(backend, forked.grandchild) == ["SessionForked", "SessionForked", 3]


def test_ids_of_parent_and_child_differ(backend: StateBackend) -> None:
    """After a fork both go on making ids within one millisecond, and none is made twice."""
    assert scenario(backend, forked.ids) == 400


def test_pool_of_forked_workers(backend: StateBackend) -> None:
    """A ``multiprocessing`` pool started with open sessions works on sessions of its own."""
    assert scenario(backend, forked.pool, fresh=True) == {"workers": 8, "events": 3}


@pytest.mark.slow  # also because coverage would use SQLite in the child, which is what may hang
def test_fork_while_threads_hold_the_package_s_locks(backend: StateBackend) -> None:
    """The child of a parent whose threads list, open and close does not wait for ever."""
    assert scenario(backend, forked.fork_beside_threads) == 20


def test_child_may_close_and_forget_what_it_inherited(backend: StateBackend) -> None:
    """Closing there only marks the handle; leaving a batch or an ORM block is harmless."""
    assert scenario(backend, forked.close_in_child) == ["closed", 3]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # a worker has threads
def test_a_child_keeps_what_it_inherited_alive(backend: StateBackend) -> None:
    """Nothing frees an inherited connection: SQLite would close it with locks it does not have."""
    with backend.create("default") as session:
        connection = session._held.connection
        ours = sys.getrefcount(connection)
        child = os.fork()
        if child == 0:
            os._exit(min(sys.getrefcount(connection), 100))
        _pid, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == ours + 1
