"""Answers about several sessions; each says which sessions it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from statebackend.errors import StateBackendError
from statebackend.values.recorded import CostTotals, EventKind, Producer, SessionInfo

CostGrouping = Literal["model", "provider", "session", "day", "profile"]
"""What spend can be grouped by. A day is a UTC date."""


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
    """A result over several sessions, which may lack some of them, or some of their rows.

    ``unreadable`` are the files that could not be read and are left out. ``incomplete`` names the
    sessions in the result that lost rows to damage.
    """

    unreadable: tuple[BadSession, ...]
    incomplete: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Return whether a file could not be read or a session lost rows: more may exist."""
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
class SessionTree(PartialResult):
    """Sessions in tree order: roots newest first, below them children oldest first, each once.

    While the tree is ``partial``, a descendant may be missing from the nodes and from every
    ``inclusive`` sum.
    """

    nodes: tuple[TreeNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCost(PartialResult):
    """What a session cost, read from the ledgers.

    ``inclusive`` (None unless asked for) adds every descendant; ``sessions`` counts them and the
    session itself. An ``unreadable`` file may belong to the tree; there is none unless
    ``inclusive`` was asked for. While the result is ``partial``, the sums may be too small.
    """

    session_id: str
    own: CostTotals
    inclusive: CostTotals | None
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedProducers(PartialResult):
    """The producers that any readable session refers to: what a plug-in cache must keep.

    Sorted, without the reserved kernel producer. While the result is ``partial``, sessions may
    refer to more.
    """

    producers: tuple[Producer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostGroup:
    """The spend of one group of ledger rows; ``key`` names the group."""

    key: str
    totals: CostTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport(PartialResult):
    """Spend by group, over several sessions; while it is ``partial``, sums may be too small."""

    groups: tuple[CostGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRule:
    """How often one rule or subscriber took one decision."""

    decided_by: str
    decision: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules(PartialResult):
    """Decisions counted over all sessions, most frequent first."""

    rules: tuple[PlanRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """One event whose text matches a search.

    ``snippet`` is a part of that text in one line; ``marks`` are the matches in it, the start and
    end of each in characters. The other fields are as in :class:`EventHeader`.
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
    """The events that match, the best first, of equally good ones the newest.

    ``unreadable`` files were not searched, or not to their end. While the result is ``partial``,
    events may be missing.
    """

    hits: tuple[SearchHit, ...]
