"""``show``: one session, as a summary or as its transcript."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from statebackend.cli import (
    endings,
    escape,
    forms,
    identify,
    moments,
    notices,
    output,
    texts,
    transcript,
)
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.files.paths import SessionFiles
from statebackend.values.recorded import (
    CostTotals,
    EventKind,
    ProducerEntry,
    SessionCounts,
    SessionInfo,
)
from statebackend.values.reports import Recovery
from statebackend.values.validation import MAX_INTEGER

if TYPE_CHECKING:
    from statebackend import SessionView


@click.command("show", cls=SessionsCommand)
@click.argument("session", metavar="ID", shell_complete=complete_id)
@click.option("--events", is_flag=True, help="Show the transcript; the next four imply it.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([str(kind) for kind in EventKind]),
    help="Show only events of this kind; may be given several times.",
)
@click.option(
    "--after",
    type=click.IntRange(0, MAX_INTEGER),
    help="Show only events after this sequence number.",
)
@click.option("--limit", type=click.IntRange(1, MAX_INTEGER), help="Show at most this many events.")
@click.option(
    "--follow", is_flag=True, help="Go on with new events until the session's writer is gone."
)
@click.option("--partial", is_flag=True, help="Of a damaged session, show what can be saved of it.")
@json_option
def command(
    *,
    session: str,
    events: bool,
    kinds: tuple[str, ...],
    after: int | None,
    limit: int | None,
    follow: bool,
    partial: bool,
    as_json: bool,
) -> None:
    """Show the summary of a session, or its events.

    ID may be shortened to any unique beginning or end. On a terminal the text of a long event is
    cut, which is said; through a pipe, with --json and in replay it is whole. With --partial
    nothing is changed, what is missing is said, and the exit code of a damaged session is 1. So it
    is, always, of a session that lost rows to damage earlier.
    """
    from statebackend import StateBackend

    if follow and partial:
        raise click.UsageError("--partial shows what is left, so there is nothing to --follow.")
    backend = StateBackend()
    found = identify.session_id(backend, session)
    with backend.read_partial(found) if partial else backend.read(found) as view:
        recovery = view.recovery
        if recovery is not None:
            _warn(found, recovery)
        path = SessionFiles.of(backend.directory, found).path
        lost, report = notices.lost(path)
        if not (events or kinds or after is not None or limit or follow):
            flagged = _write_summary(view, str(path), recovery or report, as_json=as_json)
            endings.end(found=flagged or lost or recovery is not None)
            return
        only = [EventKind(kind) for kind in kinds] or None
        if follow:
            stored = view.follow(after_sequence=after or 0, kinds=only)
        else:
            stored = view.events(after_sequence=after or 0, kinds=only, limit=limit)
        write = transcript.write_json_lines if as_json else transcript.write
        write(islice(stored, limit), at_once=follow)
        endings.end(found=lost or recovery is not None)


def _warn(session_id: str, recovery: Recovery) -> None:
    missing = notices.incomplete(recovery) or "everything could be read"
    output.notice(f"session {session_id} is damaged, this is what can be saved of it: {missing}")


def _write_summary(
    view: SessionView, path: str, recovery: Recovery | None, *, as_json: bool
) -> bool:
    """Write the summary, and tell whether something in it needs a person."""
    facts = (view.info, view.counts(), view.cost_totals(), view.producers())
    if as_json:
        _write_form(path, *facts, recovery=recovery)
    else:
        output.write("".join(f"{name:<11} {value}\n" for name, value in _lines(path, *facts)))
    return forms.problem(facts[0]) is not None


def _write_form(
    path: str,
    info: SessionInfo,
    counts: SessionCounts,
    cost: CostTotals,
    producers: list[ProducerEntry],
    *,
    recovery: Recovery | None,
) -> None:
    output.write_json(
        {
            **forms.session(info),
            "path": path,
            "counts": forms.counts(counts),
            "cost": forms.totals(cost),
            "recovery": recovery and forms.recovery(recovery),
            "producers": [forms.producer_entry(entry) for entry in producers],
        }
    )


def _lines(
    path: str,
    info: SessionInfo,
    counts: SessionCounts,
    cost: CostTotals,
    producers: list[ProducerEntry],
) -> list[tuple[str, str]]:
    took = moments.duration(info.started_at, info.ended_at)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.by_kind.items())
    facts = [
        ("session", info.session_id),
        ("file", path),
        ("status", texts.status(info).text),
        ("problem", forms.problem(info) or ""),
        ("profile", info.profile),
        ("parent", info.parent_session_id or "-"),
        ("depth", str(info.depth)),
        ("started", moments.local(info.started_at)),
        ("ended", moments.local(info.ended_at) + ("" if took == "-" else f" (after {took})")),
        ("events", f"{counts.events:,}" + (f" ({kinds})" if kinds else "")),
        ("plan items", f"{counts.plan_items:,}"),
        ("cost", texts.money(cost.cost_usd, cost.unpriced_rows)),
        ("turns", _turns(cost)),
    ]
    names = [texts.producer(entry.producer) for entry in producers]
    facts += zip(["producers", *[""] * len(names)], names, strict=False)
    return [(name, escape.line(value)) for name, value in facts if value]


def _turns(cost: CostTotals) -> str:
    return (
        f"{cost.rows:,} (tokens: {cost.input_tokens:,} input, {cost.output_tokens:,} output, "
        f"{cost.cache_write_tokens:,} cache write, {cost.cache_read_tokens:,} cache read)"
    )
