"""Many writers of one session, threads and tasks, against one that appends alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path

from benchmarks.lab import Lab, in_memory
from benchmarks.measure import Figure, faster, interleave, must_equal
from benchmarks.samples import Sample, append_each, messages, new_session, stored_rows
from statebackend import AsyncSession, AsyncStateBackend, StateBackend

THREADS = 16
TASKS = 64


def threads(lab: Lab) -> Iterator[Figure]:
    """Append the same events in one thread, and in 16 to one session."""
    yield _figure(lab, f"{THREADS} threads, one session, FULL", 3.0, THREADS, _threads)


def tasks(lab: Lab) -> Iterator[Figure]:
    """Append the same events in one thread, and in 64 asyncio tasks to one session."""
    yield _figure(lab, f"{TASKS} asyncio tasks, one session, FULL", 7.0, TASKS, _tasks)


_Append = Callable[[list[list[Sample]]], None]


def _figure(
    lab: Lab,
    what: str,
    target: float,
    writers: int,
    open_for: Callable[[Path, str], AbstractContextManager[_Append]],
) -> Figure:
    if in_memory(lab.directory):
        return Figure(what, target=target, at_least=True, note="no disk here: use --directory")
    count, rounds = writers * lab.size(640 // writers, 2), lab.size(15, 3)
    stream = messages()
    with lab.folder() as folder:
        backend = StateBackend(folder)
        alone, together = new_session(backend, []), new_session(backend, [])
        prepared = [list(islice(stream, count)) for _ in range(rounds + 1)]
        for_alone, for_together = iter(prepared), iter(prepared)
        with backend.open(alone) as session, open_for(folder, together) as append:

            def one() -> None:
                append_each(session, next(for_alone))

            def many() -> None:
                samples = next(for_together)
                append([samples[number::writers] for number in range(writers)])

            one()
            many()
            taken = interleave(many, one, rounds=rounds)
        must_equal(what, *(_content(folder / f"{name}.sqlite") for name in (together, alone)))
    return faster(what, taken, target=target, items=count)


def _content(path: Path) -> list[object]:
    """Return what was appended, in an order that does not depend on who came first."""
    tables = stored_rows(path)
    return [sorted(row[1:] for row in tables["events"]), len(tables["cost_ledger"])]


@contextmanager
def _threads(folder: Path, session_id: str) -> Iterator[_Append]:
    with StateBackend(folder).open(session_id) as session:

        def append(shares: list[list[Sample]]) -> None:
            writers = [threading.Thread(target=append_each, args=(session, one)) for one in shares]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()

        yield append


@contextmanager
def _tasks(folder: Path, session_id: str) -> Iterator[_Append]:
    async def append_each_of(session: AsyncSession, shares: list[list[Sample]]) -> None:
        await asyncio.gather(*(_append_all(session, one) for one in shares))

    async def opened() -> AsyncSession:
        return await AsyncStateBackend(folder).open(session_id)

    with asyncio.Runner() as runner:
        session = runner.run(opened())
        try:
            yield lambda shares: runner.run(append_each_of(session, shares))
        finally:
            runner.run(session.close())


async def _append_all(session: AsyncSession, samples: list[Sample]) -> None:
    for one in samples:
        await session.append_message(
            producer=one.producer,
            payload=one.payload,
            cost=one.cost,
            event_id=one.event_id,
            timestamp=one.timestamp,
        )
