"""``plan``: planned tool calls and the decisions about them."""

from __future__ import annotations

from dataclasses import asdict

import click

from statebackend.cli import exit_codes, id_prefixes, notices, output
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import TableCell, TableColumn, write_table
from statebackend.values.recorded import PlanDecision, PlanEntry

_ITEM_COLUMNS = (
    TableColumn("event", right=True),
    TableColumn("turn", wrap=True),
    TableColumn("call", wrap=True),
    TableColumn("tool", wrap=True),
    TableColumn("decision"),
    TableColumn("decided by", wrap=True),
)
_RULE_COLUMNS = (
    TableColumn("decided by", wrap=True),
    TableColumn("decision"),
    TableColumn("count", right=True),
)
_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}


@click.command("plan", cls=SessionsCommand)
@click.argument("session", metavar="[ID]", required=False, shell_complete=complete_id)
@click.option(
    "--decision",
    type=click.Choice([str(decision) for decision in PlanDecision]),
    help="Show only items with this decision.",
)
@click.option("--rules", is_flag=True, help="Count how often each rule decided, over all sessions.")
@json_option
def command(*, session: str | None, decision: str | None, rules: bool, as_json: bool) -> None:
    """Show planned tool calls and what decided about them.

    With an ID, show its plan items; with --rules, count decisions over all sessions.
    """
    if (session is None) != rules:
        raise click.UsageError("Give either an ID or --rules.")
    if rules and decision:
        raise click.UsageError("Give --decision with an ID, not with --rules.")
    if session is None:
        _show_rules(as_json=as_json)
    else:
        _show_items(session, decision, as_json=as_json)


def _show_items(session: str, decision: str | None, *, as_json: bool) -> None:
    from statebackend import StateBackend

    backend = StateBackend()
    with backend.read(id_prefixes.resolve(backend, session)) as view:
        entries = list(view.plan_items(decision=PlanDecision(decision) if decision else None))
        lost, _report = notices.report_losses(backend, view)
    if as_json:
        output.write_json_array([_to_json(entry) for entry in entries])
    elif entries:
        write_table(_ITEM_COLUMNS, [_row(entry) for entry in entries])
    else:
        output.notice("no plan items")
    exit_codes.finish(attention=lost)


def _to_json(entry: PlanEntry) -> dict[str, object]:
    return {
        "sequence": entry.sequence,
        "event_sequence": entry.event_sequence,
        **asdict(entry.item),
    }


def _row(entry: PlanEntry) -> list[TableCell]:
    item = entry.item
    return [
        TableCell(str(entry.event_sequence)),
        TableCell(item.turn_id),
        TableCell(item.tool_call_id),
        TableCell(f"{item.provider_name}/{item.tool_name}"),
        TableCell(item.decision, _STYLES.get(item.decision, "")),
        TableCell(item.decided_by),
    ]


def _show_rules(*, as_json: bool) -> None:
    from statebackend import StateBackend

    result = StateBackend().plan_rules()
    if as_json:
        output.write_json_array([asdict(rule) for rule in result.rules])
    elif result.rules:
        rows = [
            [
                TableCell(rule.decided_by),
                TableCell(rule.decision, _STYLES.get(rule.decision, "")),
                TableCell(f"{rule.count:,}"),
            ]
            for rule in result.rules
        ]
        write_table(_RULE_COLUMNS, rows)
    else:
        output.notice("no plan items")
    notices.finish_partial(result.unreadable, result.incomplete)
