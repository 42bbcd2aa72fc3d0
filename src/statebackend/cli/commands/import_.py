"""``import``: transcripts of other tools into session files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from statebackend.cli import endings, escape, forms, output, texts
from statebackend.cli.options import SessionsCommand, json_option
from statebackend.cli.table import Cell, Column, write_table

if TYPE_CHECKING:
    from statebackend.interchange.report import FileReport, ImportReport, SkippedRecords

_COLUMNS = (
    Column("session"),
    Column("outcome"),
    Column("events added", right=True),
    Column("not taken", right=True),
    Column("unpriced", right=True),
    Column("file", wrap=True),
)
_SKIPPED_COLUMNS = (
    Column("not taken", right=True),
    Column("record", wrap=True),
    Column("reason", wrap=True),
)
_STYLES = {"created": "green", "extended": "green", "refused": "bold red"}


@click.command("import", cls=SessionsCommand)
@click.argument(
    "paths",
    metavar="PATH...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
@click.option(
    "--format",
    "source",
    type=click.Choice(["auto", "claude-code"]),
    default="auto",
    show_default=True,
    help="What wrote the files.",
)
@click.option(
    "--prices",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A JSON object from model names to their prices, in US dollars per million tokens: "
    "input, output, cache_write and cache_read. A turn of another model is stored without a price.",
)
@json_option
def command(*, paths: tuple[Path, ...], source: str, prices: Path | None, as_json: bool) -> None:
    """Read transcripts of other tools into session files.

    PATH is a file, or a folder with such files at any depth. To import a file again adds nothing;
    to import it after it has grown adds what is new. What was not taken is told, with the reason.
    The exit code is 1 if a file was refused, a part of one could not be understood, or a damaged
    session could not be recovered whole.
    """
    from statebackend import StateBackend
    from statebackend.interchange.claude_code.prices import load_prices

    table = load_prices(prices) if prices else None
    report = StateBackend().import_transcripts(paths, prices=table)
    if as_json:
        output.write_json_array([_form(file) for file in report.files])
    else:
        _write(report)
    endings.end(found=any(map(_needs_a_person, report.files)))


def _needs_a_person(file: FileReport) -> bool:
    incomplete = file.recovery is not None and not file.recovery.complete
    return bool(file.problem or file.unreadable or incomplete)


def _form(file: FileReport) -> dict[str, Any]:
    return {
        "session_id": file.session_id,
        "parent_session_id": file.parent_session_id,
        "path": str(file.path),
        "outcome": str(file.outcome),
        "status": None if file.status is None else str(file.status),
        "events_added": dict(file.events_added),
        "records": file.records,
        "recorded": file.recorded,
        "skipped": [_skipped_form(skipped) for skipped in file.skipped],
        "torn": file.torn,
        "shared_lines": file.shared_lines,
        "unpriced_turns": file.unpriced_turns,
        "odd_counters": file.odd_counters,
        "problem": file.problem,
        "notes": list(file.notes),
        "recovery": file.recovery and forms.recovery(file.recovery),
    }


def _skipped_form(skipped: SkippedRecords) -> dict[str, Any]:
    return {
        "type": skipped.type,
        "subtype": skipped.subtype,
        "reason": skipped.reason,
        "count": skipped.count,
    }


def _write(report: ImportReport) -> None:
    write_table(_COLUMNS, [_row(file) for file in report.files], _total(report))
    if skipped := _skipped(report):
        output.write("\n")
        write_table(_SKIPPED_COLUMNS, [(f"{count:,}", *sort) for sort, count in skipped])
    for file in report.files:
        for remark in _remarks(file):
            output.write(escape.line(f"{file.path}: {remark}") + "\n")


def _skipped(report: ImportReport) -> list[tuple[tuple[str, str], int]]:
    """Return what was not taken from all files by sort and reason, most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for file in report.files:
        for each in file.skipped:
            sort = f"{each.type}/{each.subtype}" if each.subtype else each.type
            counts[sort, each.reason] += each.count
    return counts.most_common()


def _row(file: FileReport) -> list[Cell]:
    return [
        Cell(file.session_id or "-"),
        Cell(str(file.outcome), _STYLES.get(str(file.outcome), "")),
        Cell(f"{sum(file.events_added.values()):,}"),
        Cell(f"{sum(skipped.count for skipped in file.skipped):,}"),
        Cell(f"{file.unpriced_turns:,}"),
        Cell(str(file.path)),
    ]


def _total(report: ImportReport) -> list[Cell]:
    skipped = sum(each.count for file in report.files for each in file.skipped)
    return [
        Cell(texts.plural(len(report.files), "file")),
        Cell(f"{len(report.created)} created"),
        Cell(f"{report.events_added:,}"),
        Cell(f"{skipped:,}"),
        Cell(f"{report.unpriced_turns:,}"),
        Cell(""),
    ]


def _remarks(file: FileReport) -> list[str]:
    """Return what is to be said about a file beyond its row, one line each."""
    remarks = [file.problem] if file.problem else []
    if file.unreadable:
        remarks.append(f"{texts.plural(file.unreadable, 'record')} could not be understood")
    if file.torn and file.session_id:
        remarks.append("the last line is cut off and was left for the next import")
    if file.odd_counters:
        remarks.append(f"{texts.plural(file.odd_counters, 'token counter')} stored as 0: no number")
    return [*remarks, *file.notes]
