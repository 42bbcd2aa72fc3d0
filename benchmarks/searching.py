"""Search: the index built from session files, and asked."""

from __future__ import annotations

import itertools
import json
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

from benchmarks.lab import Lab, cache_in
from benchmarks.measure import Figure, faster, interleave, must_equal, ratio
from benchmarks.samples import START, TOOL, text
from statebackend import EventKind, StateBackend
from statebackend.catalogue import Catalogue, schema
from statebackend.catalogue.search import Query, hits
from statebackend.catalogue.words import expression, phrases

_SESSION_EVENTS = 2000
_WORDS = 50_000
_SHOWN = 20
# By how often the words occur: seldom, often, in nearly every tenth event; and a phrase.
_QUERIES = ("w700", "w20", "w5 w9", '"w2 w3"')
_FILL = (
    "INSERT INTO texts (rowid, sequence, kind, category, name, version, timestamp, shown, folded) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ASK = (
    "SELECT rowid, sequence, kind, category, name, version, timestamp, "
    "snippet(texts, 7, '', '', '…', 32) FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?"
)
_Row = tuple[object, ...]


def building(lab: Lab) -> Iterator[Figure]:
    """Build the index of all sessions, against filling a table like it with the same texts."""
    count, rounds = lab.size(100_000, 4000), lab.size(5, 1)
    what = f"index of {count:,} events"
    with searchable(lab, count) as backend, lab.folder() as folder:
        catalogue = Catalogue(backend.directory)
        backend.search("w1")
        with closing(sqlite3.connect(catalogue.path)) as driver:
            prepared = _rows(driver)

        def ours() -> None:
            catalogue.path.unlink()
            backend.search("w1")

        def bare() -> None:
            _fill(folder / "bare.sqlite", prepared)

        bare()
        with (
            closing(sqlite3.connect(catalogue.path)) as driver,
            closing(sqlite3.connect(folder / "bare.sqlite")) as other,
        ):
            must_equal(what, _rows(driver), _rows(other))
        times = interleave(ours, bare, rounds=rounds)
    yield faster(what, times, target=0.5, items=count)


def asking(lab: Lab) -> Iterator[Figure]:
    """Ask for words, against FTS5's own query on the same index; then with the folder's check."""
    count, rounds = lab.size(1_000_000, 4000), lab.size(15, 3)
    with searchable(lab, count) as backend:
        backend.search("w1")
        with closing(sqlite3.connect(Catalogue(backend.directory).path)) as driver:
            for words in _QUERIES:
                yield _asked(f"search {words}, {count:,} events", words, driver, rounds)
            match = expression(phrases(_QUERIES[0]))
            times = interleave(
                lambda: backend.search(_QUERIES[0]),
                lambda: driver.execute(_ASK, (match, _SHOWN)).fetchall(),
                rounds=rounds,
            )
        sessions = -(-count // _SESSION_EVENTS)
        yield ratio(
            f"search {_QUERIES[0]} with the check of {sessions:,} files",
            times,
            target=None,
            unit="ms",
        )


def _asked(what: str, words: str, driver: sqlite3.Connection, rounds: int) -> Figure:
    query = Query(phrases(words), _SHOWN)
    match = expression(query.phrases)
    ranks = "SELECT rank FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?"
    by_rank = {
        (timestamp, sequence): rank
        for timestamp, sequence, rank in driver.execute(
            "SELECT timestamp, sequence, rank FROM texts WHERE texts MATCH ?", (match,)
        )
    }
    ours = [by_rank[text(hit.timestamp), hit.sequence] for hit in hits(driver, query)]  # type: ignore[arg-type]
    must_equal(what, ours, [rank for (rank,) in driver.execute(ranks, (match, _SHOWN))])
    times = interleave(
        lambda: hits(driver, query),
        lambda: driver.execute(_ASK, (match, _SHOWN)).fetchall(),
        rounds=rounds,
    )
    return ratio(f"{what}, {len(by_rank):,} hits", times, target=1.5, unit="ms")


def _fill(path: Path, rows: Sequence[_Row]) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        driver.execute("PRAGMA journal_mode = WAL")
        driver.execute("PRAGMA synchronous = NORMAL")
        schema.create_index(driver, path)
        for start in range(0, len(rows), _SESSION_EVENTS):
            driver.execute("BEGIN IMMEDIATE")
            driver.executemany(_FILL, rows[start : start + _SESSION_EVENTS])
            driver.execute("COMMIT")


def _rows(driver: sqlite3.Connection) -> list[_Row]:
    names = "sequence, kind, category, name, version, timestamp, shown, folded"
    return driver.execute(f"SELECT rowid, {names} FROM texts ORDER BY rowid").fetchall()


@contextmanager
def searchable(lab: Lab, count: int) -> Iterator[StateBackend]:
    """Give a folder of sessions with *count* events of 10 to 120 words, as seldom as words are."""
    rng = random.Random(0)
    words = [f"w{number}" for number in range(_WORDS)]
    weights = list(itertools.accumulate(1 / (number + 2) for number in range(_WORDS)))
    with lab.folder() as folder, cache_in(folder / "cache"):
        backend = StateBackend(folder / "sessions")
        for first in range(0, count, _SESSION_EVENTS):
            start = START + timedelta(seconds=first)
            session = backend.create("default", started_at=start)
            with session, session.batch() as batch:
                for number in range(min(_SESSION_EVENTS, count - first)):
                    said = rng.choices(words, cum_weights=weights, k=rng.randint(10, 120))
                    batch.append(
                        EventKind.TOOL_RESULT,
                        producer=TOOL,
                        payload=json.dumps({"text": " ".join(said)}).encode(),
                        schema_version="1",
                        timestamp=start + timedelta(milliseconds=number),
                    )
        yield backend
