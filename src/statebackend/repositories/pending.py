"""One append on its way to the file: an event with what belongs into the same transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from statebackend.values.recorded import Cost, EventKind, PlanItem, Producer


@dataclass(slots=True)  # frozen would double the time of making one
class PendingEvent:
    """A checked event without its sequence, with its cost and its plan items.

    ``timestamp_given`` tells whether the caller chose the time, so that it counts as content.
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
