"""What an import did: one frozen report a file, and their sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from statebackend.values.recorded import SessionStatus
from statebackend.values.reports import Recovery


class FileOutcome(StrEnum):
    """What became of one file."""

    CREATED = "created"
    EXTENDED = "extended"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRecords:
    """Records of one sort that are in the file and not in the session, and why."""

    type: str
    subtype: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What became of one transcript file.

    ``session_id``, ``parent_session_id`` and ``status`` are the session's after the import, None
    for a refused file, whose ``problem`` says why in one line (what was written before that stays,
    and the next import goes on from there).
    ``events_added`` counts new events by kind. ``records`` counts the whole records of the file:
    each is either one of ``recorded`` (an event holds it, now or since an earlier import) or
    counted in ``skipped``. ``torn`` tells that the last line is cut off, which is not a record yet.
    ``shared_lines`` counts lines that hold several objects.
    ``unpriced_turns`` counts the new messages with tokens that no price was given for;
    ``odd_counters`` the token counters that were no number, or lower than an earlier import had
    stored, and went in as 0. ``notes`` are further remarks, one line each.
    ``recovery`` is the report if the session was found damaged.
    """

    path: Path
    outcome: FileOutcome
    session_id: str | None = None
    parent_session_id: str | None = None
    status: SessionStatus | str | None = None
    events_added: Mapping[str, int] = field(default_factory=dict)
    records: int = 0
    recorded: int = 0
    skipped: tuple[SkippedRecords, ...] = ()
    torn: bool = False
    shared_lines: int = 0
    unpriced_turns: int = 0
    odd_counters: int = 0
    problem: str | None = None
    notes: tuple[str, ...] = ()
    recovery: Recovery | None = None

    @property
    def unreadable(self) -> int:
        """Return the number of skipped pieces that are no records of a known shape at all."""
        return sum(skipped.count for skipped in self.skipped if not skipped.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What became of all files, in the order in which they were taken."""

    files: tuple[FileReport, ...]

    @property
    def created(self) -> tuple[str, ...]:
        """Return the ids of the sessions that this import made."""
        return tuple(
            report.session_id
            for report in self.files
            if report.outcome is FileOutcome.CREATED and report.session_id is not None
        )

    @property
    def refused(self) -> tuple[FileReport, ...]:
        """Return the files that were not taken."""
        return tuple(report for report in self.files if report.outcome is FileOutcome.REFUSED)

    @property
    def events_added(self) -> int:
        """Return the number of new events in all sessions."""
        return sum(sum(report.events_added.values()) for report in self.files)

    @property
    def unpriced_turns(self) -> int:
        """Return the number of new messages with tokens that no price was given for."""
        return sum(report.unpriced_turns for report in self.files)
