"""``tree``: sessions below their parents, with own and inclusive cost."""

from __future__ import annotations

from dataclasses import asdict

import click

from statebackend.cli import display, id_prefixes, json_values, notices, options, times
from statebackend.cli.table import Row, TableCell, columns, write_result
from statebackend.values.results import TreeNode

_COLUMNS = columns(
    "session, status, profile:wrap, started, own cost:right, inclusive:right, note:wrap:optional"
)
_DEEPEST_INDENT = 12


@click.command("tree", cls=options.SessionsCommand)
@options.optional_id_argument
@options.json_option
def command(*, session: str | None, as_json: bool) -> None:
    """Show sessions below their parents, with their cost.

    With an ID, show only the tree below that session. If a file cannot be read or a session lost
    rows to damage, the tree and its sums may be incomplete, and the exit code is 1.
    """
    backend = options.open_backend()
    tree = backend.tree(None if session is None else id_prefixes.resolve(backend, session))
    write_result(tree.nodes, _to_json, _COLUMNS, _row, as_json=as_json, empty="no sessions")
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


def _row(node: TreeNode) -> Row:
    return [
        _indent(node.level) + node.session.session_id,
        display.status(node.session),
        node.session.profile,
        times.format_minute(node.session.started_at),
        display.money(node.own.cost_usd, node.own.unpriced_rows),
        display.money(node.inclusive.cost_usd, node.inclusive.unpriced_rows),
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
