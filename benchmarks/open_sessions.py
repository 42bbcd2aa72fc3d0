"""Many sessions open at once in one process: speed, threads, memory and descriptors.

``python -m benchmarks.open_sessions ours|bare FOLDER SESSIONS`` opens SESSIONS new sessions and
appends to each in five rounds. It prints the bytes of memory and the descriptors that each takes,
and the number of threads.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import shutil
import sqlite3
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

from benchmarks import bare
from benchmarks.lab import Lab
from benchmarks.measure import Figure, faster, interleave, must_equal
from benchmarks.processes import run_python
from benchmarks.samples import Sample, messages, new_session, stored_rows
from statebackend import AsyncSession, AsyncStateBackend, StateBackend

SESSIONS = 1_000
_T = TypeVar("_T")
_ROUNDS = 5


def sessions(lab: Lab) -> Iterator[Figure]:
    """Append once to each of many open sessions, five times over."""
    count = lab.size(SESSIONS, 20)
    allow_descriptors(count * 8 + 100)
    what = f"{count:,} open sessions, one append each, asyncio"
    with lab.folder() as folder, asyncio.Runner() as runner:
        backend = StateBackend(folder)
        ids = [new_session(backend, []) for _ in range(count)]
        copies = folder / "bare"
        copies.mkdir()
        for session_id in ids:
            shutil.copy(folder / f"{session_id}.sqlite", copies)
        opened = runner.run(_open(AsyncStateBackend(folder), ids))
        drivers = [bare.connect(copies / f"{session_id}.sqlite") for session_id in ids]
        stream = messages()
        prepared = [list(islice(stream, count)) for _ in range(_ROUNDS + 1)]
        for_ours, for_bare = iter(prepared), iter(prepared)

        def ours() -> None:
            runner.run(_append(opened, next(for_ours)))

        def other() -> None:
            for driver, sample in zip(drivers, next(for_bare), strict=True):
                bare.append_each(driver, (sample,))

        ours()
        other()
        times = interleave(ours, other, rounds=_ROUNDS)
        threads = threading.active_count()
        runner.run(_close(opened))
        for driver in drivers:
            driver.close()
        name = f"{ids[0]}.sqlite"
        must_equal(what, *(len(stored_rows(path / name)["events"]) for path in (folder, copies)))
    yield faster(what, times, target=0.8, items=count)
    yield Figure("its threads", str(threads), "1", threads, threads, threads, target=40)
    yield from _memory(lab, count)


def _memory(lab: Lab, count: int) -> Iterator[Figure]:
    measured: dict[str, list[float]] = {}
    for side in ("ours", "bare"):
        with lab.folder() as folder:
            printed = run_python("-m", "benchmarks.open_sessions", side, str(folder), str(count))
            measured[side] = [float(word) for word in printed.split()]
    for index, (what, target) in enumerate(
        {"its memory, kB a session": 200, "its descriptors a session": 4}.items()
    ):
        ours, other = measured["ours"][index], measured["bare"][index]
        yield Figure(what, f"{ours:.0f}", f"{other:.0f}", ours, ours, ours, target)


def allow_descriptors(count: int) -> None:
    """Raise the soft limit of descriptors to *count*, as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _open(backend: AsyncStateBackend, ids: list[str]) -> list[AsyncSession]:
    return await asyncio.gather(*(_opened(backend, session_id) for session_id in ids))


async def _opened(backend: AsyncStateBackend, session_id: str) -> AsyncSession:
    return await backend.open(session_id)


async def _append(opened: list[AsyncSession], samples: list[Sample]) -> None:
    await asyncio.gather(
        *(
            session.append_message(
                producer=sample.producer,
                payload=sample.payload,
                cost=sample.cost,
                event_id=sample.event_id,
                timestamp=sample.timestamp,
            )
            for session, sample in zip(opened, samples, strict=True)
        )
    )


async def _close(opened: list[AsyncSession]) -> None:
    for session in opened:
        await session.close()


def main() -> None:
    """Open the sessions, append to them, and print what each takes."""
    side, folder, text = sys.argv[1:]
    count = int(text)
    allow_descriptors(count * 8 + 100)
    ids = [new_session(StateBackend(folder), []) for _ in range(count + 1)]
    backend = AsyncStateBackend(folder)
    stream = messages()
    with asyncio.Runner() as runner:
        warm, *rest = ids
        opened: list[AsyncSession] = []
        drivers: list[sqlite3.Connection] = []
        for chosen in ([warm], rest):
            gc.collect()
            before = _resident_bytes(), _descriptors()
            if side == "ours":
                for group in _groups(chosen):
                    opened += runner.run(_open(backend, group))
                for _ in range(_ROUNDS):
                    for sessions in _groups(opened):
                        runner.run(_append(sessions, list(islice(stream, len(sessions)))))
            else:
                drivers += [bare.connect(Path(folder) / f"{name}.sqlite") for name in chosen]
                for _ in range(_ROUNDS):
                    for driver in drivers:
                        bare.append_each(driver, islice(stream, 1))
        gc.collect()
        size, descriptors = _resident_bytes() - before[0], _descriptors() - before[1]
        print(size / 1000 / count, descriptors / count, threading.active_count())
        runner.run(_close(opened))


def _groups(members: list[_T]) -> Iterator[list[_T]]:
    """Return 32 at a time, so that the memory of the caller's tasks is not measured."""
    for first in range(0, len(members), 32):
        yield members[first : first + 32]


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def _descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


if __name__ == "__main__":
    main()
