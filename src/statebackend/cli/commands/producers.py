"""``producers``: the plug-in builds that sessions refer to, and which of them are missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from statebackend.cli import endings, forms, identify, notices, output
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import Column, write_table
from statebackend.values.recorded import Producer, ProducerEntry

_COLUMNS = (Column("category"), Column("name", wrap=True), Column("version", wrap=True))
_FIELDS = ("category", "name", "version")


@click.command("producers", cls=SessionsCommand)
@click.argument("session", metavar="[ID]", required=False, shell_complete=complete_id)
@click.option(
    "--installed",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A JSON array of objects with category, name and version: show only what it lacks.",
)
@json_option
def command(*, session: str | None, installed: Path | None, as_json: bool) -> None:
    """Show the plug-in builds that sessions refer to.

    Without an ID those of all sessions: what a plug-in cache must keep. With --installed only the
    missing ones are shown, and if there are any the exit code is 1.
    """
    present = None if installed is None else _installed(installed)
    if session is None:
        _of_all(present, as_json=as_json)
    else:
        _of_one(session, present, as_json=as_json)


def _of_one(session: str, present: list[Producer] | None, *, as_json: bool) -> None:
    from statebackend import StateBackend

    backend = StateBackend()
    with backend.read(identify.session_id(backend, session)) as view:
        entries = view.producers() if present is None else view.missing_producers(present)
        lost, _report = notices.lost(view.path)
    if as_json:
        output.write_json_array([forms.producer_entry(entry) for entry in entries])
    else:
        _write_entries(entries, missing=present is not None)
    endings.end(found=lost or (present is not None and bool(entries)))


def _of_all(present: list[Producer] | None, *, as_json: bool) -> None:
    from statebackend import StateBackend

    referenced = StateBackend().referenced_producers()
    shown = [each for each in referenced.producers if each not in set(present or ())]
    if as_json:
        output.write_json_array([forms.producer(each) for each in shown])
    else:
        _write_producers(shown, missing=present is not None)
    notices.partial(referenced.unreadable, referenced.incomplete)
    endings.end(found=present is not None and bool(shown))


def _write_entries(entries: Sequence[ProducerEntry], *, missing: bool) -> None:
    if not entries:
        output.notice("no producer is missing" if missing else "no producers")
        return
    columns = (*_COLUMNS, Column("first event", right=True))
    write_table(
        columns,
        [(*_words(entry.producer), str(entry.first_seen_sequence)) for entry in entries],
    )


def _write_producers(producers: Sequence[Producer], *, missing: bool) -> None:
    if producers:
        write_table(_COLUMNS, [_words(each) for each in producers])
    else:
        output.notice("no producer is missing" if missing else "no producers")


def _words(producer: Producer) -> tuple[str, str, str]:
    return producer.category, producer.name, producer.version


def _installed(path: Path) -> list[Producer]:
    """Read the list of installed producers; anything else than such a list is a usage error."""
    import json

    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _bad(path, f"no readable JSON: {error}") from error
    if not isinstance(entries, list):
        raise _bad(path, "no JSON array")
    return [_producer(path, number, entry) for number, entry in enumerate(entries)]


def _producer(path: Path, number: int, entry: Any) -> Producer:
    words = [entry.get(field) for field in _FIELDS] if isinstance(entry, dict) else []
    texts = [word for word in words if isinstance(word, str)]
    if len(texts) != len(_FIELDS):
        raise _bad(path, f"entry {number} is no object with the texts {', '.join(_FIELDS)}")
    return Producer(*texts)


def _bad(path: Path, problem: str) -> click.BadParameter:
    return click.BadParameter(f"{path}: {problem}", param_hint="--installed")
