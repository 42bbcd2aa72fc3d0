"""Migrating, checking and recovering session files, whatever state each is in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from statebackend.bulk.each_file import map_stems, refuse_live, typed_error
from statebackend.errors import SchemaTooNew, SessionLocked, SessionUnreadable
from statebackend.files import header, open_files
from statebackend.files.paths import SUFFIX
from statebackend.scanning import listing
from statebackend.sqlite.faults import os_error
from statebackend.values.ids import is_session_id
from statebackend.values.recorded import SCHEMA_VERSION
from statebackend.values.reports import (
    Finding,
    MigrationOutcome,
    MigrationResult,
    Recovery,
    VerificationResult,
)

_REFUSED = {"file", "sidecar", "link", "version", "session"}
"""The codes of problems for which opening refuses a file, and says why."""


def migrate_each(
    directory: Path,
    session_ids: Iterable[str] | None = None,
    *,
    dry_run: bool = False,
    threads: int = 1,
) -> Iterator[MigrationResult]:
    """Migrate these sessions of *directory* (None: all, newest first), lazily; one result for each.

    Of a current file only the header is read. More *threads* help where a sync of the disk is slow.
    """
    stems = iter(listing.stems(directory) if session_ids is None else session_ids)
    return map_stems(partial(_migrate, directory, dry_run=dry_run), stems, threads)


def verify_each(
    directory: Path, session_ids: Iterable[str] | None = None, *, threads: int = 1
) -> Iterator[VerificationResult]:
    """Check these sessions of *directory* (None: all, newest first), lazily; one result for each.

    SQLite releases Python's lock, so more *threads* use more processors.
    """
    stems = iter(listing.stems(directory) if session_ids is None else session_ids)
    return map_stems(partial(_verify, directory), stems, threads)


def _verify(directory: Path, stem: str) -> VerificationResult:
    from statebackend.verifying import verify

    path = directory / (stem + SUFFIX)
    try:
        return VerificationResult(session_id=stem, findings=verify.verify_file(path), error=None)
    except Exception as failure:  # noqa: BLE001 - a bad file does not stop the others
        error = typed_error(path, failure)
    finding = Finding(severity="problem", what="unchecked", text=str(error))
    return VerificationResult(session_id=stem, findings=(finding,), error=error)


def _migrate(directory: Path, stem: str, *, dry_run: bool) -> MigrationResult:
    path = directory / (stem + SUFFIX)
    version = error = None
    try:
        with os_error(path):
            version = _read_version(path, stem)
            outcome = _migrate_from(version, path, dry_run=dry_run)
    except Exception as failure:  # noqa: BLE001 - a bad file does not stop the others
        error = typed_error(path, failure)
        outcome = MigrationOutcome.FAILED
        if isinstance(error, SessionLocked):
            outcome = MigrationOutcome.LIVE
        elif isinstance(error, SchemaTooNew):
            outcome, version = MigrationOutcome.NEWER, error.found_version
    return MigrationResult(
        session_id=stem,
        outcome=outcome,
        from_version=version,
        to_version=SCHEMA_VERSION,
        error=error,
    )


def _read_version(path: Path, stem: str) -> int:
    if is_session_id(stem) is None:
        raise SessionUnreadable(path, "its name is not a session id (a ULID)")
    header.find_session(path)
    with open_files.untouched(path) as untouched:
        # What this process has open, it has migrated to the current version.
        version = header.read_header(path).user_version if untouched else SCHEMA_VERSION
    header.check_version(path, version)
    return version


def _migrate_from(version: int, path: Path, *, dry_run: bool) -> MigrationOutcome:
    if version == SCHEMA_VERSION:
        return MigrationOutcome.CURRENT
    if dry_run:
        refuse_live(path)
        return MigrationOutcome.OUTDATED
    from statebackend.opening.write import open_for_writing

    open_for_writing(path, may_recover=False).close()
    return MigrationOutcome.MIGRATED


def recover_damaged(path: Path) -> Recovery | None:
    """Recover the session *path* and return the report; None if it is not damaged.

    A sound file is not opened for writing, since that would migrate one of an older version.
    """
    from statebackend.opening.write import open_for_writing
    from statebackend.verifying.verify import verify_file

    refuse_live(path)
    for finding in verify_file(path):
        refused = finding.severity == "problem" and finding.what in _REFUSED
        if refused or finding.severity == "damage":
            with open_for_writing(path) as session:
                return session.recovery
    return None
