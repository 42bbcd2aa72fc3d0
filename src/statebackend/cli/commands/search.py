"""``search``: find text in all sessions."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import click

from statebackend.cli import display, id_prefixes, json_values, notices, options, output, progress
from statebackend.cli.escape import line
from statebackend.cli.times import format_second
from statebackend.values.recorded import EventKind
from statebackend.values.results import SearchHit

_INDENT = "    "


@click.command("search", cls=options.SessionsCommand)
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
    shell_complete=options.complete_id,
    help="Find only events of this session; may be given several times.",
)
@options.time_options("Find only events recorded")
@options.limit_option("Show at most this many.", default=20)
@options.json_option
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
    """Find events that contain all the words, best match first.

    WORDS are plain text. Case, accents and punctuation are ignored; words in double quotes
    ('"to be"') must follow each other. The first search builds an index in the cache folder, and
    later ones update it; it may be deleted at any time.
    """
    backend = options.open_backend()
    with progress.show("Indexing") as report:
        result = backend.search(
            " ".join(words),
            limit=limit,
            kind=EventKind(kind) if kind else None,
            producer=producer,
            profile=profile,
            session_ids=id_prefixes.resolve_all(backend, sessions) or None,
            since=since,
            until=until,
            progress=report,
        )
    if as_json:
        output.write_json_array([_to_json(hit) for hit in result.hits])
    elif result.hits:
        output.write("\n".join(map(_format_hit, result.hits)))
    else:
        output.notice("nothing found")
    if len(result.hits) == limit and not as_json:
        output.notice("there may be more: raise --limit, or search for more words")
    notices.finish_partial(result.unreadable, result.incomplete)


def _to_json(hit: SearchHit) -> json_values.JsonObject:
    return {**asdict(hit), "timestamp": json_values.time(hit.timestamp)}


def _format_hit(hit: SearchHit) -> str:
    source = f"{hit.kind}  {display.producer(hit.producer)}  {format_second(hit.timestamp)}"
    heading = line(f"{hit.session_id} [{hit.sequence}] {source}")
    return f"{heading}\n{_INDENT}{_highlight(hit)}\n"


def _highlight(hit: SearchHit) -> str:
    """Return the snippet, escaped, with the matches in bold."""
    parts, place = [], 0
    for start, end in hit.marks:
        parts += [line(hit.snippet[place:start])]
        parts += [output.bold(line(hit.snippet[start:end]))]
        place = end
    return "".join(parts) + line(hit.snippet[place:])
