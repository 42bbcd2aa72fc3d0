"""The append methods, and the checks that every append passes before anything is written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime
from typing import Generic, TypeVar

from statebackend.errors import InvalidValue
from statebackend.repositories.pending import PendingEvent
from statebackend.values import timestamps, validation
from statebackend.values.ids import new_event_id
from statebackend.values.recorded import (
    Cost,
    EventKind,
    PlanItem,
    Producer,
    ProducerCategory,
    kernel_user,
)

Appended = TypeVar("Appended")

# What a row takes besides its texts and its payload: SQLite counts the record header as well.
_ROW_OVERHEAD_BYTES = 128


class Appends(ABC, Generic[Appended]):
    """The append methods of a session, which writes at once, and of a batch, which collects.

    Every one takes ``event_id`` (made here when None; unique within the session, so that a retry
    with the same id is safe) and ``timestamp`` (now when None; for display only, aware). All raise
    :class:`InvalidValue` naming the field, before anything is written.
    """

    _row_limit_bytes: int
    _checked: set[tuple[EventKind, Producer]]
    _last_version: object = object()  # no text, and so of no append
    _last_checked: tuple[EventKind | None, Producer | None] = (None, None)

    @abstractmethod
    def _take(self, pending: PendingEvent) -> Appended: ...

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
        return self._append(
            _MESSAGE, producer, payload, schema_version, event_id, timestamp, cost=cost
        )

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
            EventKind.PLAN, producer, payload, schema_version, event_id, timestamp, items=checked
        )

    def _append(  # noqa: PLR0917 - by position, since every append passes here
        self,
        kind: EventKind,
        producer: Producer,
        payload: bytes,
        schema_version: str,
        event_id: str | None,
        timestamp: datetime | None,
        *,
        cost: Cost | None = None,
        items: tuple[PlanItem, ...] = (),
    ) -> Appended:
        if producer is not self._last_checked[1] or kind is not self._last_checked[0]:
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
        return self._take(
            PendingEvent(
                event_id,
                timestamps.now()
                if timestamp is None
                else timestamps.normalize("timestamp", timestamp),
                timestamp is not None,
                kind,
                producer,
                schema_version,
                payload,
                cost,
                items,
            )
        )

    def _check_producer(self, kind: EventKind, producer: Producer) -> None:
        one = (kind, producer)
        try:
            checked = one in self._checked
        except TypeError:  # not hashable, so it holds something that is no text
            checked = False
        if not checked:
            validation.check_producer(kind, producer)
            self._checked.add(one)
        self._last_checked = one


# A member of an enumeration is slow to look up on Python 3.11.
_MESSAGE, _KERNEL = EventKind.MESSAGE, ProducerCategory.KERNEL
_OWN_METHODS = {
    EventKind.MESSAGE: "append_message (or append_prompt, for the user's turn)",
    EventKind.PLAN: "append_plan",
}
