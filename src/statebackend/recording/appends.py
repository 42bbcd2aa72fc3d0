"""The append methods: each checks an append, builds the pending event and hands it on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Generic, Self, TypeVar

from statebackend.errors import DuplicateEvent, InvalidValue
from statebackend.repositories.pending import PendingEvent, same_content
from statebackend.values import timestamps, validation
from statebackend.values.ids import new_event_id
from statebackend.values.recorded import (
    Cost,
    Event,
    EventKind,
    PlanItem,
    Producer,
    ProducerCategory,
    kernel_user,
)
from statebackend.values.rows import make_event

Appended = TypeVar("Appended")

# What a row takes besides its texts and its payload: SQLite counts the record header as well.
_ROW_OVERHEAD_BYTES = 128


class AppendChecks:
    """The checks that every append to one session passes before anything is written.

    ``row_limit_bytes`` is SQLite's for one row. Producers that passed are remembered.
    """

    def __init__(self, row_limit_bytes: int) -> None:
        self._row_limit_bytes = row_limit_bytes
        self._producers: set[tuple[EventKind, Producer]] = set()
        self._last: tuple[EventKind | None, Producer | None] = (None, None)
        self._last_version: object = object()  # no text, and so of no append

    def pending(  # noqa: PLR0917 - by position, since every append passes here
        self,
        kind: EventKind,
        producer: Producer,
        payload: bytes,
        schema_version: str,
        event_id: str | None,
        timestamp: datetime | None,
        cost: Cost | None,
        items: tuple[PlanItem, ...],
    ) -> PendingEvent:
        """Return the checked event; raise :class:`InvalidValue` naming the field."""
        if producer is not self._last[1] or kind is not self._last[0]:
            self._check_producer(kind, producer)
        if type(payload) is not bytes:
            payload = validation.check_payload(payload)
        if schema_version is not self._last_version:
            self._last_version = validation.check_text("schema_version", schema_version)
        if event_id is None:
            event_id = new_event_id()
        else:
            validation.check_text("event_id", event_id)
        texts = len(event_id) + len(schema_version) + len(producer.name) + len(producer.version)
        # UTF-8: at most 4 bytes a character
        if len(payload) + 4 * texts + _ROW_OVERHEAD_BYTES > self._row_limit_bytes:
            raise InvalidValue(
                "payload",
                f"{len(payload)} bytes make a row over SQLite's limit of "
                f"{self._row_limit_bytes} bytes; store it elsewhere and refer to it",
            )
        return PendingEvent(
            event_id,
            timestamps.now() if timestamp is None else timestamps.normalize("timestamp", timestamp),
            timestamp is not None,
            kind,
            producer,
            schema_version,
            payload,
            cost,
            items,
        )

    def _check_producer(self, kind: EventKind, producer: Producer) -> None:
        pair = (kind, producer)
        try:
            is_known = pair in self._producers
        except TypeError:  # not hashable, so it holds something that is no text
            is_known = False
        if not is_known:
            validation.check_producer(kind, producer)
            self._producers.add(pair)
        self._last = pair


class Appends(Generic[Appended]):
    """The append methods of a session, which commits at once, and of a batch, which collects.

    Each takes ``event_id`` (made here when None; unique within the session, so that a retry with
    the same id is safe) and ``timestamp`` (now when None; for display only, aware). All raise
    :class:`InvalidValue` naming the field, before anything is written.
    """

    def __init__(self, checks: AppendChecks, take: Callable[[PendingEvent], Appended]) -> None:
        self._checks = checks
        self._take = take

    def append(
        self,
        kind: EventKind | str,
        *,
        producer: Producer,
        payload: bytes,
        schema_version: str,
        event_id: str | None = None,
        timestamp: datetime | None = None,
    ) -> Appended:
        """Append an event of any kind but ``message`` and ``plan``, which have their own methods.

        Those two carry rows of other tables, so leaving them out must be said there.
        """
        kind = validation.check_word("kind", EventKind, kind)
        if kind in _OWN_METHODS:
            raise InvalidValue("kind", f"a {kind} is appended by {_OWN_METHODS[kind]}")
        return self._append(kind, producer, payload, schema_version, event_id, timestamp)

    def append_message(
        self,
        *,
        producer: Producer,
        payload: bytes,
        cost: Cost | None,
        schema_version: str = "1",
        event_id: str | None = None,
        timestamp: datetime | None = None,
    ) -> Appended:
        """Append a completed model turn with its cost row, in one transaction (SB-16).

        ``cost=None`` must be said: the message then has no row in the ledger.
        """
        if cost is not None:
            validation.check_cost(cost)
            if (
                isinstance(producer, Producer)
                and producer.name == "user"
                and producer.category == _KERNEL
            ):
                raise InvalidValue("cost", "a prompt of the user has no cost (SB-41)")
        return self._append(_MESSAGE, producer, payload, schema_version, event_id, timestamp, cost)

    def append_prompt(
        self,
        *,
        payload: bytes,
        schema_version: str,
        event_id: str | None = None,
        timestamp: datetime | None = None,
    ) -> Appended:
        """Append the user's own turn: a message of the reserved kernel producer (SB-41)."""
        return self._append(
            EventKind.MESSAGE, kernel_user(), payload, schema_version, event_id, timestamp
        )

    def append_plan(
        self,
        *,
        producer: Producer,
        payload: bytes,
        items: Iterable[PlanItem],
        schema_version: str = "1",
        event_id: str | None = None,
        timestamp: datetime | None = None,
    ) -> Appended:
        """Append a plan with its items, possibly none, in one transaction (SB-17)."""
        checked = tuple(validation.check_plan_item(item) for item in items)
        return self._append(
            EventKind.PLAN, producer, payload, schema_version, event_id, timestamp, None, checked
        )

    def _append(  # noqa: PLR0917 - by position, since every append passes here
        self,
        kind: EventKind,
        producer: Producer,
        payload: bytes,
        schema_version: str,
        event_id: str | None,
        timestamp: datetime | None,
        cost: Cost | None = None,
        items: tuple[PlanItem, ...] = (),
    ) -> Appended:
        return self._take(
            self._checks.pending(
                kind, producer, payload, schema_version, event_id, timestamp, cost, items
            )
        )


