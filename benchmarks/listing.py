"""Listing: the newest of many sessions, and all of them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path

from benchmarks import many_sessions
from benchmarks.lab import Lab
from benchmarks.measure import AnswersDiffer, Figure, interleave, must_equal, ratio
from benchmarks.samples import START, mixed, new_session, text
from statebackend import BadSession, SessionInfo, StateBackend

_NEWEST = 20
_TEMPLATE_EVENTS = (3, 12, 30, 60)
_SUFFIX = ".sqlite"
Answer = tuple[object, ...]


def newest(lab: Lab) -> Iterator[Figure]:
    """List the newest 20 of 100,000 sessions, against scandir, sort and 20 bare opens."""
    count, rounds = lab.size(100_000, 200), lab.size(31, 11)
    what = f"newest {_NEWEST} of {count:,} sessions"
    with folder_of_sessions(lab, count) as directory:
        backend = StateBackend(directory)
        must_equal(what, _answers(backend.list(limit=_NEWEST)), _newest_bare(directory))
        times = interleave(
            lambda: backend.list(limit=_NEWEST), lambda: _newest_bare(directory), rounds=rounds
        )
    yield ratio(what, times, target=2.0, unit="ms")


def scan(lab: Lab) -> Iterator[Figure]:
    """Read the summary of every session, against a bare loop over immutable files."""
    count, rounds = lab.size(10_000, 200), lab.size(9, 5)
    what = f"full scan of {count:,} sessions"
    with folder_of_sessions(lab, count) as directory:
        backend = StateBackend(directory)
        must_equal(what, _answers(backend.scan()), _scan_bare(directory))
        times = interleave(
            lambda: list(backend.scan()), lambda: _scan_bare(directory), rounds=rounds
        )
    yield ratio(what, times, target=1.0, items=count)


def large(lab: Lab) -> Iterator[Figure]:
    """List a page with one session of 1 GB in it, against the same page without."""
    megabytes, rounds = lab.size(1_000, 10), lab.size(101, 11)
    with (
        folder_of_sessions(lab, _NEWEST) as without,
        folder_of_sessions(lab, _NEWEST - 1) as beside,
    ):
        many_sessions.template(beside, megabytes, 1_000_000)
        ours, bare = StateBackend(beside), StateBackend(without)
        for backend in (ours, bare):
            must_equal("the pages", len(_answers(backend.list(limit=_NEWEST))), _NEWEST)
        times = interleave(
            lambda: ours.list(limit=_NEWEST), lambda: bare.list(limit=_NEWEST), rounds=rounds
        )
    what = f"page of {_NEWEST}, one session of {megabytes:,} MB, against none"
    yield ratio(what, times, target=1.1, unit="ms")


def _newest_bare(directory: Path) -> list[Answer]:
    names = sorted((entry.name for entry in os.scandir(directory)), reverse=True)
    return [_open_bare(directory, name) for name in _sessions(names)[:_NEWEST]]


def _scan_bare(directory: Path) -> list[Answer]:
    names = sorted((entry.name for entry in os.scandir(directory)), reverse=True)
    return [_open_bare(directory, name) for name in _sessions(names)]


def _sessions(names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(_SUFFIX)]


def _open_bare(directory: Path, name: str) -> Answer:
    driver = sqlite3.connect(f"file:{directory}/{name}?mode=ro&immutable=1", uri=True)
    row = driver.execute("SELECT * FROM session_meta").fetchone()
    (cost_usd,) = driver.execute("SELECT sum(cost_usd) FROM cost_ledger").fetchone()
    driver.close()
    return (*row, cost_usd)


def _answers(sessions: Iterable[SessionInfo | BadSession]) -> list[Answer]:
    return [_answer(session) for session in sessions]


def _answer(session: SessionInfo | BadSession) -> Answer:
    if isinstance(session, BadSession):
        raise AnswersDiffer(f"{session.path}: {session.problem}")
    return (
        session.session_id,
        session.parent_session_id,
        session.profile,
        session.status,
        session.depth,
        _text(session.started_at),
        None if session.ended_at is None else _text(session.ended_at),
        session.cost_usd,
    )


def _text(moment: datetime | str) -> str:
    return moment if isinstance(moment, str) else text(moment)


@contextmanager
def folder_of_sessions(lab: Lab, count: int) -> Iterator[Path]:
    """Give a folder of *count* sessions, a minute apart, of four lengths."""
    with lab.folder() as folder:
        templates = list(_templates(folder / "templates"))
        for _path in many_sessions.stamp(folder / "sessions", templates, count):
            pass
        yield folder / "sessions"


def _templates(directory: Path) -> Iterator[many_sessions.Template]:
    backend = StateBackend(directory)
    for seed, events in enumerate(_TEMPLATE_EVENTS):
        # The first event is left out: its time is the session's start, which gets stamped.
        session_id = new_session(backend, list(islice(mixed(seed), 1, events + 1)))
        path = backend.directory / f"{session_id}{_SUFFIX}"
        yield many_sessions.Template(session_id, START, path.read_bytes())
