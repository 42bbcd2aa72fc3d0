"""Notices that several commands write to stderr."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from statebackend.cli import display, exit_codes, json_values, output, times
from statebackend.values.reports import Recovery
from statebackend.values.results import BadSession

if TYPE_CHECKING:
    from statebackend import SessionView, StateBackend

_NAMED = 20


def finish_partial(unreadable: Sequence[BadSession], incomplete: Sequence[str]) -> None:
    """Name the files and sessions that make the result partial and end with exit code 1.

    Returns without a notice if there are none.
    """
    for bad in unreadable[:_NAMED]:
        output.notice(f"left out: {bad.path.name}: {bad.problem}")
    for session_id in incomplete[:_NAMED]:
        output.notice(f"session {session_id}: {json_values.ROWS_LOST}")
    reasons = []
    if unreadable:
        reasons.append(f"{display.plural(len(unreadable), 'file')} could not be read")
    if incomplete:
        reasons.append(f"{display.plural(len(incomplete), 'session')} lost rows")
    if reasons:
        output.notice(f"the result is partial: {', '.join(reasons)}")
    exit_codes.finish(attention=bool(reasons))


def report_losses(backend: StateBackend, view: SessionView) -> tuple[bool, Recovery | None]:
    """Name the rows that earlier recoveries of the session lost.

    Returns whether rows were lost, and the newest report of a loss, None if none can be read.
    """
    if not view.info.incomplete:
        return (False, None)
    reports = reports_of_losses(backend.recoveries(), view.session_id)
    for report in reports:
        losses = [describe_losses(report) or "nothing could be saved", *_missing_ranges(report)]
        output.notice(
            f"session {report.session_id} was damaged and recovered at "
            f"{times.format_second(report.recovered_at)}, and is incomplete: "
            f"{'; '.join(losses)}; the original is {report.original}"
        )
    if not reports and view.recovery is None:
        output.notice(f"session {view.session_id}: {json_values.ROWS_LOST}")
    return (True, reports[0] if reports else None)


def reports_of_losses(recoveries: Iterable[Recovery], session_id: str) -> list[Recovery]:
    """Return those of the *recoveries* in which this session lost rows."""
    return [report for report in recoveries if report.session_id == session_id and report.partial]


def _missing_ranges(recovery: Recovery) -> Iterator[str]:
    """Return the missing sequences of each table, at most the first ranges."""
    for table in recovery.tables:
        if table.missing:
            ranges = [display.sequences(*bounds) for bounds in table.missing[:_NAMED]]
            more = len(table.missing) - len(ranges)
            rest = f" and {display.plural(more, 'more range')}" if more else ""
            yield f"missing {table.table} {', '.join(ranges)}{rest}"


@contextmanager
def write_warnings() -> Iterator[None]:
    """Write the package's warnings to stderr, above all each recovery that a command causes."""
    handler = _NoticeHandler(logging.WARNING)
    logger = logging.getLogger("statebackend")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _NoticeHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        output.notice(record.getMessage())


def describe_losses(recovery: Recovery) -> str:
    """Return in one line what a recovery could not save unchanged; empty if it saved everything."""
    sums = {
        "lost": sum(table.lost for table in recovery.tables),
        "lost before": sum(table.known for table in recovery.tables),
        "set aside": sum(table.set_aside for table in recovery.tables),
        "repaired": sum(table.repaired for table in recovery.tables),
        "in doubt": sum(table.doubtful for table in recovery.tables),
        "without their event": sum(table.orphaned for table in recovery.tables),
    }
    parts = [f"{display.plural(count, 'row')} {word}" for word, count in sums.items() if count]
    if recovery.derived:
        parts.append(f"derived from other rows: {', '.join(recovery.derived)}")
    parts += recovery.uncounted
    return ", ".join(parts)
