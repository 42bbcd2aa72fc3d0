"""Reports of a check, a recovery and the closing of stale sessions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from statebackend.errors import StateBackendError
from statebackend.values.recorded import SessionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecovery:
    """What was saved of one table of a damaged file.

    ``kept`` counts the rows in the new file. ``missing`` holds the first and last of each range of
    sequences that were given and are not kept; it is empty for a table without a sequence.
    ``known`` counts those of them that an earlier recovery of the session told already.
    ``routes`` counts the rows by what saved them: ``page``, ``wal``, ``older image``, ``carved``
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
