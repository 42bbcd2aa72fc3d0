"""Answers over several sessions; each says what it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from statebackend.errors import StateBackendError
from statebackend.values.recorded import CostTotals, EventKind, Producer, SessionInfo

CostGrouping = Literal["model", "provider", "session", "day", "profile"]
"""What :meth:`StateBackend.cost_by` can sum over."""


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
class PartialResult:
    """Base of the answers over several sessions: what they lack.

    ``unreadable`` names the files that could not be read, ``incomplete`` the sessions that were
    read but lost rows to damage.
    """

    unreadable: tuple[BadSession, ...]
    incomplete: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Return whether a file could not be read, or a session lost rows."""
        return bool(self.unreadable or self.incomplete)


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
class SessionCost(PartialResult):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedProducers(PartialResult):
    """The producers that any readable session refers to: what a plug-in cache must keep.

    Sorted; the reserved kernel producer is left out. ``unreadable`` names the files that could
    not be read and may refer to more, ``incomplete`` the sessions that lost rows to damage and may
    have referred to more.
    """

    producers: tuple[Producer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostGroup:
    """The spend of one group of ledger rows; ``key`` names the group."""

    key: str
    totals: CostTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport(PartialResult):
    """Spend by group, over several sessions.

    ``unreadable`` files are not in the sums. Of the sessions that are, ``incomplete`` names those
    that lost rows to damage. While either names one, the sums are ``partial``: they may be too
    small.
    """

    groups: tuple[CostGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRule:
    """How often one rule or subscriber took one decision."""

    decided_by: str
    decision: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules(PartialResult):
    """Decisions counted over all sessions, most frequent first.

    ``unreadable`` ones are not in; ``incomplete`` names those that lost rows to damage.
    """

    rules: tuple[PlanRule, ...]


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
class SearchResult(PartialResult):
    """The events found, the best first, of equally good ones the newest.

    ``unreadable`` files were not searched, or not to their end; of the sessions that were,
    ``incomplete`` names those that lost rows to damage. While either names one, the result is
    ``partial``: events may be missing.
    """

    hits: tuple[SearchHit, ...]
