"""The values that go in and come out: closed vocabularies and frozen dataclasses.

Words and times that a file of ours cannot hold, found in a file made elsewhere, are handed out as
the raw text; everything that goes in is checked by ``validation``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from statebackend.errors import StateBackendError

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
    :class:`SessionStatus`. A foreign word or time is handed out as the stored text.
    ``cost_usd`` and ``unpriced_rows`` are as in :class:`CostTotals`. ``live`` tells whether a
    writer, in any process, had the session open at the time of the reading. ``incomplete`` tells
    that rows of this session were lost to damage: a recovery lost some, by its report kept beside
    the file, or left a report that nobody can read. All else is then of the rows that are left.
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
class BadSession:
    """A session file that cannot be shown (SB-27), because of ``error``.

    ``session_id`` is the file's stem and may not be a valid id; ``problem`` is the error in one
    line, without the path.
    """

    session_id: str
    path: Path
    problem: str
    error: StateBackendError


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCounts:
    """Rows per table, and events per kind (the stored words)."""

    events: int
    cost_ledger: int
    plan_items: int
    producers: int
    by_kind: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """One session in a tree.

    ``level`` is the distance from the tree's root. ``missing_parent`` marks a root that names a
    parent which is not in the folder; ``ring`` one whose chain of parents comes back to itself
    (also a session that names itself). ``own`` and ``inclusive`` are the session's spend, and
    that of it and everything below.
    """

    session: SessionInfo
    level: int
    missing_parent: bool
    ring: bool
    own: CostTotals
    inclusive: CostTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTree:
    """Sessions in tree order: roots newest first, below them children oldest first, each once.

    ``unreadable`` names the files that could not be read, ``incomplete`` the sessions of the tree
    that lost rows to damage. While there is one, the tree is ``partial``: a descendant may be
    missing, from the nodes and from every ``inclusive``, or a sum may be too small.
    """

    nodes: tuple[TreeNode, ...]
    unreadable: tuple[BadSession, ...]

    @property
    def incomplete(self) -> tuple[str, ...]:
        """Return the ids of the sessions in the tree that lost rows to damage."""
        return tuple(node.session.session_id for node in self.nodes if node.session.incomplete)

    @property
    def partial(self) -> bool:
        """Tell whether a file could not be read, or a session lost rows."""
        return bool(self.unreadable or self.incomplete)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCost:
    """What a session cost, read from the ledgers.

    ``inclusive`` (None unless asked for) adds every descendant, ``sessions`` counts them with the
    session itself. ``unreadable`` names the files of the folder that could not be read and may
    belong to the tree; it is empty unless ``inclusive`` was asked for. ``incomplete`` names those
    of the sessions counted that lost rows to damage. While either names one, the sums are
    ``partial``: they may be too small.
    """

    session_id: str
    own: CostTotals
    inclusive: CostTotals | None
    sessions: int
    unreadable: tuple[BadSession, ...]
    incomplete: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Tell whether a file that may belong to the tree could not be read, or rows were lost."""
        return bool(self.unreadable or self.incomplete)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedProducers:
    """The producers that any readable session refers to: what a plug-in cache must keep.

    Sorted; the reserved kernel producer is left out. ``unreadable`` names the files that could
    not be read and may refer to more, ``incomplete`` the sessions that lost rows to damage and may
    have referred to more.
    """

    producers: tuple[Producer, ...]
    unreadable: tuple[BadSession, ...]
    incomplete: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Tell whether a file could not be read, or a session lost rows."""
        return bool(self.unreadable or self.incomplete)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostGroup:
    """The spend of one group of ledger rows; ``key`` names the group."""

    key: str
    totals: CostTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """Spend by group, over several sessions.

    ``unreadable`` files are not in the sums. Of the sessions that are, ``incomplete`` names those
    that lost rows to damage. While either names one, the sums are ``partial``: they may be too
    small.
    """

    groups: tuple[CostGroup, ...]
    unreadable: tuple[BadSession, ...]
    incomplete: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Tell whether a file could not be read, or a session lost rows."""
        return bool(self.unreadable or self.incomplete)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRule:
    """How often one rule or subscriber took one decision."""

    decided_by: str
    decision: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """Decisions counted over all sessions, most frequent first.

    ``unreadable`` ones are not in; ``incomplete`` names those that lost rows to damage.
    """

    rules: tuple[PlanRule, ...]
    unreadable: tuple[BadSession, ...]
    incomplete: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Tell whether a file could not be read, or a session lost rows."""
        return bool(self.unreadable or self.incomplete)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """One event whose text holds what was looked for.

    ``snippet`` is some of that text in one line, ``marks`` are the places in it of the words looked
    for: where each begins and ends, in characters. The other fields are as in :class:`EventHeader`.
    """

    session_id: str
    sequence: int
    kind: EventKind | str
    producer: Producer
    timestamp: datetime | str
    snippet: str
    marks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The events found, the best first, of equally good ones the newest.

    ``unreadable`` files were not searched, or not to their end; of the sessions that were,
    ``incomplete`` names those that lost rows to damage. While either names one, the result is
    ``partial``: events may be missing.
    """

    hits: tuple[SearchHit, ...]
    unreadable: tuple[BadSession, ...]
    incomplete: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Tell whether a file could not be read, or a session lost rows."""
        return bool(self.unreadable or self.incomplete)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecovery:
    """What was saved of one table of a damaged file.

    ``kept`` counts the rows in the new file. ``missing`` holds the first and last of each range of
    sequences that were given and are not kept; it is empty for a table without a sequence.
    ``known`` counts those of them that an earlier recovery of the session told already.
    ``routes`` counts the rows by what saved them: ``page``, ``carved``, ``older image``, ``index``
    or ``derived``. ``repaired`` rows had a value put right, which the report's notes tell;
    ``doubtful`` ones are kept with a value that may be wrong, which they tell too. ``orphaned``
    ones are kept although their event is lost; ``set_aside`` ones break the schema or contradict
    others, and are in the side file instead.
    """

    table: str
    kept: int
    missing: tuple[tuple[int, int], ...] = ()
    routes: dict[str, int]
    known: int = 0
    repaired: int = 0
    doubtful: int = 0
    orphaned: int = 0
    set_aside: int = 0

    @property
    def lost(self) -> int:
        """Count the sequences that were given and are not kept, without those known before."""
        return sum(last - first + 1 for first, last in self.missing) - self.known


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The report of one recovery: what was saved of a damaged session, and where the rest is.

    ``path`` is the session's file, ``original`` the damaged one, kept beside it with its log;
    ``report`` is the file that holds this report, ``aside`` the one with the rows set aside (None
    when there are none). The first two are None when only a look was asked for. ``reasons`` is
    what the check found, ``derived`` names the columns of ``session_meta`` that were worked out
    from other rows, ``notes`` tells each repair, in at most 100 lines, and ``uncounted`` says why
    rows may be gone that nobody can count.
    """

    session_id: str
    path: Path
    original: Path | None
    report: Path | None
    aside: Path | None
    recovered_at: datetime
    reasons: tuple[str, ...]
    tables: tuple[TableRecovery, ...]
    derived: tuple[str, ...]
    notes: tuple[str, ...]
    uncounted: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Tell whether every row is kept as it was."""
        return not (self.derived or self.uncounted) and not any(
            table.missing or table.repaired or table.doubtful or table.orphaned or table.set_aside
            for table in self.tables
        )

    @property
    def partial(self) -> bool:
        """Tell whether rows are gone: missing, set aside, without their event, or worked out anew.

        A row that is kept with a value put right is not gone. Without any table, all of them are;
        where rows may be gone that nobody can count, they count as gone.
        """
        return bool(not self.tables or self.derived or self.uncounted) or any(
            table.missing or table.orphaned or table.set_aside for table in self.tables
        )


Severity = Literal["damage", "problem", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that the check of a session file found.

    ``damage``: the bytes cannot be trusted, and opening the session for writing salvages it.
    ``problem``: it can be opened, but something needs a person. ``note``: good to know.
    ``what`` is a short word that stays the same, ``text`` one line, ``count`` the number of rows,
    references or places that it is about.
    """

    severity: Severity
    what: str
    text: str
    count: int = 1


class ReapOutcome(StrEnum):
    """What became of one session. Only ``reaped`` changed it."""

    REAPED = "reaped"
    STALE = "stale"
    LIVE = "live"
    ENDED = "ended"
    NEWER = "newer"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapResult:
    """What became of one session that was to be closed for its writer.

    ``stale`` ones wait to be closed (a dry run). Left alone are ``live`` ones, which have a writer,
    ``ended`` ones, which are not running (any more), and ``newer`` ones of a newer program.
    ``status`` is what the session has now, None where that could not be told. ``ended_at`` is what
    it has, or (if ``stale``) would be given. ``error`` says why a session was not closed.
    """

    session_id: str
    outcome: ReapOutcome
    status: SessionStatus | str | None
    ended_at: datetime | str | None
    error: StateBackendError | None
