"""``import``: import transcripts of other tools."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from statebackend.cli import display, escape, exit_codes, json_values, output
from statebackend.cli.options import SessionsCommand, json_option, open_backend
from statebackend.cli.table import Row, TableCell, columns, write_table

if TYPE_CHECKING:
    from statebackend.interchange.report import FileReport, ImportReport

_COLUMNS = columns("session, outcome, events added:right, skipped:right, unpriced:right, file:wrap")
_SKIPPED_COLUMNS = columns("skipped:right, record:wrap, reason:wrap")
_STYLES = {"created": "green", "extended": "green", "refused": "bold red"}


@click.command("import", cls=SessionsCommand)
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--format",
    "source",
    type=click.Choice(["auto", "claude-code"]),
    default="auto",
    show_default=True,
    help="Format of the files.",
)
@click.option(
    "--prices",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read prices from this JSON object: from model names to US dollars per million tokens for "
    "input, output, cache_write and cache_read. Turns of other models are stored without a price.",
)
@json_option
def command(*, paths: tuple[Path, ...], source: str, prices: Path | None, as_json: bool) -> None:
    """Import transcripts of other tools into session files.

    PATH is a file, or a folder with such files at any depth. Importing a file again adds only what
    is new. Records that are not imported are listed with the reason. The exit code is 1 if a file
    is refused, a part of one cannot be parsed, or a damaged session cannot be recovered whole.
    """
    from statebackend.interchange.claude_code.prices import load_prices

    table = load_prices(prices) if prices else None
    report = open_backend().import_transcripts(paths, prices=table)
    if as_json:
        output.write_json_array(map(_to_json, report.files))
    else:
        _write(report)
    exit_codes.finish(attention=any(map(_needs_attention, report.files)))


def _needs_attention(file: FileReport) -> bool:
    incomplete = file.recovery is not None and not file.recovery.complete
    return bool(file.problem or file.unreadable or incomplete)


def _to_json(file: FileReport) -> json_values.JsonObject:
    return {
        "session_id": file.session_id,
        "parent_session_id": file.parent_session_id,
        **asdict(file),
        "path": str(file.path),
        "recovery": file.recovery and json_values.recovery(file.recovery),
    }


def _write(report: ImportReport) -> None:
    write_table(_COLUMNS, [_row(file) for file in report.files], _total(report))
    counts: Counter[tuple[str, str]] = Counter()
    for file in report.files:
        for records in file.skipped:
            name = f"{records.type}/{records.subtype}" if records.subtype else records.type
            counts[name, records.reason] += records.count
    if counts:
        output.write("\n")
        write_table(_SKIPPED_COLUMNS, [(count, *key) for key, count in counts.most_common()])
    for file in report.files:
        for remark in _remarks(file):
            output.write(escape.line(f"{file.path}: {remark}") + "\n")


def _row(file: FileReport) -> Row:
    return [
        file.session_id or "-",
        TableCell(str(file.outcome), _STYLES.get(str(file.outcome), "")),
        sum(file.events_added.values()),
        sum(skipped.count for skipped in file.skipped),
        file.unpriced_turns,
        str(file.path),
    ]


def _total(report: ImportReport) -> Row:
    skipped = sum(records.count for file in report.files for records in file.skipped)
    files, created = display.plural(len(report.files), "file"), f"{len(report.created)} created"
    return [files, created, report.events_added, skipped, report.unpriced_turns, ""]


def _remarks(file: FileReport) -> list[str]:
    """Return the remarks on a file that its table row does not hold, one line each."""
    remarks = [file.problem] if file.problem else []
    if file.unreadable:
        remarks.append(f"{display.plural(file.unreadable, 'record')} could not be parsed")
    if file.torn and file.session_id:
        remarks.append("the last line is incomplete and is left for the next import")
    if file.odd_counters:
        remarks.append(
            f"{display.plural(file.odd_counters, 'token counter')} stored as 0: not a number"
        )
    return [*remarks, *file.notes]
