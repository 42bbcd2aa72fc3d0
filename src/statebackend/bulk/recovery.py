"""Recovering one damaged session on request, without touching a sound one."""

from __future__ import annotations

from pathlib import Path

from statebackend.errors import SessionLocked
from statebackend.files import claim
from statebackend.files.paths import SessionFiles
from statebackend.values.reports import Finding, Recovery

# The problems for which opening refuses a file, and says why.
_REFUSED = {"file", "sidecar", "link", "version", "session"}


def recover_damaged(path: Path) -> Recovery | None:
    """Recover the session *path* and return the report; None if it is not damaged.

    Raises :class:`SessionLocked` while a writer has it, and otherwise what opening raises.
    """
    from statebackend.opening import opening
    from statebackend.verifying import verify

    if (writer := claim.writer_of(path)) is not None:
        session_id = SessionFiles(path).session_id
        raise SessionLocked(session_id, writer.pid, writer.host, writer.since)
    # A sound file is not opened for writing: that would migrate one of an older version.
    if not any(_needs_opening(finding) for finding in verify.verify_file(path)):
        return None
    with opening.open_for_writing(path) as session:
        return session.recovery


def _needs_opening(finding: Finding) -> bool:
    """Tell whether opening recovers because of *finding*, or refuses the file because of it."""
    return finding.severity == "damage" or (
        finding.severity == "problem" and finding.what in _REFUSED
    )
