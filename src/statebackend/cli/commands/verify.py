"""``verify``: check session files."""

from __future__ import annotations

from dataclasses import asdict

import click

from statebackend.cli import exit_codes, id_prefixes, output, progress
from statebackend.cli.options import SessionsCommand, ids_argument, json_option, open_backend
from statebackend.cli.table import Row, TableCell, columns, write_outcomes
from statebackend.errors import SessionNotFound
from statebackend.values.reports import Finding, VerificationResult

_COLUMNS = columns("session, severity, about, count:right, finding:wrap")
_STYLES = {"damage": "bold red", "problem": "yellow", "note": ""}
_SUMMARY = {
    "sound": "sound",
    "problem": "with problems",
    "damage": "damaged",
    "unchecked": "could not be checked",
}


@click.command("verify", cls=SessionsCommand)
@ids_argument
@click.option("--all", "every", is_flag=True, help="Check all sessions.")
@json_option
def command(*, ids: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Check session files.

    Integrity, references, schema, version and every row are checked. Nothing is changed; a session
    may be live. A bad file does not stop the others. The exit code is 1 if there is damage or a
    problem, 0 if there are only notes.
    """
    backend = open_backend()
    chosen = id_prefixes.resolve_or_all(backend, ids, every=every)
    results = list(progress.track(backend.verify(chosen), len(chosen), "Checking"))
    if len(ids) == 1 and isinstance(results[0].error, SessionNotFound):
        raise results[0].error
    findings = [(result.session_id, finding) for result in results for finding in result.findings]
    if as_json:
        output.write_json_array(
            {"session_id": session_id, **asdict(finding)} for session_id, finding in findings
        )
    else:
        severities = map(_worst_severity, results)
        rows = [_row(*finding) for finding in findings]
        write_outcomes(_COLUMNS, rows, severities, _SUMMARY, empty="no sessions")
    exit_codes.finish(attention=not all(result.sound for result in results))


def _worst_severity(result: VerificationResult) -> str:
    if result.error is not None:
        return "unchecked"
    severities = {finding.severity for finding in result.findings}
    return next((word for word in ("damage", "problem") if word in severities), "sound")


def _row(session_id: str, finding: Finding) -> Row:
    severity = TableCell(finding.severity, _STYLES[finding.severity])
    return [session_id, severity, finding.what, finding.count, finding.text]
