"""Notices that several commands give."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from statebackend.cli import endings, forms, moments, output, texts
from statebackend.files.paths import SUFFIX
from statebackend.values.reports import Recovery
from statebackend.values.results import BadSession

_NAMED = 20


def partial(unreadable: Sequence[BadSession], incomplete: Sequence[str]) -> None:
    """Name what the result lacks: files, and the *incomplete* sessions; then end with exit code 1.

    If it lacks nothing, nothing is said.
    """
    for bad in unreadable[:_NAMED]:
        output.notice(texts.unreadable(bad))
    for session_id in incomplete[:_NAMED]:
        output.notice(f"session {session_id}: {forms.ROWS_LOST}")
    reasons = []
    if unreadable:
        reasons.append(f"{texts.plural(len(unreadable), 'file')} could not be read")
    if incomplete:
        reasons.append(f"{texts.plural(len(incomplete), 'session')} lost rows")
    if reasons:
        output.notice(f"the result is partial: {', '.join(reasons)}")
    endings.end(found=bool(reasons))


def lost(path: Path) -> tuple[bool, Recovery | None]:
    """Say what earlier recoveries of the session file *path* lost.

    Return whether one lost anything, and the newest that did, None if no report of it can be read.
    """
    from statebackend.files import header, recovery_reports

    if not header.has_lost_rows(str(path)):
        return (False, None)
    reports = [one for one in recovery_reports.read_of(path) if one.partial]
    for report in reports:
        said = incomplete(report) or "nothing could be saved"
        output.notice(
            f"session {report.session_id} was damaged, and is not whole since its recovery at "
            f"{moments.local(report.recovered_at)}: {'; '.join([said, *_ranges(report)])}; "
            f"the original is {report.original}"
        )
    if not reports:
        output.notice(f"session {path.name.removesuffix(SUFFIX)}: {forms.ROWS_LOST}")
    return (True, reports[0] if reports else None)


def _ranges(recovery: Recovery) -> Iterator[str]:
    """Return which sequences are missing, by table, the first ones of many."""
    for table in recovery.tables:
        if table.missing:
            ranges = [texts.sequences(*one) for one in table.missing[:_NAMED]]
            more = len(table.missing) - len(ranges)
            told = ", ".join(ranges) + (f" and {texts.plural(more, 'more range')}" if more else "")
            yield f"missing {table.table} {told}"


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Write what the package warns of to stderr: above all, each recovery that a command meets."""
    handler = _Notices(logging.WARNING)
    logger = logging.getLogger("statebackend")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Notices(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        output.notice(record.getMessage())


def incomplete(recovery: Recovery) -> str:
    """Return in one line what a recovery could not save as it was; empty when it saved all."""
    sums = {
        "lost": sum(table.lost for table in recovery.tables),
        "lost before": sum(table.known for table in recovery.tables),
        "set aside": sum(table.set_aside for table in recovery.tables),
        "repaired": sum(table.repaired for table in recovery.tables),
        "in doubt": sum(table.doubtful for table in recovery.tables),
        "without their event": sum(table.orphaned for table in recovery.tables),
    }
    parts = [f"{texts.plural(count, 'row')} {word}" for word, count in sums.items() if count]
    if recovery.derived:
        parts.append(f"worked out anew: {', '.join(recovery.derived)}")
    parts += recovery.uncounted
    return ", ".join(parts)
