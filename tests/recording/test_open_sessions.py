"""Many sessions open in one process: descriptors, threads, and the order of each one's calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from statebackend import AsyncStateBackend, InvalidValue, StateBackend, StorageError
from statebackend.recording.thread_pool import Sequencer, ThreadPool
from tests.session_files import MODEL, cost, run_python

HANG_S = 60.0
_OPEN_ALL = """
import resource, sys
from statebackend import StateBackend, StorageError
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
backend, sessions = StateBackend(sys.argv[1]), []
try:
    while True:
        sessions.append(backend.create("default"))
        sessions[-1].append_prompt(payload=b"", schema_version="1")
        list(sessions[-1].events())
except StorageError as error:
    print(len(sessions), "1024" in str(error), "ulimit -n" in str(error), error.path is not None)
for session in sessions:
    session.append_prompt(payload=b"", schema_version="1") if session is not sessions[-1] else None
    session.close()
"""


def test_the_limit_of_descriptors_is_named(tmp_path: Path) -> None:
    """Of 1,024 descriptors, 240 sessions and more can be open; the next one is refused."""
    count, *named = run_python(_OPEN_ALL, tmp_path).split()
    assert int(count) >= 240
    assert named == ["True"] * 3


def test_an_idle_session_has_four_descriptors(backend: StateBackend) -> None:
    """SQLite's three (file, WAL, shm) and the claim's, also after it was read."""
    folder = Path("/dev/fd")
    with backend.create("default") as first:
        first.append_prompt(payload=b"", schema_version="1")
        list(first.events())
        before = len(list(folder.iterdir()))
        with backend.create("default") as session:
            session.append_prompt(payload=b"", schema_version="1")
            list(session.events())
            assert len(list(folder.iterdir())) - before == 4
        assert len(list(folder.iterdir())) == before


def test_sessions_share_a_bounded_pool(backend: StateBackend) -> None:
    """Fifty sessions append at once in three threads, and none is left out."""

    async def work() -> set[str]:
        aio = AsyncStateBackend(backend.directory, threads=3)
        sessions = [await aio.create("default") for _ in range(50)]
        before = threading.active_count()
        for _ in range(3):
            await asyncio.gather(
                *(
                    session.append_message(producer=MODEL, payload=b"", cost=cost())
                    for session in sessions
                )
            )
        assert threading.active_count() <= before + 3
        counts = {str((await session.counts()).events) for session in sessions}
        for session in sessions:
            await session.close()
        return counts

    assert asyncio.run(work()) == {"3"}


def test_a_pool_has_at_least_one_thread(tmp_path: Path) -> None:
    """Zero threads would never answer."""
    with pytest.raises(InvalidValue, match="threads"):
        AsyncStateBackend(tmp_path, threads=0)


class Calls:
    """Calls of one sequencer, which write down their numbers."""

    def __init__(self, tmp_path: Path) -> None:
        self.pool = ThreadPool(4, "test", tmp_path)
        self.sequencer = Sequencer(self.pool)
        self.numbers: list[int] = []

    def add(self, number: int) -> Callable[[], int]:
        """Return a call that writes *number* down."""

        def call() -> int:
            self.numbers.append(number)
            return number

        return call


def test_calls_of_a_session_run_in_their_order(tmp_path: Path) -> None:
    """Also where many threads are idle, and one call fails."""
    calls = Calls(tmp_path)

    def fail() -> int:
        raise ZeroDivisionError

    futures = [calls.sequencer.start(calls.add(number)) for number in range(200)]
    failed = calls.sequencer.start(fail)
    last = calls.sequencer.start(calls.add(200))
    assert last.result(HANG_S) == 200
    assert isinstance(failed.exception(HANG_S), ZeroDivisionError)
    assert [future.result(HANG_S) for future in futures] == calls.numbers[:-1] == [*range(200)]


def test_without_a_further_thread_the_running_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was taken is answered; one that no thread can begin is refused."""
    calls = Calls(tmp_path)
    started, go = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        go.wait(HANG_S)

    calls.sequencer.start(wait)
    started.wait(HANG_S)
    waiting = [calls.sequencer.start(calls.add(number)) for number in range(3)]

    def refuse(*_given: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    go.set()
    assert [future.result(HANG_S) for future in waiting] == calls.numbers == [0, 1, 2]
    with pytest.raises(StorageError, match="limit of processes"):
        ThreadPool(1, "test", tmp_path).start(calls.add(3))
