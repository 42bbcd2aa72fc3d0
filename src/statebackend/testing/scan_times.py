"""How long listings take on this machine, on made sessions: ``statebackend bench scan``."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

from statebackend.backend import StateBackend
from statebackend.catalogue import Catalogue
from statebackend.files.paths import SUFFIX, sqlite_uri
from statebackend.testing import many

EVENTS = (3, 12, 30, 60)
NEWEST = 20
_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The median time of one question, in seconds, and how many sessions its answer has."""

    what: str
    sessions: int
    seconds: float


@contextmanager
def made_sessions(
    count: int,
    base: Path | None = None,
    watched: Callable[[Iterator[Path]], Iterable[Path]] = iter,
    events: Sequence[int] = EVENTS,
) -> Iterator[Path]:
    """Give a folder of *count* small sessions, and another one for catalogues; both vanish.

    It is made in *base* (None: the system's place for such folders), *watched* as it grows. The
    sessions have these numbers of *events*, in turn.
    """
    with TemporaryDirectory(prefix="statebackend-bench-", dir=base) as name:
        folder = Path(name)
        templates = [many.template(folder / "templates", length) for length in events]
        for _path in watched(many.stamp(folder / "sessions", templates, count)):
            pass
        with patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "cache")):
            yield folder / "sessions"


def measure(directory: Path, rounds: int = _ROUNDS) -> Iterator[Taken]:
    """Ask each question some times, one after the other, and return the median of each."""
    scanning, asking = StateBackend(directory, catalogue=False), StateBackend(directory)
    catalogue = Catalogue(directory)
    tree = next(scanning.ids())

    def make() -> Sized:
        catalogue.refresh()
        return list(scanning.ids())

    yield taken("names and file times", lambda: names_and_times(directory), rounds)
    yield taken("every session, sqlite3 alone", lambda: bare(directory), rounds)
    yield taken(f"newest {NEWEST}, sqlite3 alone", lambda: bare(directory, NEWEST), rounds)
    yield taken(f"newest {NEWEST}", lambda: scanning.list(limit=NEWEST), rounds)
    yield taken("every session, from the files", lambda: list(scanning.scan()), rounds)
    yield taken("every session, making the catalogue", make, 1)
    yield taken(
        "every session, from the catalogue", lambda: asking.list(limit=None, roots=True), rounds
    )
    yield taken("one tree, from the catalogue", lambda: asking.tree(tree).nodes, rounds)


def names_and_times(directory: Path) -> list[os.stat_result]:
    """Look at every name and every file's times: what no check of a folder can do without."""
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


def taken(what: str, ask: Callable[[], Sized | int], rounds: int) -> Taken:
    """Ask so many times; the answer is what was found, or how many."""
    times = []
    for _ in range(rounds):
        before = time.perf_counter()
        answer = ask()
        times.append(time.perf_counter() - before)
    found = answer if isinstance(answer, int) else len(answer)
    return Taken(what=what, sessions=found, seconds=median(times))
