"""``migrate``: bring session files to the current version."""

from __future__ import annotations

import click

from statebackend.cli import exit_codes, id_prefixes, json_values, output, progress
from statebackend.cli.options import SessionsCommand, ids_argument, json_option, open_backend
from statebackend.cli.table import Row, TableCell, columns, write_outcomes
from statebackend.values.reports import MigrationResult

_COLUMNS = columns("session, outcome, from:right, to:right, problem:wrap")
_STYLES = {"migrated": "green", "outdated": "yellow", "live": "yellow"}
_SUMMARY = {
    "migrated": "migrated",
    "outdated": "to be migrated",
    "current": "already current",
    "live": "skipped, since a program is writing them",
    "newer": "of a newer version",
    "failed": "failed",
}


@click.command("migrate", cls=SessionsCommand)
@ids_argument
@click.option("--all", "every", is_flag=True, help="Migrate all sessions.")
@click.option("--dry-run", is_flag=True, help="Show what would be migrated; change nothing.")
@json_option
def command(*, ids: tuple[str, ...], every: bool, dry_run: bool, as_json: bool) -> None:
    """Bring session files to the current version.

    Opening a session migrates it too; this saves that wait. A session that a program is writing is
    skipped and listed. A bad file does not stop the others. Run it again to continue.
    """
    backend = open_backend()
    chosen = id_prefixes.resolve_or_all(backend, ids, every=every)
    migrations = backend.migrate(chosen, dry_run=dry_run)
    activity = "Checking" if dry_run else "Migrating"
    results = list(progress.track(migrations, len(chosen), activity))
    if as_json:
        output.write_json_array(map(_to_json, results))
    else:
        rows = [_row(result) for result in results if result.outcome != "current"]
        outcomes = (result.outcome for result in results)
        write_outcomes(_COLUMNS, rows, outcomes, _SUMMARY, empty="no sessions")
    errors = [result.error for result in results if result.error]
    exit_codes.finish_with_errors(errors, single=len(ids) == 1)


def _to_json(result: MigrationResult) -> json_values.JsonObject:
    return {
        "session_id": result.session_id,
        "outcome": str(result.outcome),
        "from_version": result.from_version,
        "to_version": result.to_version,
        "problem": str(result.error) if result.error else None,
    }


def _row(result: MigrationResult) -> Row:
    return [
        result.session_id,
        TableCell(str(result.outcome), _STYLES.get(result.outcome, "bold red")),
        "-" if result.from_version is None else str(result.from_version),
        str(result.to_version),
        str(result.error or ""),
    ]
