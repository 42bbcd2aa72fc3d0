"""``reap``: close sessions that are marked running but have no writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from statebackend.cli import display, exit_codes, id_prefixes, json_values, output, times
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import TableCell, TableColumn, write_table
from statebackend.values.reports import ReapResult

_COLUMNS = (
    TableColumn("session"),
    TableColumn("outcome"),
    TableColumn("status"),
    TableColumn("ended"),
    TableColumn("problem", wrap=True, optional=True),
)
_STYLES = {"reaped": "green", "stale": "yellow", "live": "yellow", "ended": "dim"}
_SUMMARY = {
    "reaped": "closed",
    "stale": "to be closed with --yes",
    "live": "skipped, since a program is writing them",
    "ended": "not running",
    "newer": "of a newer version",
    "failed": "failed",
}


@click.command("reap", cls=SessionsCommand)
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=complete_id)
@click.option(
    "--status",
    type=click.Choice(["failed", "cancelled"]),
    default="failed",
    show_default=True,
    help="Set this status.",
)
@click.option("--yes", is_flag=True, help="Close them; without this option nothing is changed.")
@json_option
def command(*, ids: tuple[str, ...], status: str, yes: bool, as_json: bool) -> None:
    """Close running sessions that have no writer.

    All of them are closed, or only those named. A session's end becomes the time of its last
    event. A session that a program is writing is never changed. A damaged or newer session is
    listed and left unchanged.
    """
    from statebackend import StateBackend

    backend = StateBackend()
    chosen = id_prefixes.resolve_all(backend, ids) if ids else None
    results = backend.reap(status, session_ids=chosen, dry_run=not yes)
    if as_json:
        output.write_json_array([_to_json(result) for result in results])
    else:
        _write(results)
    errors = [result.error for result in results if result.error]
    exit_codes.finish_with_errors(errors, single=len(ids) == 1)


def _to_json(result: ReapResult) -> dict[str, Any]:
    return {
        "session_id": result.session_id,
        "outcome": str(result.outcome),
        "status": None if result.status is None else str(result.status),
        "ended_at": json_values.time(result.ended_at),
        "problem": str(result.error) if result.error else None,
    }


def _write(results: Sequence[ReapResult]) -> None:
    if results:
        write_table(_COLUMNS, [_row(result) for result in results])
    counts = Counter(str(result.outcome) for result in results)
    for line in display.summary(counts, _SUMMARY):
        output.notice(line)
    if not results:
        output.notice("every running session has a writer")


def _row(result: ReapResult) -> list[TableCell]:
    return [
        TableCell(result.session_id),
        TableCell(str(result.outcome), _STYLES.get(result.outcome, "bold red")),
        TableCell("-" if result.status is None else str(result.status)),
        TableCell(times.format_second(result.ended_at)),
        TableCell(str(result.error) if result.error else ""),
    ]
