"""Closing sessions that say running but have no living writer.

The claim decides who has one. It is held while the status is read again and changed, so a writer
that resumes the session comes before that, and the session is left to it, or after.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from statebackend.errors import (
    SchemaTooNew,
    SessionDamaged,
    SessionLocked,
    SessionNotFound,
    StateBackendError,
    StorageError,
)
from statebackend.files import claim
from statebackend.files.paths import SUFFIX
from statebackend.scanning import scan
from statebackend.values import timestamps
from statebackend.values.recorded import SessionInfo, SessionStatus
from statebackend.values.reports import ReapOutcome, ReapResult
from statebackend.values.results import BadSession


def reap_each(
    directory: Path,
    status: SessionStatus,
    session_ids: Iterable[str] | None = None,
    *,
    dry_run: bool,
) -> Iterator[ReapResult]:
    """Close these sessions of *directory*, or all stale ones, lazily; one result for each.

    Without *session_ids*, those that have ended or are live get no result, bad files do. No file
    ends the run, and none is recovered.
    """
    named = session_ids is not None
    if session_ids is None:
        listed = scan.listing(directory)
        stems = listed.stems
        each = scan.read_each(directory, _read_end, stems, listed)
    else:
        stems = list(session_ids)
        each = scan.read_each(directory, _read_end, stems)
    left = iter(stems)
    for found in each:
        stem = found.session_id if isinstance(found, BadSession) else found[0].session_id
        for other in left:
            if other == stem:
                break
            if named:  # passed over, since it is not there
                yield _failed(other, None, SessionNotFound(other, directory))
        if isinstance(found, BadSession):
            yield _failed(stem, None, found.error)
        elif named or (found[0].status == SessionStatus.RUNNING and not found[0].live):
            yield _reap(directory / (stem + SUFFIX), *found, status, dry_run=dry_run)
    if named:
        for other in left:
            yield _failed(other, None, SessionNotFound(other, directory))


def _read_end(driver: sqlite3.Connection, info: SessionInfo) -> tuple[SessionInfo, datetime | None]:
    last = driver.execute("SELECT timestamp FROM events ORDER BY sequence DESC LIMIT 1").fetchone()
    return (info, _end(info, timestamps.from_text(last[0]) if last else None))


def _end(info: SessionInfo, last: datetime | str | None) -> datetime | None:
    """Return when the session ended as far as anybody knows: at its last event."""
    times = (last, info.started_at)
    return next((time for time in times if isinstance(time, datetime)), None)


def _reap(
    path: Path, info: SessionInfo, end: datetime | None, status: SessionStatus, *, dry_run: bool
) -> ReapResult:
    if info.status != SessionStatus.RUNNING:
        return _result(info, ReapOutcome.ENDED, info.ended_at)
    try:
        if not dry_run:
            return _close(path, status)
        _refuse_as_opening_would(path)
    except StateBackendError as error:
        return _failed(info.session_id, info.status, error)
    except Exception as fault:  # noqa: BLE001 - a fault met at one file is no reason to leave the others
        unknown = StorageError(path, f"{type(fault).__name__}: {fault}")
        return _failed(info.session_id, info.status, unknown)
    return _result(info, ReapOutcome.STALE, end)


def _close(path: Path, status: SessionStatus) -> ReapResult:
    from statebackend.opening.write import open_for_writing

    with open_for_writing(path, may_recover=False) as session:
        info = session.info
        if info.status != SessionStatus.RUNNING:  # its writer came back meanwhile, and ended it
            return _result(info, ReapOutcome.ENDED, info.ended_at)
        last = next(session.events(last=1, payloads=False), None)
        session.set_status(status, ended_at=_end(info, last.timestamp if last else None))
        info = session.info
        return _result(info, ReapOutcome.REAPED, info.ended_at)


def _refuse_as_opening_would(path: Path) -> None:
    from statebackend.verifying import verify

    if (writer := claim.writer_of(path)) is not None:
        raise SessionLocked(path.name.removesuffix(SUFFIX), writer.pid, writer.host, writer.since)
    damage = [each.text for each in verify.verify_file(path) if each.severity == "damage"]
    if damage:
        raise SessionDamaged(path, tuple(damage))


def _result(info: SessionInfo, outcome: ReapOutcome, ended_at: datetime | str | None) -> ReapResult:
    return ReapResult(
        session_id=info.session_id,
        outcome=outcome,
        status=info.status,
        ended_at=ended_at,
        error=None,
    )


def _failed(stem: str, status: SessionStatus | str | None, error: StateBackendError) -> ReapResult:
    outcome = ReapOutcome.FAILED
    if isinstance(error, SessionLocked):
        outcome = ReapOutcome.LIVE
    elif isinstance(error, SchemaTooNew):
        outcome = ReapOutcome.NEWER
    return ReapResult(session_id=stem, outcome=outcome, status=status, ended_at=None, error=error)
