"""Many writers of one session, threads and tasks, against one that appends alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
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
    yield _figure(lab, f"{THREADS} threads, one session, FULL", 3.0, THREADS, _in_threads)


def tasks(lab: Lab) -> Iterator[Figure]:
    """Append the same events in one thread, and in 64 asyncio tasks to one session."""
    yield _figure(lab, f"{TASKS} asyncio tasks, one session, FULL", 8.0, TASKS, _in_tasks)


def _figure(
    lab: Lab,
    what: str,
    target: float,
    writers: int,
    write: Callable[[Path, str, list[list[Sample]]], None],
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

        def one() -> None:
            with backend.open(alone) as session:
                append_each(session, next(for_alone))

        def many() -> None:
            samples = next(for_together)
            write(folder, together, [samples[number::writers] for number in range(writers)])

        one()
        many()
        taken = interleave(many, one, rounds=rounds)
        must_equal(what, *(_content(folder / f"{name}.sqlite") for name in (together, alone)))
    return faster(what, taken, target=target, items=count)


def _content(path: Path) -> list[object]:
    """Return what was appended, in an order that does not depend on who came first."""
    tables = stored_rows(path)
    return [sorted(row[1:] for row in tables["events"]), len(tables["cost_ledger"])]


def _in_threads(folder: Path, session_id: str, shares: list[list[Sample]]) -> None:
    with StateBackend(folder).open(session_id) as session:
        writers = [threading.Thread(target=append_each, args=(session, one)) for one in shares]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()


def _in_tasks(folder: Path, session_id: str, shares: list[list[Sample]]) -> None:
    async def append_all(session: AsyncSession, samples: list[Sample]) -> None:
        for one in samples:
            await session.append_message(
                producer=one.producer,
                payload=one.payload,
                cost=one.cost,
                event_id=one.event_id,
                timestamp=one.timestamp,
            )

    async def work() -> None:
        async with AsyncStateBackend(folder).open(session_id) as session:
            await asyncio.gather(*(append_all(session, one) for one in shares))

    asyncio.run(work())
