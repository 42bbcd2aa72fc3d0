"""Writing: single appends on a disk and in memory, and batches."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks import bare
from benchmarks.lab import Lab, in_memory, memory_directory
from benchmarks.measure import Figure, Rounds, interleave, must_equal, ratio
from benchmarks.samples import (
    Sample,
    append_each,
    messages,
    mixed,
    new_session,
    stored_rows,
    write_batch,
)
from statebackend import Session, StateBackend


@dataclass(frozen=True, slots=True)
class Pair:
    """Two equal session files that are open, one on each side."""

    session: Session
    driver: sqlite3.Connection
    ours_path: Path
    bare_path: Path

    def check(self, what: str) -> None:
        """Compare all rows of both files."""
        must_equal(what, stored_rows(self.ours_path), stored_rows(self.bare_path))


@contextmanager
def open_pair(folder: Path) -> Iterator[Pair]:
    """Give two equal sessions, each opened for writing in its own way."""
    backend = StateBackend(folder / "ours")
    session_id = new_session(backend, [])
    ours_path = backend.directory / f"{session_id}.sqlite"
    bare_path = folder / "bare.sqlite"
    shutil.copyfile(ours_path, bare_path)
    with backend.open(session_id) as session, closing(bare.connect(bare_path)) as driver:
        yield Pair(session, driver, ours_path, bare_path)


def append(lab: Lab) -> Iterator[Figure]:
    """Append messages with their cost rows, one transaction each, on the disk."""
    what = "append message + cost, FULL"
    if in_memory(lab.directory):
        yield Figure(what, target=1.15, note="no disk here: use --directory")
        return
    count = lab.size(100, 20)
    with lab.folder() as folder:
        rounds = _append_rounds(folder, count, lab.size(41, 5))
    yield ratio(what, rounds, target=1.15, items=count)


def append_memory(lab: Lab) -> Iterator[Figure]:
    """Append the same where flushing to disk costs nothing."""
    what = "append message + cost, tmpfs"
    directory = memory_directory()
    if directory is None:
        yield Figure(what, target=1.8, note="no tmpfs found")
        return
    count = lab.size(500, 50)
    with lab.folder(directory) as folder:
        rounds = _append_rounds(folder, count, lab.size(41, 5))
    yield ratio(what, rounds, target=1.8, items=count)


def _append_rounds(folder: Path, count: int, rounds: int) -> Rounds:
    ours_stream, bare_stream = messages(), messages()
    with open_pair(folder) as pair:
        write_batch(pair.session, _next(ours_stream, 20))
        bare.append_first(pair.driver, _next(bare_stream, 20))
        pair.check("append")
        prepared = [_next(ours_stream, count) for _ in range(rounds)]
        for_ours, for_bare = iter(prepared), iter(prepared)
        times = interleave(
            lambda: append_each(pair.session, next(for_ours)),
            lambda: bare.append_each(pair.driver, next(for_bare)),
            rounds=rounds,
        )
        pair.check("append")
    return times


def batch(lab: Lab) -> Iterator[Figure]:
    """Append 1,000 events in one transaction; every third is a message with its cost row."""
    count, rounds = lab.size(1_000, 200), lab.size(25, 5)
    stream = mixed()
    with lab.folder() as folder, open_pair(folder) as pair:
        first = _next(stream, 30)
        write_batch(pair.session, first)
        bare.append_first(pair.driver, first)
        pair.check("batch")
        prepared = [_next(stream, count) for _ in range(rounds)]
        for_ours, for_bare = iter(prepared), iter(prepared)
        times = interleave(
            lambda: write_batch(pair.session, next(for_ours)),
            lambda: bare.append_all(pair.driver, next(for_bare)),
            rounds=rounds,
        )
        pair.check("batch")
    yield ratio(f"batch of {count:,} events", times, target=1.8, items=count)


def _next(stream: Iterator[Sample], count: int) -> list[Sample]:
    return list(islice(stream, count))
