"""``migrate``: bring session files to the current version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from statebackend.cli import endings, identify, output, progress, texts
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import Cell, Column, write_table

if TYPE_CHECKING:
    from statebackend import StateBackend
    from statebackend.bulk.migration import MigrationResult

_THREADS = 4  # docs/decisions/0014
_COLUMNS = (
    Column("session"),
    Column("outcome"),
    Column("from", right=True),
    Column("to", right=True),
    Column("problem", wrap=True),
)
_STYLES = {"migrated": "green", "outdated": "yellow", "live": "yellow"}
_SUMMARY = {
    "migrated": "migrated",
    "outdated": "to be migrated",
    "current": "current already",
    "live": "skipped, a program writes them",
    "newer": "of a newer version",
    "failed": "failed",
}


@click.command("migrate", cls=SessionsCommand)
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=complete_id)
@click.option("--all", "every", is_flag=True, help="Migrate all sessions.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be migrated.")
@json_option
def command(*, ids: tuple[str, ...], every: bool, dry_run: bool, as_json: bool) -> None:
    """Bring session files to the current version.

    Opening a session does the same, so this only saves the wait. A session that a program writes
    is skipped and named; a bad file does not stop the others. Run it again to go on.
    """
    from statebackend import StateBackend

    if bool(ids) == every:
        raise click.UsageError("Name sessions, or give --all.")
    backend = StateBackend()
    chosen = list(backend.ids()) if every else identify.session_ids(backend, ids)
    results = _migrated(backend, chosen, dry_run=dry_run)
    if as_json:
        output.write_json_array([_form(result) for result in results])
    else:
        _write(results)
    errors = [result.error for result in results if result.error]
    endings.end_with(errors, alone=len(ids) == 1)


def _migrated(
    backend: StateBackend, chosen: Sequence[str], *, dry_run: bool
) -> list[MigrationResult]:
    from statebackend.bulk import migration

    each = migration.migrate_each(backend.directory, chosen, dry_run=dry_run, threads=_THREADS)
    return list(progress.shown(each, len(chosen), "Looking" if dry_run else "Migrating"))


def _form(result: MigrationResult) -> dict[str, Any]:
    return {
        "session_id": result.session_id,
        "outcome": str(result.outcome),
        "from_version": result.from_version,
        "to_version": result.to_version,
        "problem": str(result.error) if result.error else None,
    }


def _write(results: Sequence[MigrationResult]) -> None:
    shown = [result for result in results if result.outcome != "current"]
    if shown:
        write_table(_COLUMNS, [_row(result) for result in shown])
    counts = Counter(str(result.outcome) for result in results)
    for line in texts.summary(counts, _SUMMARY):
        output.notice(line)
    if not results:
        output.notice("no sessions")


def _row(result: MigrationResult) -> list[Cell]:
    return [
        Cell(result.session_id),
        Cell(str(result.outcome), _STYLES.get(result.outcome, "bold red")),
        Cell("-" if result.from_version is None else str(result.from_version)),
        Cell(str(result.to_version)),
        Cell(str(result.error) if result.error else ""),
    ]
