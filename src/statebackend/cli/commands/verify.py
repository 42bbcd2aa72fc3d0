"""``verify``: what is wrong with session files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from statebackend.cli import endings, identify, output, progress, texts
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import Cell, Column, write_table
from statebackend.errors import SessionNotFound

if TYPE_CHECKING:
    from statebackend.bulk.migration import VerificationResult
    from statebackend.values.reports import Finding

_THREADS = 2  # docs/decisions/0016
_COLUMNS = (
    Column("session"),
    Column("severity"),
    Column("about"),
    Column("count", right=True),
    Column("finding", wrap=True),
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
    """Check session files: integrity, references, schema, version, every row.

    Changes nothing, also while a program writes the session. The exit code is 1 if there is damage
    or a problem; a note leaves it at 0. A bad file does not stop the others.
    """
    from statebackend import StateBackend
    from statebackend.bulk import migration

    if bool(ids) == every:
        raise click.UsageError("Name sessions, or give --all.")
    backend = StateBackend()
    chosen = list(backend.ids()) if every else identify.session_ids(backend, ids)
    each = migration.verify_each(backend.directory, chosen, threads=_THREADS)
    results = list(progress.shown(each, len(chosen), "Checking"))
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
    endings.end(found=not all(result.sound for result in results))


def _write(results: Sequence[VerificationResult]) -> None:
    rows = [_row(result.session_id, finding) for result in results for finding in result.findings]
    if rows:
        write_table(_COLUMNS, rows)
    counts = Counter(_state(result) for result in results)
    for line in texts.summary(counts, _SUMMARY):
        output.notice(line)
    if not results:
        output.notice("no sessions")


def _state(result: VerificationResult) -> str:
    if result.error is not None:
        return "unchecked"
    severities = {finding.severity for finding in result.findings}
    return next((each for each in ("damage", "problem") if each in severities), "sound")


def _row(session_id: str, finding: Finding) -> list[Cell]:
    return [
        Cell(session_id),
        Cell(finding.severity, _STYLES[finding.severity]),
        Cell(finding.what),
        Cell(f"{finding.count:,}"),
        Cell(finding.text),
    ]
