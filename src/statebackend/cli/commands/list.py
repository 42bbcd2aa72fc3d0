"""``list``: the sessions of the folder, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from statebackend.cli import endings, forms, identify, moments, output, texts
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import Cell, Column, write_table
from statebackend.values.recorded import SessionInfo, SessionStatus
from statebackend.values.results import BadSession
from statebackend.values.validation import MAX_INTEGER

_COLUMNS = (
    Column("id"),
    Column("status"),
    Column("profile", wrap=True),
    Column("started"),
    Column("took", right=True),
    Column("cost", right=True),
    Column("problem", wrap=True, optional=True),
)
Entries = Sequence[SessionInfo | BadSession]


@click.command("list", cls=SessionsCommand)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_INTEGER),
    default=20,
    show_default=True,
    help="Show at most this many.",
)
@click.option(
    "--status",
    type=click.Choice([str(status) for status in SessionStatus]),
    help="Show only those with this status.",
)
@click.option("--profile", help="Show only those of this profile.")
@click.option(
    "--parent",
    metavar="ID",
    shell_complete=complete_id,
    help="Show only the children of this session.",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=moments.start,
    help="Show only those started at this time or later.",
)
@click.option(
    "--until",
    metavar="TIME",
    callback=moments.stop,
    help="Show only those started before this time; a date includes that day.",
)
@click.option("--roots", is_flag=True, help="Show only those without a parent.")
@click.option("--all", "every", is_flag=True, help="Show all; --limit does not apply.")
@click.option(
    "--after",
    metavar="ID",
    shell_complete=complete_id,
    help="Go on after this session, with older ones.",
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

    Bad files are listed with what is wrong with them; the exit code is then 1. A time is a date, a
    date with a time, or an age such as 12h or 7d.
    """
    from statebackend import StateBackend

    backend = StateBackend()
    entries = backend.list(
        limit=None if every else limit,
        after=identify.session_id(backend, after) if after is not None else None,
        status=SessionStatus(status) if status else None,
        profile=profile,
        parent_session_id=identify.session_id(backend, parent) if parent is not None else None,
        roots=roots,
        since=since,
        until=until,
    )
    if as_json:
        output.write_json_array([forms.session(entry) for entry in entries])
    else:
        _write(entries)
        _say_if_more(entries, None if every else limit)
    endings.end(found=any(forms.problem(entry) for entry in entries))


def _write(entries: Entries) -> None:
    if not entries:
        output.notice("no sessions")
        return
    write_table(_COLUMNS, [_row(entry) for entry in entries])


def _row(entry: SessionInfo | BadSession) -> list[Cell]:
    problem = Cell(forms.problem(entry) or "", "red")
    if isinstance(entry, BadSession):
        return [Cell(entry.session_id), Cell("bad file", "bold red"), *[Cell("")] * 4, problem]
    return [
        Cell(entry.session_id),
        texts.status(entry),
        Cell(entry.profile),
        Cell(moments.local_minute(entry.started_at)),
        Cell(moments.duration(entry.started_at, entry.ended_at)),
        Cell(texts.money(entry.cost_usd, entry.unpriced_rows)),
        problem,
    ]


def _say_if_more(entries: Entries, limit: int | None) -> None:
    if len(entries) == limit:
        output.notice(f"there may be more: --after {entries[-1].session_id}, or --all")
