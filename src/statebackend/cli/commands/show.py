"""``show``: show one session, as a summary or as its transcript."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

import click

from statebackend.cli import display, exit_codes, id_prefixes, json_values, notices, options, output
from statebackend.cli.escape import line
from statebackend.cli.times import format_duration, format_second
from statebackend.cli.transcript import write as write_transcript
from statebackend.cli.transcript import write_json_lines
from statebackend.values.recorded import CostTotals, EventKind, SessionCounts, SessionInfo
from statebackend.values.reports import Recovery
from statebackend.values.validation import MAX_INTEGER

if TYPE_CHECKING:
    from statebackend import SessionView


@click.command("show", cls=options.SessionsCommand)
@options.id_argument
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
@options.limit_option("Show at most this many events.", default=None)
@click.option("--follow", is_flag=True, help="Wait for new events until the session has no writer.")
@click.option("--partial", is_flag=True, help="Show what can be saved of a damaged session.")
@options.json_option
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
    if follow and partial:
        raise click.UsageError(
            "Give --partial or --follow, not both: a damaged session has no new events."
        )
    backend = options.open_backend()
    session_id = id_prefixes.resolve(backend, session)
    with backend.read_partial(session_id) if partial else backend.read(session_id) as view:
        recovery = view.recovery
        if recovery is not None:
            missing = notices.describe_losses(recovery) or "everything could be read"
            output.notice(f"session {session_id} is damaged; shown is what can be saved: {missing}")
        lost, report = notices.report_losses(backend, view)
        if not (events or kinds or after is not None or limit or follow):
            path = str(view.path if recovery is None else recovery.path)
            problem = _write_summary(view, path, recovery or report, as_json=as_json)
            exit_codes.finish(attention=problem or lost or recovery is not None)
            return
        only = [EventKind(kind) for kind in kinds] or None
        if follow:
            selected = view.follow(after_sequence=after or 0, kinds=only)
        else:
            selected = view.events(after_sequence=after or 0, kinds=only, limit=limit)
        write = write_json_lines if as_json else write_transcript
        write(islice(selected, limit), at_once=follow)
        exit_codes.finish(attention=lost or recovery is not None)


def _write_summary(
    view: SessionView, path: str, recovery: Recovery | None, *, as_json: bool
) -> bool:
    """Write the summary and return whether the session has a problem."""
    info, counts, cost, producers = view.info, view.counts(), view.cost_totals(), view.producers()
    if as_json:
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
    else:
        names = [display.producer(entry.producer) for entry in producers]
        facts = _facts(path, info, counts, cost)
        facts += zip(["producers", *[""] * len(names)], names, strict=False)
        for name, value in facts:
            if value:
                output.write(f"{name:<11} {line(value)}\n")
    return json_values.problem(info) is not None


def _facts(
    path: str, info: SessionInfo, counts: SessionCounts, cost: CostTotals
) -> list[tuple[str, str]]:
    took = format_duration(info.started_at, info.ended_at)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.by_kind.items())
    tokens = (
        f"{cost.input_tokens:,} input, {cost.output_tokens:,} output, "
        f"{cost.cache_write_tokens:,} cache write, {cost.cache_read_tokens:,} cache read"
    )
    return [
        ("session", info.session_id),
        ("file", path),
        ("status", display.status(info).text),
        ("problem", json_values.problem(info) or ""),
        ("profile", info.profile),
        ("parent", info.parent_session_id or "-"),
        ("depth", str(info.depth)),
        ("started", format_second(info.started_at)),
        ("ended", format_second(info.ended_at) + ("" if took == "-" else f" (after {took})")),
        ("events", f"{counts.events:,}" + (f" ({kinds})" if kinds else "")),
        ("plan items", f"{counts.plan_items:,}"),
        ("cost", display.money(cost.cost_usd, cost.unpriced_rows)),
        ("turns", f"{cost.rows:,} (tokens: {tokens})"),
    ]
