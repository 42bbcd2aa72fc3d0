"""``producers``: plug-in builds that sessions refer to, and which are not installed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from statebackend.cli import exit_codes, id_prefixes, json_values, notices, options
from statebackend.cli.table import Row, columns, write_result
from statebackend.values.recorded import Producer, ProducerEntry

_COLUMNS = columns("category, name:wrap, version:wrap")
_ENTRY_COLUMNS = columns("category, name:wrap, version:wrap, first event:right")
_FIELDS = ("category", "name", "version")


@click.command("producers", cls=options.SessionsCommand)
@options.optional_id_argument
@click.option(
    "--installed",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show only producers missing from FILE, a JSON array of objects with category, name and "
    "version.",
)
@options.json_option
def command(*, session: str | None, installed: Path | None, as_json: bool) -> None:
    """Show the plug-in builds that sessions refer to.

    Without an ID, show those of all sessions: a plug-in cache must keep them. With --installed, the
    exit code is 1 if any is missing.
    """
    present = None if installed is None else _read_installed(installed)
    backend = options.open_backend()
    empty = "no producers" if present is None else "no producer is missing"
    if session is None:
        referenced = backend.referenced_producers()
        producers = [entry for entry in referenced.producers if entry not in set(present or ())]
        write_result(producers, asdict, _COLUMNS, _row, as_json=as_json, empty=empty)
        notices.finish_partial(referenced.unreadable, referenced.incomplete)
        exit_codes.finish(attention=present is not None and bool(producers))
        return
    with backend.read(id_prefixes.resolve(backend, session)) as view:
        entries = view.producers() if present is None else view.missing_producers(present)
        lost, _report = notices.report_losses(backend, view)
    to_json = json_values.producer_entry
    write_result(entries, to_json, _ENTRY_COLUMNS, _entry_row, as_json=as_json, empty=empty)
    exit_codes.finish(attention=lost or (present is not None and bool(entries)))


def _row(producer: Producer) -> Row:
    return [producer.category, producer.name, producer.version]


def _entry_row(entry: ProducerEntry) -> Row:
    return [*_row(entry.producer), str(entry.first_seen_sequence)]


def _read_installed(path: Path) -> list[Producer]:
    """Read the list of installed producers; raise a usage error for any other content."""
    import json

    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _usage_error(path, f"is not readable JSON: {error}") from error
    if not isinstance(entries, list):
        raise _usage_error(path, "is not a JSON array")
    return [_parse_producer(path, number, entry) for number, entry in enumerate(entries)]


def _parse_producer(path: Path, number: int, entry: Any) -> Producer:
    words = [entry.get(field) for field in _FIELDS] if isinstance(entry, dict) else []
    texts = [word for word in words if isinstance(word, str)]
    if len(texts) != len(_FIELDS):
        raise _usage_error(
            path, f"entry {number} is not an object with the texts {', '.join(_FIELDS)}"
        )
    return Producer(*texts)


def _usage_error(path: Path, problem: str) -> click.BadParameter:
    return click.BadParameter(f"{path} {problem}", param_hint="--installed")
