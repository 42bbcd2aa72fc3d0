"""``list``: list sessions, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from statebackend.cli import display, exit_codes, id_prefixes, json_values, output, times
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import TableCell, TableColumn, write_table
from statebackend.values.recorded import SessionInfo, SessionStatus
from statebackend.values.results import BadSession
from statebackend.values.validation import MAX_INTEGER

_COLUMNS = (
    TableColumn("id"),
    TableColumn("status"),
    TableColumn("profile", wrap=True),
    TableColumn("started"),
    TableColumn("took", right=True),
    TableColumn("cost", right=True),
    TableColumn("problem", wrap=True, optional=True),
)
Entries = Sequence[SessionInfo | BadSession]


@click.command("list", cls=SessionsCommand)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, MAX_INTEGER),
    default=20,
    show_default=True,
    help="Show at most this many sessions.",
)
@click.option(
    "--status",
    type=click.Choice([str(status) for status in SessionStatus]),
    help="Show only sessions with this status.",
)
@click.option("--profile", help="Show only sessions of this profile.")
@click.option(
    "--parent",
    metavar="ID",
    shell_complete=complete_id,
    help="Show only the children of this session.",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=times.parse_since,
    help="Show only sessions started at this time or later.",
)
@click.option(
    "--until",
    metavar="TIME",
    callback=times.parse_until,
    help="Show only sessions started before this time; a date includes that day.",
)
@click.option("--roots", is_flag=True, help="Show only sessions without a parent.")
@click.option("--all", "every", is_flag=True, help="Show all, whatever --limit says.")
@click.option(
    "--after",
    metavar="ID",
    shell_complete=complete_id,
    help="Show only sessions older than this one: the next page.",
)
@json_option
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
    from statebackend import StateBackend

    backend = StateBackend()
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
    if as_json:
        output.write_json_array([json_values.session(entry) for entry in entries])
    else:
        _write(entries)
        _hint_at_more(entries, None if every else limit)
    exit_codes.finish(attention=any(json_values.problem(entry) for entry in entries))


def _write(entries: Entries) -> None:
    if not entries:
        output.notice("no sessions")
        return
    write_table(_COLUMNS, [_row(entry) for entry in entries])


def _row(entry: SessionInfo | BadSession) -> list[TableCell]:
    problem = TableCell(json_values.problem(entry) or "", "red")
    if isinstance(entry, BadSession):
        return [
            TableCell(entry.session_id),
            TableCell("bad file", "bold red"),
            *[TableCell("")] * 4,
            problem,
        ]
    return [
        TableCell(entry.session_id),
        display.status(entry),
        TableCell(entry.profile),
        TableCell(times.format_minute(entry.started_at)),
        TableCell(times.format_duration(entry.started_at, entry.ended_at)),
        TableCell(display.money(entry.cost_usd, entry.unpriced_rows)),
        problem,
    ]


def _hint_at_more(entries: Entries, limit: int | None) -> None:
    if len(entries) == limit:
        output.notice(f"there may be more: --after {entries[-1].session_id}, or --all")
