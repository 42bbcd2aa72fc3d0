"""The catalogue of many sessions, when it is warm: against a bare look at every file."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.lab import Lab, cache_in
from benchmarks.listing import folder_of_sessions
from benchmarks.measure import Figure, interleave, must_equal, ratio
from statebackend import StateBackend
from statebackend.catalogue import Catalogue
from statebackend.catalogue.questions import summaries

_CHILDREN = 20


def across(lab: Lab) -> Iterator[Figure]:
    """Give all summaries, and one tree among 100,000 sessions.

    The summaries are held against scandir and a stat of every file; the children and the inclusive
    cost of one session against the check of the catalogue alone, with which any question begins.
    """
    count, rounds = lab.size(100_000, 1_000), lab.size(9, 5)
    with _catalogue(lab, count) as (catalogue, root):
        backend = StateBackend(catalogue.directory)
        scanning = StateBackend(catalogue.directory, catalogue=False)
        what = f"all summaries of {count:,} sessions"
        must_equal(what, catalogue.ask(summaries.question()), list(scanning.scan()))
        must_equal(what, len(_look(catalogue.directory)), count)
        times = interleave(
            lambda: catalogue.ask(summaries.question()),
            lambda: _look(catalogue.directory),
            rounds=rounds,
        )
        yield ratio(what, times, target=2.0, items=count)

        what = f"children of one of {count:,} sessions"
        nodes = scanning.tree(root).nodes
        must_equal(what, backend.children(root), [node.session for node in nodes[:0:-1]])
        times = interleave(lambda: backend.children(root), catalogue.refresh, rounds=rounds)
        yield ratio(what, times, target=1.05, unit="ms")

        what = f"cost of a tree among {count:,} sessions"
        must_equal(what, backend.cost(root, tree=True).inclusive, nodes[0].inclusive)
        times = interleave(lambda: backend.cost(root, tree=True), catalogue.refresh, rounds=rounds)
        yield ratio(what, times, target=1.05, unit="ms")


def _look(directory: Path) -> dict[str, os.stat_result]:
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat(follow_symlinks=False) for entry in entries}


@contextmanager
def _catalogue(lab: Lab, count: int) -> Iterator[tuple[Catalogue, str]]:
    """Give the filled catalogue of so many sessions, and one of them that has children."""
    with folder_of_sessions(lab, count) as directory, lab.folder() as cache, cache_in(cache):
        root = _make_family(directory)
        time.sleep(0.2)  # what changed just now may not be relied on
        catalogue = Catalogue(directory)
        catalogue.refresh()
        yield catalogue, root


def _make_family(directory: Path) -> str:
    """Give one session some children, spread over the folder, and return its id."""
    paths = sorted(directory.iterdir())
    root = paths[len(paths) // 2].stem
    for path in paths[:: len(paths) // _CHILDREN]:
        if path.stem != root:
            driver = sqlite3.connect(path, isolation_level=None)
            driver.execute("UPDATE session_meta SET parent_session_id = ?", (root,))
            driver.close()
    return root
