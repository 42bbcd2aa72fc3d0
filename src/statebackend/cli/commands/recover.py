"""``recover``: save what can be saved of a damaged session, now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from statebackend.cli import endings, escape, forms, identify, moments, notices, output, texts
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import Cell, Column, write_table
from statebackend.errors import SessionLocked
from statebackend.files.paths import SessionFiles
from statebackend.values.reports import Finding, Recovery, TableRecovery

if TYPE_CHECKING:
    from pathlib import Path

_NAMED = 20
_COLUMNS = (
    Column("table"),
    Column("kept", right=True),
    Column("lost", right=True),
    Column("set aside", right=True),
    Column("repaired", right=True),
    Column("in doubt", right=True),
    Column("orphaned", right=True),
    Column("missing sequences", wrap=True, optional=True),
)


@click.command("recover", cls=SessionsCommand)
@click.argument("session", metavar="ID", shell_complete=complete_id)
@json_option
def command(*, session: str, as_json: bool) -> None:
    """Save what can be saved of a damaged session, and keep the damaged original.

    Opening a session for writing does the same. A session that is not damaged is left as it is. The
    exit code is 1 if something is missing or not as it was.
    """
    from statebackend import StateBackend

    backend = StateBackend()
    found = identify.session_id(backend, session)
    recovery = _recovered(backend.directory, found)
    if as_json:
        form = {} if recovery is None else forms.recovery(recovery)
        output.write_json({"session_id": found, "recovered": recovery is not None, **form})
    elif recovery is None:
        output.notice(f"session {found} is not damaged; nothing was changed")
    else:
        _write(recovery)
    endings.end(found=recovery is not None and not recovery.complete)


def _recovered(directory: Path, session_id: str) -> Recovery | None:
    from statebackend import StateBackend
    from statebackend.files import claim
    from statebackend.verifying import verify

    path = SessionFiles.of(directory, session_id).path
    if (writer := claim.writer_of(path)) is not None:
        raise SessionLocked(session_id, writer.pid, writer.host, writer.since)
    # A sound file is not opened for writing: one of an older version would be migrated.
    if not any(_is_for_opening(finding) for finding in verify.verify_file(path)):
        return None
    with StateBackend(directory).open(session_id) as session:
        return session.recovery


def _is_for_opening(finding: Finding) -> bool:
    """Tell whether opening recovers because of *finding*, or refuses and says why."""
    refused = finding.severity == "problem" and finding.what in _REFUSED
    return finding.severity == "damage" or refused


_REFUSED = {"file", "sidecar", "link", "version", "session"}


def _write(recovery: Recovery) -> None:
    write_table(_COLUMNS, [_row(table) for table in recovery.tables])
    facts = [
        ("original", str(recovery.original)),
        ("report", str(recovery.report)),
        ("set aside", str(recovery.aside or "")),
        ("recovered", moments.local(recovery.recovered_at)),
        ("result", notices.incomplete(recovery) or "complete"),
        *(("found", reason) for reason in recovery.reasons[:_NAMED]),
        *(("note", note) for note in recovery.notes[:_NAMED]),
    ]
    output.write("\n")
    for name, value in facts:
        if value:
            output.write(f"{name:<10} {escape.line(value)}\n")
    left = max(0, len(recovery.reasons) - _NAMED) + max(0, len(recovery.notes) - _NAMED)
    if left:
        output.write(f"and {texts.plural(left, 'more line')}: see the report\n")


def _row(table: TableRecovery) -> list[Cell]:
    ranges = [texts.sequences(*one) for one in table.missing]
    more = f" and {len(ranges) - _NAMED:,} more" if len(ranges) > _NAMED else ""
    return [
        Cell(table.table),
        Cell(f"{table.kept:,}"),
        Cell(f"{table.lost:,}", "bold red" if table.lost else ""),
        Cell(f"{table.set_aside:,}"),
        Cell(f"{table.repaired:,}"),
        Cell(f"{table.doubtful:,}"),
        Cell(f"{table.orphaned:,}"),
        Cell(", ".join(ranges[:_NAMED]) + more),
    ]
