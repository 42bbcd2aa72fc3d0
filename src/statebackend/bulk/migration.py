"""Work on many session files, whatever state each is in: migrating them, and checking them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TypeVar

from statebackend.errors import (
    SchemaTooNew,
    SessionLocked,
    SessionNotFound,
    SessionUnreadable,
    StateBackendError,
    StorageError,
)
from statebackend.files import claim, header, open_files
from statebackend.files.paths import SUFFIX
from statebackend.scanning import scan
from statebackend.sqlite.faults import os_error
from statebackend.values.ids import is_session_id
from statebackend.values.recorded import SCHEMA_VERSION
from statebackend.values.reports import Finding

_WINDOW = 64
_T = TypeVar("_T")


class Outcome(StrEnum):
    """What became of one file. Only ``migrated`` changed it."""

    CURRENT = "current"
    MIGRATED = "migrated"
    OUTDATED = "outdated"
    LIVE = "live"
    NEWER = "newer"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult:
    """What became of one file.

    ``from_version`` is None where it could not be told. ``outdated`` files wait to be migrated (a
    dry run); ``live`` ones are outdated and have a writer, so it is that program's turn; ``newer``
    ones belong to a newer program. ``error`` says why a file was not migrated.
    """

    session_id: str
    outcome: Outcome
    from_version: int | None
    to_version: int
    error: StateBackendError | None


def migrate_each(
    directory: Path,
    session_ids: Iterable[str] | None = None,
    *,
    dry_run: bool = False,
    threads: int = 1,
) -> Iterator[MigrationResult]:
    """Migrate these sessions of *directory*, or all, newest first, lazily; one result for each.

    No file ends the run. What was migrated stays so: a run that is broken off goes on with the
    next one. A file that is current is only looked at. More *threads* help where the disk takes
    its time to make a migration durable; with them, files shortly after the last result may be
    migrated already.
    """
    stems = iter(scan.stems(directory) if session_ids is None else session_ids)

    def migrate(stem: str) -> MigrationResult:
        return _migrate(directory / (stem + SUFFIX), stem, dry_run=dry_run)

    return _each(migrate, stems, threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationResult:
    """What the check of one file found.

    ``error`` says why the file could not be checked, or not to its end; then ``findings`` has one
    of ``unchecked`` that says so too.
    """

    session_id: str
    findings: tuple[Finding, ...]
    error: StateBackendError | None

    @property
    def sound(self) -> bool:
        """Tell whether nothing needs a person: no damage and no problem, notes at most."""
        return all(finding.severity == "note" for finding in self.findings)


def verify_each(
    directory: Path, session_ids: Iterable[str] | None = None, *, threads: int = 1
) -> Iterator[VerificationResult]:
    """Check these sessions of *directory*, or all, newest first, lazily; one result for each.

    Nothing is changed, and no file ends the run. SQLite works outside Python's lock, so more
    *threads* use more processors.
    """
    stems = iter(scan.stems(directory) if session_ids is None else session_ids)

    def verify(stem: str) -> VerificationResult:
        return _verify(directory / (stem + SUFFIX), stem)

    return _each(verify, stems, threads)


def _each(work: Callable[[str], _T], stems: Iterator[str], threads: int) -> Iterator[_T]:
    if threads == 1:
        yield from map(work, stems)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        while some := list(islice(stems, _WINDOW)):
            yield from pool.map(work, some)
    finally:
        pool.shutdown(cancel_futures=True)


def _verify(path: Path, stem: str) -> VerificationResult:
    from statebackend.verifying import verify

    findings: tuple[Finding, ...] = ()
    error: StateBackendError | None = None
    try:
        findings = verify.verify_file(path)
    except StateBackendError as failed:
        error = failed
    except Exception as fault:  # noqa: BLE001 - a fault met at one file is no reason to leave the others
        error = StorageError(path, f"{type(fault).__name__}: {fault}")
    if error is not None:
        text = str(error)
        findings = (Finding(severity="problem", what="unchecked", text=text),)
    return VerificationResult(session_id=stem, findings=findings, error=error)


def _migrate(path: Path, stem: str, *, dry_run: bool) -> MigrationResult:
    found = None
    error: StateBackendError | None = None
    try:
        with os_error(path):
            _find(path, stem)
            header.check_version(path, version := _version(path))
            found = version
            outcome = _bring(path, found, dry_run=dry_run)
    except SessionLocked as locked:
        outcome, error = Outcome.LIVE, locked
    except SchemaTooNew as newer:
        found, outcome, error = newer.found_version, Outcome.NEWER, newer
    except StateBackendError as failed:
        outcome, error = Outcome.FAILED, failed
    except Exception as fault:  # noqa: BLE001 - a fault met at one file is no reason to leave the others
        outcome, error = Outcome.FAILED, StorageError(path, f"{type(fault).__name__}: {fault}")
    return MigrationResult(
        session_id=stem,
        outcome=outcome,
        from_version=found,
        to_version=SCHEMA_VERSION,
        error=error,
    )


def _find(path: Path, stem: str) -> None:
    if is_session_id(stem) is None:
        raise SessionUnreadable(path, "its name is not a session id (a ULID)")
    if header.check_regular(path) is None:
        problem = header.describe_leftover(path)
        raise SessionUnreadable(path, problem) if problem else SessionNotFound(stem, path.parent)


def _version(path: Path) -> int:
    with open_files.untouched(path) as alone:
        # What this process has open, it has brought to the current version.
        return header.read_header(path).user_version if alone else SCHEMA_VERSION


def _bring(path: Path, found: int, *, dry_run: bool) -> Outcome:
    if found == SCHEMA_VERSION:
        return Outcome.CURRENT
    if dry_run and (writer := claim.writer_of(path)) is not None:
        raise SessionLocked(path.name.removesuffix(SUFFIX), writer.pid, writer.host, writer.since)
    if dry_run:
        return Outcome.OUTDATED
    from statebackend.opening import opening

    opening.bring_up(path)
    return Outcome.MIGRATED
