"""``list``: list sessions, newest first."""

from __future__ import annotations

from datetime import datetime

import click

from statebackend.cli import display, exit_codes, id_prefixes, json_values, options, output, times
from statebackend.cli.table import Row, TableCell, columns, write_result
from statebackend.values.recorded import SessionInfo, SessionStatus
from statebackend.values.results import BadSession

_COLUMNS = columns(
    "id, status, profile:wrap, started, took:right, cost:right, problem:wrap:optional"
)


@click.command("list", cls=options.SessionsCommand)
@options.limit_option("Show at most this many sessions.", default=20)
@click.option(
    "--status",
    type=click.Choice([str(status) for status in SessionStatus]),
    help="Show only sessions with this status.",
)
@click.option("--profile", help="Show only sessions of this profile.")
@click.option(
    "--parent",
    metavar="ID",
    shell_complete=options.complete_id,
    help="Show only the children of this session.",
)
@options.time_options("Show only sessions started")
@click.option("--roots", is_flag=True, help="Show only sessions without a parent.")
@click.option("--all", "every", is_flag=True, help="Show all and ignore --limit.")
@click.option(
    "--after",
    metavar="ID",
    shell_complete=options.complete_id,
    help="Show only sessions older than this one: the next page.",
)
@options.json_option
def command(
    *,
    limit: int,
    status: str | None,
    profile: str | None,
    parent: str | None,
    since: datetime | None,
    until: datetime | None,
    roots: bool,
    every: bool,
    after: str | None,
    as_json: bool,
) -> None:
    """List sessions, newest first.

    Bad files are listed with their problem, and the exit code is then 1. TIME is a date, a date
    with a time, or an age such as 12h or 7d.
    """
    backend = options.open_backend()
    entries = backend.list(
        limit=None if every else limit,
        after=id_prefixes.resolve(backend, after) if after is not None else None,
        status=SessionStatus(status) if status else None,
        profile=profile,
        parent_session_id=id_prefixes.resolve(backend, parent) if parent is not None else None,
        roots=roots,
        since=since,
        until=until,
    )
    write_result(entries, json_values.session, _COLUMNS, _row, as_json=as_json, empty="no sessions")
    if len(entries) == limit and not every and not as_json:
        output.notice(f"there may be more: --after {entries[-1].session_id}, or --all")
    exit_codes.finish(attention=any(json_values.problem(entry) for entry in entries))


def _row(entry: SessionInfo | BadSession) -> Row:
    problem = TableCell(json_values.problem(entry) or "", "red")
    if isinstance(entry, BadSession):
        return [entry.session_id, TableCell("bad file", "bold red"), *[""] * 4, problem]
    return [
        entry.session_id,
        display.status(entry),
        entry.profile,
        times.format_minute(entry.started_at),
        times.format_duration(entry.started_at, entry.ended_at),
        display.money(entry.cost_usd, entry.unpriced_rows),
        problem,
    ]
