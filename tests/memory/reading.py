"""What the children of ``test_memory`` do: read or write a long session and tell their peak."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from sqlalchemy import select

from statebackend import SessionView, StateBackend
from statebackend.replay import replay
from statebackend.schema import models
from tests.crash.children import say
from tests.crash.samples import new_session


def orm(view: SessionView) -> Iterable[object]:
    """Return the mapped events, by blocks."""
    with view.orm() as session:
        for event in session.scalars(select(models.Event).execution_options(yield_per=500)):
            yield event
            session.expunge(event)


WAYS: dict[str, Callable[[SessionView], Iterable[object]]] = {
    "events": lambda view: view.events(),
    "headers": lambda view: view.events(payloads=False),
    "one kind": lambda view: view.events(kinds=["message"]),
    "two kinds": lambda view: view.events(kinds=["message", "plan"]),
    "replay": replay,
    "orm": orm,
}


def read(directory: str, session_id: str, way: str) -> None:
    """Read the whole session, integrity check included."""
    _warm_up(Path(directory).parent / "warm")
    before = peak()
    with StateBackend(directory).read(session_id) as view:
        rows = sum(1 for _ in WAYS[way](view))
    say({"rows": rows, "peak": peak() - before})


def write(directory: str, count: str, size: str) -> None:
    """Append so many events of that size."""
    _warm_up(Path(directory) / "warm")
    before = peak()
    with StateBackend(Path(directory) / "sessions").create("default") as session:
        for _ in range(int(count) // 100):
            with session.batch() as batch:
                for _ in range(100):
                    batch.append_prompt(payload=b"x" * int(size), schema_version="1")
        rows = session.counts().events
    say({"rows": rows, "peak": peak() - before})


def search(directory: str, words: str) -> None:
    """Index all sessions, and find these words; the hits themselves are not counted."""
    backend = StateBackend(directory)
    _warm_up(Path(directory).parent / "warm")
    before = peak()
    backend.search(words)
    say({"rows": len(backend.search(words, limit=None).hits), "peak": peak() - before})


def _warm_up(folder: Path) -> None:
    """Import all that reading needs, so that it does not count."""
    backend = StateBackend(folder)
    session_id = new_session(backend, 1)
    with backend.read(session_id) as view:
        for way in WAYS.values():
            list(way(view))


def peak() -> int:
    """Return the peak of this process's memory in bytes."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
