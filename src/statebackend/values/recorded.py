"""What a session file records: the closed vocabularies, and a frozen value for each kind of row.

A word or time that this package does not write is given as the stored text. ``validation`` checks
everything that is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

SCHEMA_VERSION = 1
"""The ``PRAGMA user_version`` that this package writes and the highest it reads."""


class EventKind(StrEnum):
    """The closed set of event kinds (SB-13; specification, "The kind enum")."""

    MESSAGE = "message"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    PLAN = "plan"
    APPLY = "apply"
    CONTEXT_CONTRIBUTION = "context_contribution"
    MEMORY_WRITE = "memory_write"
    MEMORY_UPDATE = "memory_update"
    MEMORY_DELETE = "memory_delete"
    HOOK_ERROR = "hook_error"


class ProducerCategory(StrEnum):
    """The seven plug-in categories, and the reserved one of the kernel (SB-14, SB-41)."""

    MODEL = "model"
    TOOL = "tool"
    CONTEXT = "context"
    MEMORY = "memory"
    FRONTEND = "frontend"
    WIDGET = "widget"
    SLASHCOMMAND = "slashcommand"
    KERNEL = "kernel"


class SessionStatus(StrEnum):
    """The closed set of session statuses (SB-20; specification, "session_meta")."""

    RUNNING = "running"
    COMPLETED = "completed"
    ERROR_MAX_TURNS = "error_max_turns"
    ERROR_MAX_BUDGET_USD = "error_max_budget_usd"
    ERROR_MAX_WALL_CLOCK = "error_max_wall_clock"
    CANCELLED = "cancelled"
    FAILED = "failed"


class PlanDecision(StrEnum):
    """What was decided about one planned call (SB-17)."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Producer:
    """Who wrote an event: a plug-in build, or the reserved kernel identity.

    ``category`` is a :class:`ProducerCategory` word, ``name`` and ``version`` are the plug-in's.
    """

    category: str
    name: str
    version: str


def kernel_user(version: str = "1") -> Producer:
    """Return the reserved producer of the user's own turn (SB-41)."""
    return Producer(ProducerCategory.KERNEL, "user", version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The spend of one model turn, stored exactly as given (SB-16).

    The four token counters do not overlap: ``input_tokens`` excludes what was read from or
    written to the provider's cache. Each is 0 … 2^63-1. ``cost_usd`` is in US dollars, finite,
    not negative; 0.0 stands for "no price known" as well as for "free".
    """

    provider_name: str
    model_id: str
    input_tokens: int
    output_tokens: int
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanItem:
    """One planned tool call and what was decided about it (SB-17).

    ``decision`` is a :class:`PlanDecision` word; ``decided_by`` names the policy rule or the
    subscriber that decided.
    """

    turn_id: str
    tool_call_id: str
    provider_name: str
    tool_name: str
    decision: str
    decided_by: str


@dataclass(frozen=True, slots=True)
class EventHeader:
    """One event without its payload.

    ``sequence`` is the only order authority (SB-04). ``timestamp`` is for display: aware UTC, or
    the stored text if that is not in this package's form. ``kind`` is an :class:`EventKind`, or
    the stored word.
    """

    sequence: int
    id: str
    timestamp: datetime | str
    kind: EventKind | str
    producer: Producer
    schema_version: str


@dataclass(frozen=True, slots=True)
class Event(EventHeader):
    """One event; ``payload`` is byte for byte what was appended (SB-12)."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class CostEntry:
    """One row of ``cost_ledger``: ``event_sequence`` is its message's sequence."""

    sequence: int
    event_sequence: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One row of ``plan_items``: ``event_sequence`` is its plan's sequence."""

    sequence: int
    event_sequence: int
    item: PlanItem


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """One row of ``producers``: ``first_seen_sequence`` is the producer's first event."""

    producer: Producer
    first_seen_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTotals:
    """Sums over ledger rows.

    ``cost_usd`` is None when there is no row, and where infinities of both signs, in files made
    elsewhere, have no sum. ``unpriced_rows`` counts the rows that hold tokens but cost 0.0: while
    it is not 0, ``cost_usd`` is a lower bound.
    """

    rows: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    cost_usd: float | None = None
    unpriced_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """The seven columns of ``session_meta`` and what is derived at read time (SB-22).

    ``started_at`` and ``ended_at`` are aware UTC (``ended_at`` None while running); ``status`` is a
    :class:`SessionStatus`. A word or time of another program is given as the stored text.
    ``cost_usd`` and ``unpriced_rows`` are as in :class:`CostTotals`. ``live`` says whether a
    writer, in any process, had the session open when it was read. ``incomplete`` says that rows
    were lost to damage: the report of a recovery beside the file lists some, or is not readable.
    The other fields are then computed from the rows that remain.
    """

    session_id: str
    parent_session_id: str | None
    profile: str
    status: SessionStatus | str
    depth: int
    started_at: datetime | str
    ended_at: datetime | str | None
    cost_usd: float | None
    unpriced_rows: int
    live: bool
    incomplete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCounts:
    """Rows per table, and events per kind (the stored words)."""

    events: int
    cost_ledger: int
    plan_items: int
    producers: int
    by_kind: dict[str, int]
