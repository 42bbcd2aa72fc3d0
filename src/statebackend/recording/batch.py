"""Appends that are collected, to be written in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from statebackend.errors import DuplicateEvent, InvalidValue
from statebackend.recording.appends import Appends
from statebackend.repositories.pending import PendingEvent
from statebackend.values.recorded import Event, EventKind, Producer
from statebackend.values.rows import make_event


class Batch(Appends[str]):
    """Appends that are collected, to be written in one transaction. Each returns its event id.

    Made by :meth:`Session.batch`, for a ``with`` block: all is written when it ends, nothing if it
    raises.
    """

    def __init__(
        self,
        session_id: str,
        row_limit_bytes: int,
        checked: set[tuple[EventKind, Producer]],
        write: Callable[[Sequence[PendingEvent]], Sequence[int]],
    ) -> None:
        self._session_id = session_id
        self._row_limit_bytes = row_limit_bytes
        self._checked = checked
        self._pending: dict[str, PendingEvent] = {}
        self._sequences: Sequence[int] | None = None
        self._write = write
        self._open = False

    def __enter__(self) -> Self:
        self._open = True
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open = False
        if exc_type is None and self._pending:
            self._sequences = self._write(list(self._pending.values()))

    def _take(self, pending: PendingEvent) -> str:
        if not self._open:  # what is appended now would never be written
            raise InvalidValue("batch", "takes appends only inside its `with` block")
        earlier = self._pending.get(pending.id)
        if earlier is not None:
            raise DuplicateEvent(
                self._session_id, pending.id, None, content(earlier) == content(pending)
            )
        self._pending[pending.id] = pending
        return pending.id

    @property
    def events(self) -> tuple[Event, ...]:
        """Return what was written, in order; empty while the block has not ended."""
        if self._sequences is None:
            return ()
        return tuple(map(appended, self._pending.values(), self._sequences))


def content(pending: PendingEvent) -> tuple[object, ...]:
    """Return what makes two appends of one id the same."""
    return (
        pending.timestamp if pending.timestamp_given else None,
        pending.kind,
        pending.producer,
        pending.schema_version,
        pending.payload,
        pending.cost,
        pending.items,
    )


def appended(pending: PendingEvent, sequence: int) -> Event:
    """Return the event that was written."""
    return make_event(
        sequence,
        pending.id,
        pending.timestamp,
        pending.kind,
        pending.producer,
        pending.schema_version,
        pending.payload,
    )
