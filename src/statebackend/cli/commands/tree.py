"""``tree``: parents and children, with what each cost alone and with all below it."""

from __future__ import annotations

import click

from statebackend.cli import forms, identify, moments, notices, output, texts
from statebackend.cli.options import SessionsCommand, complete_id, json_option
from statebackend.cli.table import Cell, Column, write_table
from statebackend.values.results import TreeNode

_COLUMNS = (
    Column("session"),
    Column("status"),
    Column("profile", wrap=True),
    Column("started"),
    Column("own cost", right=True),
    Column("inclusive", right=True),
    Column("note", wrap=True, optional=True),
)
_DEEPEST_INDENT = 12


@click.command("tree", cls=SessionsCommand)
@click.argument("session", metavar="[ID]", required=False, shell_complete=complete_id)
@json_option
def command(*, session: str | None, as_json: bool) -> None:
    """Show sessions below their parents, with their cost.

    With an ID the tree of that session, else all trees. If a file could not be read, or a session
    lost rows to damage, the tree and its sums may lack something: that is said, and the exit code
    is 1.
    """
    from statebackend import StateBackend

    backend = StateBackend()
    tree = backend.tree(None if session is None else identify.session_id(backend, session))
    if as_json:
        output.write_json_array([_form(node) for node in tree.nodes])
    elif tree.nodes:
        write_table(_COLUMNS, [_row(node) for node in tree.nodes])
    else:
        output.notice("no sessions")
    notices.partial(tree.unreadable, tree.incomplete)


def _form(node: TreeNode) -> forms.Form:
    return {
        **forms.session(node.session),
        "level": node.level,
        "missing_parent": node.missing_parent,
        "ring": node.ring,
        "own": forms.totals(node.own),
        "inclusive": forms.totals(node.inclusive),
    }


def _row(node: TreeNode) -> list[Cell]:
    return [
        Cell(_indent(node.level) + node.session.session_id),
        texts.status(node.session),
        Cell(node.session.profile),
        Cell(moments.local_minute(node.session.started_at)),
        Cell(texts.money(node.own.cost_usd, node.own.unpriced_rows)),
        Cell(texts.money(node.inclusive.cost_usd, node.inclusive.unpriced_rows)),
        Cell(_note(node), "red" if node.ring else "yellow"),
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
    if problem := forms.problem(node.session):
        notes.append(problem)
    return "; ".join(notes)
