"""``producers``: plug-in builds that sessions refer to, and which are not installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from statebackend.cli import exit_codes, id_prefixes, json_values, notices, output
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import TableColumn, write_table
from statebackend.values.recorded import Producer, ProducerEntry

_COLUMNS = (
    TableColumn("category"),
    TableColumn("name", wrap=True),
    TableColumn("version", wrap=True),
)
_FIELDS = ("category", "name", "version")


@click.command("producers", cls=SessionsCommand)
@click.argument("session", metavar="[ID]", required=False, shell_complete=complete_id)
@click.option(
    "--installed",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show only producers missing from FILE, a JSON array of objects with category, name and "
    "version.",
)
@json_option
def command(*, session: str | None, installed: Path | None, as_json: bool) -> None:
    """Show the plug-in builds that sessions refer to.

    Without an ID, show those of all sessions: a plug-in cache must keep them. With --installed, the
    exit code is 1 if any is missing.
    """
    present = None if installed is None else _read_installed(installed)
    if session is None:
        _show_all(present, as_json=as_json)
    else:
        _show_session(session, present, as_json=as_json)


def _show_session(session: str, present: list[Producer] | None, *, as_json: bool) -> None:
    from statebackend import StateBackend

    backend = StateBackend()
    with backend.read(id_prefixes.resolve(backend, session)) as view:
        entries = view.producers() if present is None else view.missing_producers(present)
        lost, _report = notices.report_losses(backend, view)
    if as_json:
        output.write_json_array([json_values.producer_entry(entry) for entry in entries])
    else:
        _write_entries(entries, missing=present is not None)
    exit_codes.finish(attention=lost or (present is not None and bool(entries)))


def _show_all(present: list[Producer] | None, *, as_json: bool) -> None:
    from statebackend import StateBackend

    referenced = StateBackend().referenced_producers()
    producers = [entry for entry in referenced.producers if entry not in set(present or ())]
    if as_json:
        output.write_json_array([asdict(producer) for producer in producers])
    else:
        _write_producers(producers, missing=present is not None)
    notices.finish_partial(referenced.unreadable, referenced.incomplete)
    exit_codes.finish(attention=present is not None and bool(producers))


def _write_entries(entries: Sequence[ProducerEntry], *, missing: bool) -> None:
    if not entries:
        output.notice("no producer is missing" if missing else "no producers")
        return
    columns = (*_COLUMNS, TableColumn("first event", right=True))
    write_table(
        columns,
        [(*_cells(entry.producer), str(entry.first_seen_sequence)) for entry in entries],
    )


def _write_producers(producers: Sequence[Producer], *, missing: bool) -> None:
    if producers:
        write_table(_COLUMNS, [_cells(producer) for producer in producers])
    else:
        output.notice("no producer is missing" if missing else "no producers")


def _cells(producer: Producer) -> tuple[str, str, str]:
    return producer.category, producer.name, producer.version


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
