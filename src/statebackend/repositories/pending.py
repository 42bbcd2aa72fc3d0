"""An event to be appended, with the rows that belong to the same transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from statebackend.values.recorded import Cost, Event, EventKind, PlanItem, Producer


@dataclass(slots=True)  # frozen would double the time to build it
class PendingEvent:
    """A checked event without its sequence, with its cost and its plan items.

    ``timestamp_given`` says whether the caller chose the time, which then counts as content.
    """

    id: str
    timestamp: datetime
    timestamp_given: bool
    kind: EventKind
    producer: Producer
    schema_version: str
    payload: bytes
    cost: Cost | None = None
    items: tuple[PlanItem, ...] = ()


def same_content(
    earlier: Event | PendingEvent,
    cost: Cost | None,
    items: tuple[PlanItem, ...],
    repeated: PendingEvent,
) -> bool:
    """Return whether *repeated* has the content of *earlier* with its cost and items.

    The time counts only if the caller of the repeated append chose it.
    """
    return (
        not (repeated.timestamp_given and earlier.timestamp != repeated.timestamp)
        and earlier.kind == repeated.kind
        and earlier.producer == repeated.producer
        and earlier.schema_version == repeated.schema_version
        and earlier.payload == repeated.payload
        and cost == repeated.cost
        and items == repeated.items
    )
