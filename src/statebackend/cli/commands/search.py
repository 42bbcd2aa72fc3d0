"""``search``: full text over all sessions."""

from __future__ import annotations

from datetime import datetime

import click

from statebackend.cli import escape, forms, identify, moments, notices, output, progress, texts
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.values.recorded import EventKind
from statebackend.values.results import SearchHit
from statebackend.values.validation import MAX_INTEGER

_INDENT = "    "


@click.command("search", cls=SessionsCommand)
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@click.option(
    "--kind",
    type=click.Choice([str(kind) for kind in EventKind]),
    help="Find only events of this kind.",
)
@click.option(
    "--producer",
    metavar="NAME",
    help="Find only events of this producer: name, category/name or category/name@version.",
)
@click.option("--profile", help="Find only events of sessions of this profile.")
@click.option(
    "--session",
    "sessions",
    metavar="ID",
    multiple=True,
    shell_complete=complete_id,
    help="Find only events of this session; may be given several times.",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=moments.start,
    help="Find only events of this time or later.",
)
@click.option(
    "--until",
    metavar="TIME",
    callback=moments.stop,
    help="Find only events from before this time; a date includes that day.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_INTEGER),
    default=20,
    show_default=True,
    help="Show at most this many.",
)
@json_option
def command(
    *,
    words: tuple[str, ...],
    kind: str | None,
    producer: str | None,
    profile: str | None,
    sessions: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """Find the events whose text holds all the words, the best first.

    WORDS are plain text: case, accents and signs do not count, and no sign has a meaning, but for
    double quotes: '"to be"' finds these words in this order. The first search of a folder builds an
    index, and each one brings it up to date; it can be deleted at any time.
    """
    from statebackend import StateBackend

    backend = StateBackend()
    with progress.reported("Indexing") as report:
        result = backend.search(
            " ".join(words),
            limit=limit,
            kind=EventKind(kind) if kind else None,
            producer=producer,
            profile=profile,
            session_ids=identify.session_ids(backend, sessions) if sessions else None,
            since=since,
            until=until,
            progress=report,
        )
    if as_json:
        output.write_json_array([_form(hit) for hit in result.hits])
    elif result.hits:
        output.write("\n".join(map(_text, result.hits)))
    else:
        output.notice("nothing found")
    if len(result.hits) == limit and not as_json:
        output.notice("there may be more: raise --limit, or narrow it down")
    notices.partial(result.unreadable, result.incomplete)


def _form(hit: SearchHit) -> forms.Form:
    return {
        "session_id": hit.session_id,
        "sequence": hit.sequence,
        "kind": str(hit.kind),
        "producer": forms.producer(hit.producer),
        "timestamp": forms.moment(hit.timestamp),
        "snippet": hit.snippet,
        "marks": [list(mark) for mark in hit.marks],
    }


def _text(hit: SearchHit) -> str:
    who = f"{hit.kind}  {texts.producer(hit.producer)}  {moments.local(hit.timestamp)}"
    heading = escape.line(f"{hit.session_id} [{hit.sequence}] {who}")
    return f"{heading}\n{_INDENT}{_marked(hit)}\n"


def _marked(hit: SearchHit) -> str:
    """Return the snippet, escaped, with what was looked for in bold."""
    parts, place = [], 0
    for start, end in hit.marks:
        parts += [escape.line(hit.snippet[place:start])]
        parts += [output.bold(escape.line(hit.snippet[start:end]))]
        place = end
    return "".join(parts) + escape.line(hit.snippet[place:])
