"""``reap``: close sessions that are marked running but have no writer."""

from __future__ import annotations

import click

from statebackend.cli import exit_codes, id_prefixes, json_values, output, times
from statebackend.cli.options import SessionsCommand, ids_argument, json_option, open_backend
from statebackend.cli.table import Row, TableCell, columns, write_outcomes
from statebackend.values.reports import ReapResult

_COLUMNS = columns("session, outcome, status, ended, problem:wrap:optional")
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
@ids_argument
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
    backend = open_backend()
    chosen = id_prefixes.resolve_all(backend, ids) or None
    results = backend.reap(status, session_ids=chosen, dry_run=not yes)
    if as_json:
        output.write_json_array(map(_to_json, results))
    else:
        rows = [_row(result) for result in results]
        outcomes = (result.outcome for result in results)
        write_outcomes(
            _COLUMNS, rows, outcomes, _SUMMARY, empty="every running session has a writer"
        )
    errors = [result.error for result in results if result.error]
    exit_codes.finish_with_errors(errors, single=len(ids) == 1)


def _to_json(result: ReapResult) -> json_values.JsonObject:
    return {
        "session_id": result.session_id,
        "outcome": str(result.outcome),
        "status": None if result.status is None else str(result.status),
        "ended_at": json_values.time(result.ended_at),
        "problem": str(result.error) if result.error else None,
    }


def _row(result: ReapResult) -> Row:
    return [
        result.session_id,
        TableCell(str(result.outcome), _STYLES.get(result.outcome, "bold red")),
        "-" if result.status is None else str(result.status),
        times.format_second(result.ended_at),
        str(result.error or ""),
    ]
