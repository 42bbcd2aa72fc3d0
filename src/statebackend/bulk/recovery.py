"""Recovering one damaged session on request, without touching a sound one."""

from __future__ import annotations

from pathlib import Path

from statebackend.bulk.each_file import refuse_live
from statebackend.values.reports import Finding, Recovery

_REFUSED = {"file", "sidecar", "link", "version", "session"}
"""The codes of problems for which opening refuses a file, and says why."""


def recover_damaged(path: Path) -> Recovery | None:
    """Recover the session *path* and return the report; None if it is not damaged.

    A sound file is not opened for writing, since that would migrate one of an older version. Raises
    :class:`SessionLocked` while a writer has it, and otherwise what opening raises.
    """
    from statebackend.opening.write import open_for_writing
    from statebackend.verifying.verify import verify_file

    refuse_live(path)
    if not any(map(_needs_opening, verify_file(path))):
        return None
    with open_for_writing(path) as session:
        return session.recovery


def _needs_opening(finding: Finding) -> bool:
    """Tell whether opening recovers because of *finding*, or refuses the file because of it."""
    return finding.severity == "damage" or (
        finding.severity == "problem" and finding.what in _REFUSED
    )
