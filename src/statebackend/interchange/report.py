"""Reports of an import: one for each file, and the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from statebackend.values.recorded import SessionStatus
from statebackend.values.reports import Recovery


class FileOutcome(StrEnum):
    """The result for one file."""

    CREATED = "created"
    EXTENDED = "extended"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRecords:
    """The number of records of one type that were not imported for one reason."""

    type: str
    subtype: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """The import of one transcript file.

    ``session_id``, ``parent_session_id`` and ``status`` are the session's after the import, None
    for a refused file, whose ``problem`` gives the reason in one line (events appended before it
    stay, and the next import continues after them).
    ``events_added`` counts new events by kind. ``records`` counts the records of the file: each is
    either in ``recorded`` (an event has it, from this import or an earlier one) or in ``skipped``.
    ``torn`` tells that the last line is incomplete; it is not a record yet. ``shared_lines`` counts
    lines with several objects.
    ``unpriced_turns`` counts new messages with tokens but without a price; ``odd_counters`` counts
    token counters stored as 0, since they were not numbers or were lower than an earlier import
    had stored. ``notes`` are further remarks, one line each.
    ``recovery`` is the report of the recovery if the session was damaged.
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
        """Return the number of skipped pieces that could not be parsed."""
        return sum(skipped.count for skipped in self.skipped if not skipped.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The import of all files, in the order of their import."""

    files: tuple[FileReport, ...]

    @property
    def created(self) -> tuple[str, ...]:
        """Return the ids of the sessions that this import created."""
        return tuple(
            report.session_id
            for report in self.files
            if report.outcome is FileOutcome.CREATED and report.session_id is not None
        )

    @property
    def refused(self) -> tuple[FileReport, ...]:
        """Return the reports of the files that were not imported."""
        return tuple(report for report in self.files if report.outcome is FileOutcome.REFUSED)

    @property
    def events_added(self) -> int:
        """Return the number of new events in all sessions."""
        return sum(sum(report.events_added.values()) for report in self.files)

    @property
    def unpriced_turns(self) -> int:
        """Return the number of new messages with tokens but without a price."""
        return sum(report.unpriced_turns for report in self.files)
