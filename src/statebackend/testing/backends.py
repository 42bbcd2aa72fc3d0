"""A backend in a temporary folder, and time and ids that are the same in every run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from statebackend.backend import StateBackend
from statebackend.recording import appends
from statebackend.values import ids, timestamps

_START = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def temporary_backend() -> Iterator[StateBackend]:
    """Give a backend on a new folder; the folder and its sessions are deleted at the end."""
    with TemporaryDirectory(prefix="statebackend-") as folder:
        yield StateBackend(folder)


@contextmanager
def fixed_clock(
    start: datetime = _START, step: timedelta = timedelta(milliseconds=1)
) -> Iterator[None]:
    """Replace the current time, in all threads, by *start*, then *step* later at each reading.

    *start* is aware UTC. The current time becomes the ``started_at`` of new sessions and the
    timestamp of events that are appended without one.
    """
    ticks = itertools.count()
    with _replace(timestamps, "now", lambda: start + next(ticks) * step):
        yield


@contextmanager
def fixed_ids() -> Iterator[None]:
    """Count new session and event ids up from zero, in all threads."""
    sessions, events = itertools.count(), itertools.count()

    def session_id(started_at: datetime) -> str:
        return ids.session_id_from(started_at, next(sessions).to_bytes(10, "big"))

    with (
        _replace(ids, "new_session_id", session_id),
        _replace(appends, "new_event_id", lambda: f"event-{next(events):08}"),
    ):
        yield


@contextmanager
def _replace(module: ModuleType, name: str, function: Callable[..., Any]) -> Iterator[None]:
    original = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, original)
