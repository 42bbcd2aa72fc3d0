"""Times of listings over generated sessions, for ``benchmarks.scale`` and ``test_scan``."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

from benchmarks import many_sessions
from statebackend.backend import StateBackend
from statebackend.catalogue import Catalogue
from statebackend.files.paths import SUFFIX, sqlite_uri

EVENTS = (3, 12, 30, 60)
NEWEST = 20
_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The median time of one question, in seconds, and the number of sessions in its answer."""

    what: str
    sessions: int
    seconds: float


@contextmanager
def generated_sessions(
    count: int,
    base: Path | None = None,
    events: Sequence[int] = EVENTS,
) -> Iterator[Path]:
    """Give a folder of *count* small sessions, with its own cache folder; both are deleted.

    They are created in *base* (None: the system's temporary folder). The sessions have these
    numbers of *events*, in turn.
    """
    with TemporaryDirectory(prefix="statebackend-bench-", dir=base) as name:
        folder = Path(name)
        templates = [many_sessions.template(folder / "templates", length) for length in events]
        for _path in many_sessions.stamp(folder / "sessions", templates, count):
            pass
        with patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "cache")):
            yield folder / "sessions"


def measure(directory: Path, rounds: int = _ROUNDS) -> Iterator[Timing]:
    """Ask each question *rounds* times and return the median time of each."""
    scanning, asking = StateBackend(directory, catalogue=False), StateBackend(directory)
    catalogue = Catalogue(directory)
    tree = next(scanning.ids())

    def build() -> Sized:
        catalogue.refresh()
        return list(scanning.ids())

    yield time_question("names and file times", lambda: names_and_times(directory), rounds)
    yield time_question("every session, sqlite3 alone", lambda: bare(directory), rounds)
    yield time_question(f"newest {NEWEST}, sqlite3 alone", lambda: bare(directory, NEWEST), rounds)
    yield time_question(f"newest {NEWEST}", lambda: scanning.list(limit=NEWEST), rounds)
    yield time_question("every session, from the files", lambda: list(scanning.scan()), rounds)
    yield time_question("every session, making the catalogue", build, 1)
    yield time_question(
        "every session, from the catalogue", lambda: asking.list(limit=None, roots=True), rounds
    )
    yield time_question("one tree, from the catalogue", lambda: asking.tree(tree).nodes, rounds)


def names_and_times(directory: Path) -> list[os.stat_result]:
    """Stat every session file: the least that any check of a folder must do."""
    with os.scandir(directory) as entries:
        return [entry.stat() for entry in entries if entry.name.endswith(SUFFIX)]


def bare(directory: Path, limit: int | None = None) -> list[tuple[object, ...]]:
    """Read the row and the cost of each session as one would with ``sqlite3`` alone."""
    with os.scandir(directory) as entries:
        paths = sorted(entry.path for entry in entries if entry.name.endswith(SUFFIX))
    return [_bare(path) for path in paths[::-1][:limit]]


def _bare(path: str) -> tuple[object, ...]:
    uri = sqlite_uri(path, "mode=ro&immutable=1")
    with closing(sqlite3.connect(uri, uri=True)) as driver:
        row = driver.execute("SELECT * FROM session_meta").fetchone()
        return (*row, *driver.execute("SELECT sum(cost_usd) FROM cost_ledger").fetchone())


def time_question(what: str, ask: Callable[[], Sized | int], rounds: int) -> Timing:
    """Ask *rounds* times; an answer is the sessions, or their number."""
    times = []
    for _ in range(rounds):
        before = time.perf_counter()
        answer = ask()
        times.append(time.perf_counter() - before)
    sessions = answer if isinstance(answer, int) else len(answer)
    return Timing(what=what, sessions=sessions, seconds=median(times))
