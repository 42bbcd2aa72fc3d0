"""``bench``: how long listings take on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from statebackend.cli import output, progress
from statebackend.cli.options import SessionsCommand, json_option
from statebackend.cli.table import Column, write_table

_COLUMNS = (
    Column("question"),
    Column("sessions", right=True),
    Column("ms", right=True),
    Column("ms each", right=True),
)


@click.group("bench")
def command() -> None:
    """Measure on made sessions; those of yours are not looked at."""


@command.command("scan", cls=SessionsCommand)
@click.option(
    "--sessions",
    "count",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    metavar="N",
    help="Make this many sessions; 100,000 of them take 7 GB.",
)
@click.option(
    "--in",
    "base",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Make them in here, which decides the disk; else in the system's temporary folder.",
)
@json_option
def scan(*, count: int, base: Path | None, as_json: bool) -> None:
    """Measure how long it takes to list sessions, with and without the catalogue.

    They are made in a temporary folder, which vanishes at the end, each of 3 to 60 messages. Times
    are medians; files and catalogue are in memory by then.
    """
    from statebackend.testing import scan_times

    def watched(made: Iterator[Path]) -> Iterable[Path]:
        return progress.shown(made, count, "Making sessions")

    with scan_times.made_sessions(count, base, watched) as directory:
        taken = list(scan_times.measure(directory))
    if as_json:
        measures = [
            {"question": one.what, "sessions": one.sessions, "seconds": one.seconds}
            for one in taken
        ]
        output.write_json({"sessions": count, "measures": measures})
        return
    write_table(
        _COLUMNS,
        [
            (
                one.what,
                f"{one.sessions:,}",
                f"{one.seconds * 1e3:,.1f}",
                f"{one.seconds * 1e3 / one.sessions:,.3f}",
            )
            for one in taken
        ],
    )
