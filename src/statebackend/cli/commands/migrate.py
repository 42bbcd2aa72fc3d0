"""``migrate``: bring session files to the current version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from statebackend.cli import display, exit_codes, id_prefixes, output, progress
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import TableCell, TableColumn, write_table
from statebackend.values.reports import MigrationResult

_COLUMNS = (
    TableColumn("session"),
    TableColumn("outcome"),
    TableColumn("from", right=True),
    TableColumn("to", right=True),
    TableColumn("problem", wrap=True),
)
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
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=complete_id)
@click.option("--all", "every", is_flag=True, help="Migrate all sessions.")
@click.option("--dry-run", is_flag=True, help="Show what would be migrated; change nothing.")
@json_option
def command(*, ids: tuple[str, ...], every: bool, dry_run: bool, as_json: bool) -> None:
    """Bring session files to the current version.

    Opening a session migrates it too; this saves that wait. A session that a program is writing is
    skipped and listed. A bad file does not stop the others. Run it again to continue.
    """
    from statebackend import StateBackend

    if bool(ids) == every:
        raise click.UsageError("Name sessions, or give --all.")
    backend = StateBackend()
    chosen = list(backend.ids()) if every else id_prefixes.resolve_all(backend, ids)
    activity = "Checking" if dry_run else "Migrating"
    migrations = backend.migrate(chosen, dry_run=dry_run)
    results = list(progress.track(migrations, len(chosen), activity))
    if as_json:
        output.write_json_array([_to_json(result) for result in results])
    else:
        _write(results)
    errors = [result.error for result in results if result.error]
    exit_codes.finish_with_errors(errors, single=len(ids) == 1)


def _to_json(result: MigrationResult) -> dict[str, Any]:
    return {
        "session_id": result.session_id,
        "outcome": str(result.outcome),
        "from_version": result.from_version,
        "to_version": result.to_version,
        "problem": str(result.error) if result.error else None,
    }


def _write(results: Sequence[MigrationResult]) -> None:
    not_current = [result for result in results if result.outcome != "current"]
    if not_current:
        write_table(_COLUMNS, [_row(result) for result in not_current])
    counts = Counter(str(result.outcome) for result in results)
    for line in display.summary(counts, _SUMMARY):
        output.notice(line)
    if not results:
        output.notice("no sessions")


def _row(result: MigrationResult) -> list[TableCell]:
    return [
        TableCell(result.session_id),
        TableCell(str(result.outcome), _STYLES.get(result.outcome, "bold red")),
        TableCell("-" if result.from_version is None else str(result.from_version)),
        TableCell(str(result.to_version)),
        TableCell(str(result.error) if result.error else ""),
    ]
