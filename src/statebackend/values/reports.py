"""Reports of a check, a recovery, a migration and the closing of stale sessions."""

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
    ``known`` counts those of them that an earlier recovery of the session has reported. ``routes``
    counts the rows by what saved them: ``page``, ``wal``, ``older image``, ``carved`` or
    ``derived``. ``repaired`` rows had a value corrected, ``doubtful`` ones are kept with a value
    that may be wrong; the report's notes name both. ``orphaned`` rows are kept although their event
    is lost; ``set_aside`` ones break the schema or contradict others, and are in the side file
    instead.
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
        """Count the sequences that were given and are not kept, without the ``known`` ones."""
        return sum(last - first + 1 for first, last in self.missing) - self.known


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The report of one recovery: what was saved of a damaged session, and where the rest is.

    ``path`` is the session's file, ``original`` the damaged one, kept beside it with its WAL;
    ``report`` is the file that holds this report, ``aside`` the one with the rows set aside (None
    if there are none). ``original`` and ``report`` are None for a partial view, which changes
    nothing. ``reasons`` are the findings of the check, ``derived`` the columns of ``session_meta``
    that were worked out from other rows, ``notes`` the repairs, in at most 100 lines, and
    ``uncounted`` says why rows may be missing that cannot be counted.
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
        """Return whether every row was kept unchanged."""
        return not (self.derived or self.uncounted) and not any(
            table.missing or table.repaired or table.doubtful or table.orphaned or table.set_aside
            for table in self.tables
        )

    @property
    def partial(self) -> bool:
        """Return whether rows are gone: missing, set aside, without their event, or derived.

        A row with a corrected value is not gone. Without any table, all rows are. Rows that cannot
        be counted count as gone.
        """
        return bool(not self.tables or self.derived or self.uncounted) or any(
            table.missing or table.orphaned or table.set_aside for table in self.tables
        )


Severity = Literal["damage", "problem", "note"]
FindingCode = Literal[
    # The names in the folder
    "file",  # not a regular file, or its name is not a session id
    "sidecar",  # the WAL, shm or rollback journal is not a regular file
    "unfinished",  # a recovery was interrupted
    "link",  # the file has a second name
    "rights",  # other users may open the file or a sidecar
    # The bytes, before SQLite reads them
    "header",
    "version",  # newer than this program, or older
    "wal",  # commits in the WAL that SQLite would leave out, or another file's WAL
    # What SQLite reports
    "integrity",  # the integrity check, the tables, the row of session_meta
    "session",  # not a session file, or one that holds another id
    "unreadable",  # a later check met a broken page
    "shape",  # tables and indexes differ from those of the file's version
    # The rows
    "value",
    "meta",  # values of session_meta that contradict each other
    "foreign_key",
    "ledger",  # cost rows of events that are not messages
    "plan",  # plan items of events that are not plans
    "producer",  # producers that contradict the events
    "sequence",  # the highest number that SQLite remembers
    "gap",  # sequences that are missing
    "loss",  # rows that a recovery could not count
    # The check itself
    "unchecked",  # a storage error ended it
]
"""What a finding is about. The codes do not change; the texts may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of the check of a session file.

    ``damage``: the bytes cannot be trusted, and opening the session for writing salvages it.
    ``problem``: it can be opened, but something needs a person. ``note``: good to know.
    ``what`` is the code, ``text`` one line, ``count`` the number of rows, references or places that
    it is about.
    """

    severity: Severity
    what: FindingCode
    text: str
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationResult:
    """The findings about one session file.

    ``error`` says why the file could not be checked, or not to the end; ``findings`` then has one
    of code ``unchecked``.
    """

    session_id: str
    findings: tuple[Finding, ...]
    error: StateBackendError | None

    @property
    def sound(self) -> bool:
        """Return whether there is no damage and no problem; notes are allowed."""
        return all(finding.severity == "note" for finding in self.findings)


class MigrationOutcome(StrEnum):
    """What a migration did with one file. Only ``migrated`` changed it."""

    CURRENT = "current"
    MIGRATED = "migrated"
    OUTDATED = "outdated"
    LIVE = "live"
    NEWER = "newer"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult:
    """What a migration did with one session file.

    ``from_version`` is None if it could not be read. ``outdated`` files wait to be migrated (a dry
    run). ``live`` ones are outdated and have a writer, which migrates them at its next open.
    ``newer`` ones were written by a newer program. ``error`` says why a file was not migrated.
    """

    session_id: str
    outcome: MigrationOutcome
    from_version: int | None
    to_version: int
    error: StateBackendError | None


class ReapOutcome(StrEnum):
    """What reaping did with one session. Only ``reaped`` changed it."""

    REAPED = "reaped"
    STALE = "stale"
    LIVE = "live"
    ENDED = "ended"
    NEWER = "newer"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapResult:
    """What reaping did with one session.

    ``stale`` ones wait to be closed (a dry run). These are left as they are: ``live`` ones, which
    have a writer; ``ended`` ones, which are not running (any more); ``newer`` ones, which a newer
    program wrote. ``status`` is what the session has now, None if it could not be read.
    ``ended_at`` is what it has, or (if ``stale``) would get. ``error`` says why a session was not
    closed.
    """

    session_id: str
    outcome: ReapOutcome
    status: SessionStatus | str | None
    ended_at: datetime | str | None
    error: StateBackendError | None
