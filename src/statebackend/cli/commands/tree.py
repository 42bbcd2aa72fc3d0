"""``tree``: sessions below their parents, with own and inclusive cost."""

from __future__ import annotations

from dataclasses import asdict

import click

from statebackend.cli import display, id_prefixes, json_values, notices, output, times
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import TableCell, TableColumn, write_table
from statebackend.values.results import TreeNode

_COLUMNS = (
    TableColumn("session"),
    TableColumn("status"),
    TableColumn("profile", wrap=True),
    TableColumn("started"),
    TableColumn("own cost", right=True),
    TableColumn("inclusive", right=True),
    TableColumn("note", wrap=True, optional=True),
)
_DEEPEST_INDENT = 12


@click.command("tree", cls=SessionsCommand)
@click.argument("session", metavar="[ID]", required=False, shell_complete=complete_id)
@json_option
def command(*, session: str | None, as_json: bool) -> None:
    """Show sessions below their parents, with their cost.

    With an ID, show only the tree below that session. If a file cannot be read or a session lost
    rows to damage, the tree and its sums may be incomplete, and the exit code is 1.
    """
    from statebackend import StateBackend

    backend = StateBackend()
    tree = backend.tree(None if session is None else id_prefixes.resolve(backend, session))
    if as_json:
        output.write_json_array([_to_json(node) for node in tree.nodes])
    elif tree.nodes:
        write_table(_COLUMNS, [_row(node) for node in tree.nodes])
    else:
        output.notice("no sessions")
    notices.finish_partial(tree.unreadable, tree.incomplete)


def _to_json(node: TreeNode) -> json_values.JsonObject:
    return {
        **json_values.session(node.session),
        "level": node.level,
        "missing_parent": node.missing_parent,
        "ring": node.ring,
        "own": asdict(node.own),
        "inclusive": asdict(node.inclusive),
    }


def _row(node: TreeNode) -> list[TableCell]:
    return [
        TableCell(_indent(node.level) + node.session.session_id),
        display.status(node.session),
        TableCell(node.session.profile),
        TableCell(times.format_minute(node.session.started_at)),
        TableCell(display.money(node.own.cost_usd, node.own.unpriced_rows)),
        TableCell(display.money(node.inclusive.cost_usd, node.inclusive.unpriced_rows)),
        TableCell(_note(node), "red" if node.ring else "yellow"),
    ]


def _indent(level: int) -> str:
    """Return the spaces before a session; a deep level is written as a number instead."""
    if level <= _DEEPEST_INDENT:
        return "  " * level
    return "  " * _DEEPEST_INDENT + f"(level {level}) "


def _note(node: TreeNode) -> str:
    notes = []
    if node.missing_parent:
        notes.append(f"parent {node.session.parent_session_id} is missing")
    if node.ring:
        notes.append("its parents form a ring")
    if problem := json_values.problem(node.session):
        notes.append(problem)
    return "; ".join(notes)
