"""A backend that vanishes, and time and ids that do not vary."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory
from unittest.mock import patch

from statebackend.backend import StateBackend
from statebackend.recording import appends
from statebackend.values import ids, timestamps

_START = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def temporary_backend() -> Iterator[StateBackend]:
    """Give a backend on a new folder, which is deleted with all its sessions at the end."""
    with TemporaryDirectory(prefix="statebackend-") as folder:
        yield StateBackend(folder)


@contextmanager
def fixed_clock(
    start: datetime = _START, step: timedelta = timedelta(milliseconds=1)
) -> Iterator[None]:
    """Let the present be *start*, and *step* later each time it is asked for, in all threads."""
    ticks = itertools.count()
    with patch.object(timestamps, "now", lambda: start + next(ticks) * step):
        yield


@contextmanager
def fixed_ids() -> Iterator[None]:
    """Let new session and event ids count up from zero, in all threads."""
    sessions, events = itertools.count(), itertools.count()

    def session_id(started_at: datetime) -> str:
        return ids.session_id_from(started_at, next(sessions).to_bytes(10, "big"))

    with (
        patch.object(ids, "new_session_id", session_id),
        patch.object(appends, "new_event_id", lambda: f"event-{next(events):08}"),
    ):
        yield
