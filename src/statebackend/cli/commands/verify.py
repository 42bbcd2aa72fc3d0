"""``verify``: check session files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import click

from statebackend.cli import display, exit_codes, id_prefixes, output, progress
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import TableCell, TableColumn, write_table
from statebackend.errors import SessionNotFound
from statebackend.values.reports import Finding, VerificationResult

_COLUMNS = (
    TableColumn("session"),
    TableColumn("severity"),
    TableColumn("about"),
    TableColumn("count", right=True),
    TableColumn("finding", wrap=True),
)
_STYLES = {"damage": "bold red", "problem": "yellow", "note": ""}
_SUMMARY = {
    "sound": "sound",
    "problem": "with problems",
    "damage": "damaged",
    "unchecked": "could not be checked",
}


@click.command("verify", cls=SessionsCommand)
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=complete_id)
@click.option("--all", "every", is_flag=True, help="Check all sessions.")
@json_option
def command(*, ids: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Check session files.

    Integrity, references, schema, version and every row are checked. Nothing is changed; a session
    may be live. A bad file does not stop the others. The exit code is 1 if there is damage or a
    problem, 0 if there are only notes.
    """
    from statebackend import StateBackend

    if bool(ids) == every:
        raise click.UsageError("Name sessions, or give --all.")
    backend = StateBackend()
    chosen = list(backend.ids()) if every else id_prefixes.resolve_all(backend, ids)
    results = list(progress.track(backend.verify(chosen), len(chosen), "Checking"))
    if len(ids) == 1 and isinstance(results[0].error, SessionNotFound):
        raise results[0].error
    if as_json:
        output.write_json_array(
            [
                {"session_id": result.session_id, **asdict(finding)}
                for result in results
                for finding in result.findings
            ]
        )
    else:
        _write(results)
    exit_codes.finish(attention=not all(result.sound for result in results))


def _write(results: Sequence[VerificationResult]) -> None:
    rows = [_row(result.session_id, finding) for result in results for finding in result.findings]
    if rows:
        write_table(_COLUMNS, rows)
    counts = Counter(_worst_severity(result) for result in results)
    for line in display.summary(counts, _SUMMARY):
        output.notice(line)
    if not results:
        output.notice("no sessions")


def _worst_severity(result: VerificationResult) -> str:
    if result.error is not None:
        return "unchecked"
    severities = {finding.severity for finding in result.findings}
    return next((word for word in ("damage", "problem") if word in severities), "sound")


def _row(session_id: str, finding: Finding) -> list[TableCell]:
    return [
        TableCell(session_id),
        TableCell(finding.severity, _STYLES[finding.severity]),
        TableCell(finding.what),
        TableCell(f"{finding.count:,}"),
        TableCell(finding.text),
    ]
