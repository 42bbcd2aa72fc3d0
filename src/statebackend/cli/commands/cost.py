"""``cost``: sums of the ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, get_args

import click

from statebackend.cli import forms, identify, notices, output, texts
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import Cell, Column, write_table
from statebackend.scanning.aggregates import CostGrouping
from statebackend.values.results import CostGroup
from statebackend.values.rows import add_totals


@click.command("cost", cls=SessionsCommand)
@click.argument("sessions", metavar="[ID]...", nargs=-1, shell_complete=complete_id)
@click.option(
    "--by",
    type=click.Choice(get_args(CostGrouping)),
    default="session",
    show_default=True,
    help="What to sum over. A day is one in UTC.",
)
@click.option("--tree", is_flag=True, help="Add all sessions below those named, each once.")
@json_option
def command(*, sessions: tuple[str, ...], by: str, tree: bool, as_json: bool) -> None:
    """Sum up tokens and US dollars.

    Sessions named must be readable. Of all sessions, those that are not are left out: that is said,
    and the exit code is 1, as for a session that lost rows to damage. Every sum comes with the
    number of its turns that used tokens but have no price; while that is not 0, the dollars are a
    lower bound.
    """
    from statebackend import StateBackend

    backend = StateBackend()
    ids = [identify.session_id(backend, each) for each in sessions] or None
    report = backend.cost_by(cast("CostGrouping", by), session_ids=ids, tree=tree)
    # The dearest first, but days in their order.
    groups = sorted(report.groups, key=_day) if by == "day" else report.groups
    if as_json:
        output.write_json_array([_form(by, group) for group in groups])
    elif groups:
        _write(by, groups)
    else:
        output.notice("no costs")
    notices.partial(report.unreadable, report.incomplete)


def _day(group: CostGroup) -> str:
    return group.key


def _form(by: str, group: CostGroup) -> forms.Form:
    return {"by": by, "key": group.key, **forms.totals(group.totals)}


def _write(by: str, groups: Sequence[CostGroup]) -> None:
    rows = [[Cell(group.key), *texts.totals(group.totals)] for group in groups]
    total = [Cell("total"), *texts.totals(add_totals([group.totals for group in groups]))]
    write_table((Column(by), *texts.TOTALS_COLUMNS), rows, total)
