"""``plan``: planned tool calls and the decisions about them."""

from __future__ import annotations

from dataclasses import asdict

import click

from statebackend.cli import exit_codes, id_prefixes, json_values, notices, options
from statebackend.cli.table import Row, TableCell, columns, write_result
from statebackend.values.recorded import PlanDecision, PlanEntry
from statebackend.values.results import PlanRule

_ITEM_COLUMNS = columns(
    "event:right, turn:wrap, call:wrap, tool:wrap, decision, decided by:wrap",
)
_RULE_COLUMNS = columns("decided by:wrap, decision, count:right")
_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}


@click.command("plan", cls=options.SessionsCommand)
@options.optional_id_argument
@click.option(
    "--decision",
    type=click.Choice([str(decision) for decision in PlanDecision]),
    help="Show only items with this decision.",
)
@click.option("--rules", is_flag=True, help="Count how often each rule decided, over all sessions.")
@options.json_option
def command(*, session: str | None, decision: str | None, rules: bool, as_json: bool) -> None:
    """Show planned tool calls and what decided about them.

    With an ID, show its plan items; with --rules, count decisions over all sessions.
    """
    if (session is None) != rules:
        raise click.UsageError("Give either an ID or --rules.")
    if rules and decision:
        raise click.UsageError("Give --decision with an ID, not with --rules.")
    backend, empty = options.open_backend(), "no plan items"
    if session is None:
        result = backend.plan_rules()
        write_result(result.rules, asdict, _RULE_COLUMNS, _rule_row, as_json=as_json, empty=empty)
        notices.finish_partial(result.unreadable, result.incomplete)
        return
    with backend.read(id_prefixes.resolve(backend, session)) as view:
        entries = list(view.plan_items(decision=PlanDecision(decision) if decision else None))
        lost, _report = notices.report_losses(backend, view)
    write_result(entries, _to_json, _ITEM_COLUMNS, _item_row, as_json=as_json, empty=empty)
    exit_codes.finish(attention=lost)


def _to_json(entry: PlanEntry) -> json_values.JsonObject:
    return {
        "sequence": entry.sequence,
        "event_sequence": entry.event_sequence,
        **asdict(entry.item),
    }


def _item_row(entry: PlanEntry) -> Row:
    item = entry.item
    tool = f"{item.provider_name}/{item.tool_name}"
    decision = TableCell(item.decision, _STYLES.get(item.decision, ""))
    event = str(entry.event_sequence)
    return [event, item.turn_id, item.tool_call_id, tool, decision, item.decided_by]


def _rule_row(rule: PlanRule) -> Row:
    return [rule.decided_by, TableCell(rule.decision, _STYLES.get(rule.decision, "")), rule.count]
