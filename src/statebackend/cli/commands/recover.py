"""``recover``: recover a damaged session."""

from __future__ import annotations

import click

from statebackend.cli import display, escape, exit_codes, id_prefixes, json_values, notices, output
from statebackend.cli.options import SessionsCommand, id_argument, json_option, open_backend
from statebackend.cli.table import Row, TableCell, columns, write_table
from statebackend.cli.times import format_second
from statebackend.values.reports import Recovery, TableRecovery

_NAMED = 20
_COLUMNS = columns(
    "table, kept:right, lost:right, set aside:right, repaired:right, in doubt:right, "
    "orphaned:right, missing sequences:wrap:optional"
)


@click.command("recover", cls=SessionsCommand)
@id_argument
@json_option
def command(*, session: str, as_json: bool) -> None:
    """Recover a damaged session.

    Its rows are saved into a new file, and the damaged original is kept beside it. Opening a
    session for writing does the same. A session without damage is left unchanged. The exit code
    is 1 if rows are missing or were changed.
    """
    backend = open_backend()
    session_id = id_prefixes.resolve(backend, session)
    recovery = backend.recover(session_id)
    if as_json:
        report = {} if recovery is None else json_values.recovery(recovery)
        output.write_json({"session_id": session_id, "recovered": recovery is not None, **report})
    elif recovery is None:
        output.notice(f"session {session_id} is not damaged; nothing was changed")
    else:
        _write(recovery)
    exit_codes.finish(attention=recovery is not None and not recovery.complete)


def _write(recovery: Recovery) -> None:
    write_table(_COLUMNS, [_row(table) for table in recovery.tables])
    facts = [
        ("original", str(recovery.original)),
        ("report", str(recovery.report)),
        ("set aside", str(recovery.aside or "")),
        ("recovered", format_second(recovery.recovered_at)),
        ("result", notices.describe_losses(recovery) or "complete"),
        *(("found", reason) for reason in recovery.reasons[:_NAMED]),
        *(("note", note) for note in recovery.notes[:_NAMED]),
    ]
    output.write("\n")
    for name, value in facts:
        if value:
            output.write(f"{name:<10} {escape.line(value)}\n")
    omitted = sum(max(0, len(lines) - _NAMED) for lines in (recovery.reasons, recovery.notes))
    if omitted:
        output.write(f"and {display.plural(omitted, 'more line')}: see the report\n")


def _row(table: TableRecovery) -> Row:
    ranges = [display.sequences(*bounds) for bounds in table.missing]
    more = f" and {len(ranges) - _NAMED:,} more" if len(ranges) > _NAMED else ""
    return [
        table.table,
        table.kept,
        TableCell(f"{table.lost:,}", "bold red" if table.lost else ""),
        table.set_aside,
        table.repaired,
        table.doubtful,
        table.orphaned,
        ", ".join(ranges[:_NAMED]) + more,
    ]
