"""``reap``: close sessions that say running but have no living writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from statebackend.cli import endings, forms, identify, moments, output, texts
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import Cell, Column, write_table

if TYPE_CHECKING:
    from statebackend.values.reports import ReapResult

_COLUMNS = (
    Column("session"),
    Column("outcome"),
    Column("status"),
    Column("ended"),
    Column("problem", wrap=True, optional=True),
)
_STYLES = {"reaped": "green", "stale": "yellow", "live": "yellow", "ended": "dim"}
_SUMMARY = {
    "reaped": "closed",
    "stale": "to be closed: give --yes",
    "live": "skipped, a program writes them",
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
    help="Give them this status.",
)
@click.option("--yes", is_flag=True, help="Do it; without this it only tells what would be done.")
@json_option
def command(*, ids: tuple[str, ...], status: str, yes: bool, as_json: bool) -> None:
    """Close sessions that say running but have no living writer.

    All of them, or only those named. The end of each is the time of its last event. A session that
    a program writes is never touched; a damaged or newer one is named and left as it is.
    """
    from statebackend import StateBackend

    backend = StateBackend()
    chosen = identify.session_ids(backend, ids) if ids else None
    results = backend.reap(status, session_ids=chosen, dry_run=not yes)
    if as_json:
        output.write_json_array([_form(result) for result in results])
    else:
        _write(results)
    errors = [result.error for result in results if result.error]
    endings.end_with(errors, alone=len(ids) == 1)


def _form(result: ReapResult) -> dict[str, Any]:
    return {
        "session_id": result.session_id,
        "outcome": str(result.outcome),
        "status": None if result.status is None else str(result.status),
        "ended_at": forms.moment(result.ended_at),
        "problem": str(result.error) if result.error else None,
    }


def _write(results: Sequence[ReapResult]) -> None:
    if results:
        write_table(_COLUMNS, [_row(result) for result in results])
    counts = Counter(str(result.outcome) for result in results)
    for line in texts.summary(counts, _SUMMARY):
        output.notice(line)
    if not results:
        output.notice("no session says running without a writer")


def _row(result: ReapResult) -> list[Cell]:
    return [
        Cell(result.session_id),
        Cell(str(result.outcome), _STYLES.get(result.outcome, "bold red")),
        Cell("-" if result.status is None else str(result.status)),
        Cell(moments.local(result.ended_at)),
        Cell(str(result.error) if result.error else ""),
    ]
