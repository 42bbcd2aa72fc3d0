"""``cost``: sum up the cost ledgers."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast, get_args

import click

from statebackend.cli import display, id_prefixes, notices, output
from statebackend.cli.options import SessionsCommand, ids_argument, json_option, open_backend
from statebackend.cli.table import TableColumn, write_table
from statebackend.values.results import CostGrouping
from statebackend.values.rows import add_totals


@click.command("cost", cls=SessionsCommand)
@ids_argument
@click.option(
    "--by",
    type=click.Choice(get_args(CostGrouping)),
    default="session",
    show_default=True,
    help="Sum over this; days are in UTC.",
)
@click.option(
    "--tree", is_flag=True, help="Include all descendants of the sessions named, each once."
)
@json_option
def command(*, ids: tuple[str, ...], by: str, tree: bool, as_json: bool) -> None:
    """Sum up tokens and US dollars.

    The sums are over the sessions named, or all. A named session must be readable. Without an
    ID, unreadable files are left out and listed. The exit code is 1 if a file is left out or a
    session lost rows to damage. "Unpriced" counts turns with tokens but without a price: unless
    it is 0, the cost is a lower bound.
    """
    backend = open_backend()
    chosen = [id_prefixes.resolve(backend, text) for text in ids] or None
    report = backend.cost_by(cast("CostGrouping", by), session_ids=chosen, tree=tree)
    # Highest cost first, but days in order of time.
    groups = sorted(report.groups, key=lambda day: day.key) if by == "day" else report.groups
    if as_json:
        output.write_json_array(
            {"by": by, "key": group.key, **asdict(group.totals)} for group in groups
        )
    elif groups:
        rows = [[group.key, *display.totals(group.totals)] for group in groups]
        total = ["total", *display.totals(add_totals([group.totals for group in groups]))]
        write_table((TableColumn(by), *display.TOTALS_COLUMNS), rows, total)
    else:
        output.notice("no costs")
    notices.finish_partial(report.unreadable, report.incomplete)
