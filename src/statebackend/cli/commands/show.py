"""``show``: show one session, as a summary or as its transcript."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

import click

from statebackend.cli import (
    display,
    escape,
    exit_codes,
    id_prefixes,
    json_values,
    notices,
    output,
    times,
    transcript,
)
from statebackend.cli.options import SessionsCommand, complete_id, json_option
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
@click.option("--events", is_flag=True, help="Show the transcript; the next four options imply it.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([str(kind) for kind in EventKind]),
    help="Show only events of this kind; may be given several times.",
)
@click.option(
    "--after",
    metavar="SEQ",
    type=click.IntRange(0, MAX_INTEGER),
    help="Show only events after this sequence number.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, MAX_INTEGER),
    help="Show at most this many events.",
)
@click.option("--follow", is_flag=True, help="Wait for new events until the session has no writer.")
@click.option("--partial", is_flag=True, help="Show what can be saved of a damaged session.")
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

    ID may be shortened to any unique beginning or end. On a terminal, long text is cut; through a
    pipe, with --json and in replay it is whole. --partial changes nothing. The exit code is 1 if
    the session is damaged or lost rows to damage earlier.
    """
    from statebackend import StateBackend

    if follow and partial:
        raise click.UsageError(
            "Give --partial or --follow, not both: a damaged session has no new events."
        )
    backend = StateBackend()
    session_id = id_prefixes.resolve(backend, session)
    with backend.read_partial(session_id) if partial else backend.read(session_id) as view:
        recovery = view.recovery
        if recovery is not None:
            _warn_of_damage(session_id, recovery)
        lost, report = notices.report_losses(backend, view)
        if not (events or kinds or after is not None or limit or follow):
            path = str(view.path if recovery is None else recovery.path)
            problem = _write_summary(view, path, recovery or report, as_json=as_json)
            exit_codes.finish(attention=problem or lost or recovery is not None)
            return
        only = [EventKind(kind) for kind in kinds] or None
        if follow:
            stored = view.follow(after_sequence=after or 0, kinds=only)
        else:
            stored = view.events(after_sequence=after or 0, kinds=only, limit=limit)
        write = transcript.write_json_lines if as_json else transcript.write
        write(islice(stored, limit), at_once=follow)
        exit_codes.finish(attention=lost or recovery is not None)


def _warn_of_damage(session_id: str, recovery: Recovery) -> None:
    missing = notices.describe_losses(recovery) or "everything could be read"
    output.notice(f"session {session_id} is damaged; shown is what can be saved: {missing}")


def _write_summary(
    view: SessionView, path: str, recovery: Recovery | None, *, as_json: bool
) -> bool:
    """Write the summary and tell whether the session has a problem."""
    facts = (view.info, view.counts(), view.cost_totals(), view.producers())
    if as_json:
        _write_json(path, *facts, recovery=recovery)
    else:
        output.write("".join(f"{name:<11} {value}\n" for name, value in _lines(path, *facts)))
    return json_values.problem(facts[0]) is not None


def _write_json(
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
            **json_values.session(info),
            "path": path,
            "counts": asdict(counts),
            "cost": asdict(cost),
            "recovery": recovery and json_values.recovery(recovery),
            "producers": [json_values.producer_entry(entry) for entry in producers],
        }
    )


def _lines(
    path: str,
    info: SessionInfo,
    counts: SessionCounts,
    cost: CostTotals,
    producers: list[ProducerEntry],
) -> list[tuple[str, str]]:
    took = times.format_duration(info.started_at, info.ended_at)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.by_kind.items())
    facts = [
        ("session", info.session_id),
        ("file", path),
        ("status", display.status(info).text),
        ("problem", json_values.problem(info) or ""),
        ("profile", info.profile),
        ("parent", info.parent_session_id or "-"),
        ("depth", str(info.depth)),
        ("started", times.format_second(info.started_at)),
        ("ended", times.format_second(info.ended_at) + ("" if took == "-" else f" (after {took})")),
        ("events", f"{counts.events:,}" + (f" ({kinds})" if kinds else "")),
        ("plan items", f"{counts.plan_items:,}"),
        ("cost", display.money(cost.cost_usd, cost.unpriced_rows)),
        ("turns", _turns(cost)),
    ]
    names = [display.producer(entry.producer) for entry in producers]
    facts += zip(["producers", *[""] * len(names)], names, strict=False)
    return [(name, escape.line(value)) for name, value in facts if value]


def _turns(cost: CostTotals) -> str:
    return (
        f"{cost.rows:,} (tokens: {cost.input_tokens:,} input, {cost.output_tokens:,} output, "
        f"{cost.cache_write_tokens:,} cache write, {cost.cache_read_tokens:,} cache read)"
    )