class Collected:
    """The appends of one batch, by their ids. It takes them while ``is_open``."""

    def __init__(self, session_id: str) -> None:
        self.pending: dict[str, PendingEvent] = {}
        self.is_open = False
        self._session_id = session_id

    def take(self, pending: PendingEvent) -> str:
        """Add an append and return its event id; raise :class:`DuplicateEvent`."""
        if not self.is_open:  # what is appended now would never be written
            raise InvalidValue("batch", "takes appends only inside its `with` block")
        earlier = self.pending.get(pending.id)
        if earlier is not None:
            same = same_content(earlier, earlier.cost, earlier.items, pending)
            raise DuplicateEvent(self._session_id, pending.id, None, same)
        self.pending[pending.id] = pending
        return pending.id


class CollectedAppends(Appends[str]):
    """Appends that are collected, to be committed in one transaction. Each returns its event id."""

    def __init__(self, session_id: str, checks: AppendChecks) -> None:
        self._collected = Collected(session_id)
        self._sequences: Sequence[int] | None = None
        super().__init__(checks, self._collected.take)

    @property
    def events(self) -> tuple[Event, ...]:
        """Return what was written, in order; empty while the block has not ended."""
        if self._sequences is None:
            return ()
        return tuple(map(appended_event, self._collected.pending.values(), self._sequences))


class Batch(CollectedAppends):
    """Appends that are collected, to be committed in one transaction. Each returns its event id.

    Made by :meth:`Session.batch`, for a ``with`` block: all is committed when it ends, nothing if
    it raises.
    """

    def __init__(
        self,
        session_id: str,
        checks: AppendChecks,
        commit: Callable[[Sequence[PendingEvent]], Sequence[int]],
    ) -> None:
        super().__init__(session_id, checks)
        self._commit = commit

    def __enter__(self) -> Self:
        self._collected.is_open = True
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._collected.is_open = False
        if exc_type is None and self._collected.pending:
            self._sequences = self._commit(list(self._collected.pending.values()))


def appended_event(pending: PendingEvent, sequence: int) -> Event:
    """Return the event that was committed."""
    return make_event(
        sequence,
        pending.id,
        pending.timestamp,
        pending.kind,
        pending.producer,
        pending.schema_version,
        pending.payload,
    )


# A member of an enumeration is slow to look up on Python 3.11.
_MESSAGE, _KERNEL = EventKind.MESSAGE, ProducerCategory.KERNEL
_OWN_METHODS = {
    EventKind.MESSAGE: "append_message (or append_prompt, for the user's turn)",
    EventKind.PLAN: "append_plan",
}
