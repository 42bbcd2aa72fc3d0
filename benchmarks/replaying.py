"""Reading a whole session: its events into dataclasses, and the memory that a long one takes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path

from benchmarks import bare
from benchmarks.lab import Lab
from benchmarks.measure import Figure, interleave, must_equal, ratio
from benchmarks.processes import run_python
from benchmarks.samples import messages, mixed, new_session, text
from statebackend import Event, SessionView, StateBackend

_SELECT = "SELECT * FROM events ORDER BY sequence"
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """What the bare loop makes of one event: the nine columns as they are stored."""

    sequence: int
    id: str
    timestamp: str
    kind: str
    producer_category: str
    producer_name: str
    producer_version: str
    schema_version: str
    payload: bytes


def replay(lab: Lab) -> Iterator[Figure]:
    """Read every event into a frozen dataclass, against a dataclass and against bare tuples."""
    count, rounds = lab.size(100_000, 5_000), lab.size(11, 3)
    what = f"replay of {count:,} events"
    with lab.folder() as folder:
        backend = StateBackend(folder)
        session_id = new_session(backend, list(islice(mixed(), count)))
        path = backend.directory / f"{session_id}.sqlite"
        with backend.read(session_id) as view, closing(sqlite3.connect(path)) as driver:
            must_equal(what, map_tuple(map(_as_row, view.events())), map_tuple(_rows(driver)))
            for against, plain, target in (
                ("dataclasses", lambda: _size(_rows(driver)), 2.5),
                ("bare tuples", lambda: _size_of_tuples(driver), None),
            ):
                times = interleave(lambda: _size(view.events()), plain, rounds=rounds)
                yield ratio(f"{what}, against {against}", times, target=target, items=count)


def map_tuple(rows: Iterable[Row]) -> list[tuple[object, ...]]:
    """Return *rows* as tuples, to be compared."""
    return [astuple(row) for row in rows]


def _as_row(event: Event) -> Row:
    producer = event.producer
    assert not isinstance(event.timestamp, str)
    return Row(
        event.sequence,
        event.id,
        text(event.timestamp),
        event.kind,
        producer.category,
        producer.name,
        producer.version,
        event.schema_version,
        event.payload,
    )


def _rows(driver: sqlite3.Connection) -> Iterator[Row]:
    return (Row(*row) for row in driver.execute(_SELECT))


def _size(events: Iterable[Event] | Iterable[Row]) -> int:
    return sum(len(event.payload) for event in events)


def _size_of_tuples(driver: sqlite3.Connection) -> int:
    return sum(len(row[8]) for row in driver.execute(_SELECT))


def memory(lab: Lab) -> Iterator[Figure]:
    """Read a session of 400 MB in a process of its own, and see how its memory grows."""
    megabytes = lab.size(400, 20)
    with lab.folder() as folder:
        session_id = new_session(StateBackend(folder), [])
        total = _fill(folder / f"{session_id}.sqlite", megabytes)
        grown = {side: _grown_mb(side, folder, session_id, total) for side in ("ours", "bare")}
    yield Figure(
        f"peak memory of a {megabytes} MB replay above start",
        f"{grown['ours']:.1f} MB",
        f"{grown['bare']:.1f} MB",
        grown["ours"],
        grown["ours"],
        grown["ours"],
        30,
        "MB",
    )


def _fill(path: Path, megabytes: int) -> int:
    """Write events of 10 kB and, every hundredth, of 1 MB; return the size of all payloads."""
    wanted = megabytes * _MEGABYTE
    total = 0
    with closing(bare.connect(path)) as driver:
        driver.execute("BEGIN")
        for number, sample in enumerate(messages()):
            if total >= wanted:
                break
            payload = sample.payload * (2_000 if number % 100 == 99 else 20)
            driver.execute(bare.INSERT_EVENT, (*sample.event_row[:-1], payload))
            total += len(payload)
        driver.execute("COMMIT")
    return total


def _grown_mb(side: str, folder: Path, session_id: str, total: int) -> float:
    output = run_python("-m", "benchmarks.memory", side, str(folder), session_id)
    grown, size = output.split()
    must_equal("memory of a replay", int(size), total)
    return int(grown) / _MEGABYTE


def read_all(view: SessionView) -> int:
    """Read every event through the API and return the size of all payloads."""
    return _size(view.events())


def read_all_bare(driver: sqlite3.Connection) -> int:
    """Read every event into a dataclass and return the size of all payloads."""
    return _size(_rows(driver))
