"""Closing sessions with status running but without a living writer.

The claim says whether there is one. It is held while the status is read again and changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

from statebackend.bulk.each_file import refuse_live, typed_error
from statebackend.errors import (
    SchemaTooNew,
    SessionDamaged,
    SessionLocked,
    SessionNotFound,
    StateBackendError,
)
from statebackend.files.paths import SUFFIX
from statebackend.scanning import listing, scan
from statebackend.values import timestamps
from statebackend.values.recorded import SessionInfo, SessionStatus
from statebackend.values.reports import ReapOutcome, ReapResult
from statebackend.values.results import BadSession

_End = datetime | str | None
"""The time of a session's end; text that is not a time of the stored form; None if unknown."""
_Read = tuple[SessionInfo, _End] | BadSession


def reap_each(
    directory: Path,
    status: SessionStatus,
    session_ids: Iterable[str] | None = None,
    *,
    dry_run: bool,
) -> Iterator[ReapResult]:
    """Give *status* to these sessions of *directory*, or to all stale ones, lazily.

    Each of *session_ids* gets a result; without them, only stale sessions and bad files do.
    """
    reap = partial(_reap, directory, status, dry_run=dry_run)
    if session_ids is None:
        listed = listing.list_sessions(directory)
        sessions = scan.read_each(directory, _read_end, listed.stems, listed)
        for session in sessions:
            if isinstance(session, BadSession) or (
                session[0].status == SessionStatus.RUNNING and not session[0].live
            ):
                yield reap(session)
        return
    for session_id in session_ids:
        answers = [*scan.read_each(directory, _read_end, [session_id])]
        yield from map(reap, answers)
        if not answers:
            yield _fail(session_id, None, SessionNotFound(session_id, directory))


def _read_end(driver: sqlite3.Connection, info: SessionInfo) -> tuple[SessionInfo, _End]:
    last = driver.execute("SELECT timestamp FROM events ORDER BY sequence DESC LIMIT 1").fetchone()
    return (info, _derive_end(info, timestamps.from_text(last[0]) if last else None))


def _derive_end(info: SessionInfo, last: datetime | str | None) -> datetime | None:
    """Return the time of the last event, or of the start: nothing is known to be later."""
    return next((time for time in (last, info.started_at) if isinstance(time, datetime)), None)


def _reap(directory: Path, status: SessionStatus, session: _Read, *, dry_run: bool) -> ReapResult:
    if isinstance(session, BadSession):
        return _fail(session.session_id, None, session.error)
    info, end = session
    path = directory / (info.session_id + SUFFIX)
    if info.status != SessionStatus.RUNNING:
        return _result(info, ReapOutcome.ENDED, info.ended_at)
    try:
        if not dry_run:
            return _close(path, status)
        _refuse_as_opening_would(path)
    except Exception as error:  # noqa: BLE001 - a bad file does not stop the others
        return _fail(info.session_id, info.status, typed_error(path, error))
    return _result(info, ReapOutcome.STALE, end)


def _close(path: Path, status: SessionStatus) -> ReapResult:
    from statebackend.opening.write import open_for_writing

    with open_for_writing(path, may_recover=False) as session:
        info = session.info
        if info.status != SessionStatus.RUNNING:  # changed by a writer since the scan
            return _result(info, ReapOutcome.ENDED, info.ended_at)
        last = next(session.events(last=1, payloads=False), None)
        session.set_status(status, ended_at=_derive_end(info, last.timestamp if last else None))
        info = session.info
        return _result(info, ReapOutcome.REAPED, info.ended_at)


def _refuse_as_opening_would(path: Path) -> None:
    from statebackend.verifying.verify import verify_file

    refuse_live(path)
    damage = [finding.text for finding in verify_file(path) if finding.severity == "damage"]
    if damage:
        raise SessionDamaged(path, tuple(damage))


def _result(info: SessionInfo, outcome: ReapOutcome, ended_at: _End) -> ReapResult:
    return ReapResult(
        session_id=info.session_id,
        outcome=outcome,
        status=info.status,
        ended_at=ended_at,
        error=None,
    )


def _fail(stem: str, status: SessionStatus | str | None, error: StateBackendError) -> ReapResult:
    outcome = ReapOutcome.FAILED
    if isinstance(error, SessionLocked):
        outcome = ReapOutcome.LIVE
    elif isinstance(error, SchemaTooNew):
        outcome = ReapOutcome.NEWER
    return ReapResult(session_id=stem, outcome=outcome, status=status, ended_at=None, error=error)
