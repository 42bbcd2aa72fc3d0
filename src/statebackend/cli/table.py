"""Tables: drawn by Rich on a terminal, aligned plain text everywhere else."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from statebackend.cli import escape, output

_T = TypeVar("_T")
_NARROWEST = 12
_GAP = 2


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column.

    ``right`` aligns its cells to the right. ``wrap`` lets a terminal break its cells over several
    lines; other cells are never broken, since half an id is useless. ``optional`` leaves the
    column out when all its cells are empty.
    """

    title: str
    right: bool = False
    wrap: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TableCell:
    """One cell: stored text, escaped when it is drawn, and Rich's style for a terminal."""

    text: str
    style: str = ""


Cell = TableCell | str | int
Row = Sequence[Cell]


def columns(spec: str) -> tuple[TableColumn, ...]:
    """Return the columns of a list of titles; ``count:right`` sets the option ``right``."""
    parts = [column.split(":") for column in spec.split(", ")]
    return tuple(TableColumn(title, **dict.fromkeys(flags, True)) for title, *flags in parts)


def write_result(
    values: Sequence[_T],
    to_json: Callable[[_T], Any],
    columns: Sequence[TableColumn],
    to_row: Callable[[_T], Row],
    *,
    as_json: bool,
    empty: str,
) -> None:
    """Write *values* as a JSON array or as a table; *empty* is the notice without any."""
    if as_json:
        output.write_json_array(map(to_json, values))
    elif values:
        write_table(columns, [to_row(value) for value in values])
    else:
        output.notice(empty)


def write_outcomes(
    columns: Sequence[TableColumn],
    rows: Sequence[Row],
    outcomes: Iterable[str],
    descriptions: Mapping[str, str],
    *,
    empty: str,
) -> None:
    """Write a table if it has rows, and a notice for each outcome with the number of sessions."""
    if rows:
        write_table(columns, rows)
    counts = Counter(map(str, outcomes))
    for outcome, description in descriptions.items():
        if count := counts[outcome]:
            output.notice(f"{count:,} {'session' if count == 1 else 'sessions'} {description}")
    if not counts:
        output.notice(empty)


def write_table(
    columns: Sequence[TableColumn], rows: Sequence[Row], total: Row | None = None
) -> None:
    """Write a table to stdout, with the *total* row, if any, last (bold on a terminal)."""
    lines = [_escape_cells(row) for row in (*rows, *([] if total is None else [total]))]
    used = [
        number
        for number, column in enumerate(columns)
        if not column.optional or any(line[number].text for line in lines)
    ]
    columns, lines = [columns[n] for n in used], [[line[n] for n in used] for line in lines]
    if output.stdout_is_terminal() and not output.terminal_is_dumb():
        output.write(_draw_with_rich(columns, lines, bold_last=total is not None))
    else:
        output.write(_draw_plain(columns, lines))


def _draw_plain(columns: Sequence[TableColumn], rows: Sequence[Sequence[TableCell]]) -> str:
    """Return the table as plain text, two spaces between the columns."""
    widths = _widest_cells(columns, rows)
    lines = [[column.title.upper() for column in columns]]
    lines += [[cell.text for cell in row] for row in rows]
    table = ""
    for texts in lines:
        cells = []
        for column, text, widest in zip(columns, texts, widths, strict=True):
            padding = " " * (widest - width(text))
            cells.append(padding + text if column.right else text + padding)
        table += "  ".join(cells).rstrip() + "\n"
    return table


def _draw_with_rich(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[TableCell]], *, bold_last: bool
) -> str:
    """Return the table as text for the terminal, in colour unless NO_COLOR is set.

    It is as wide as the terminal, or wider if its unbreakable cells are: the terminal then wraps
    the lines itself, and no text is lost.
    """
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    least_widths = [
        min(widest, _NARROWEST) if column.wrap else widest
        for column, widest in zip(columns, _widest_cells(columns, rows), strict=True)
    ]
    for column, least_width in zip(columns, least_widths, strict=True):
        table.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            no_wrap=not column.wrap,
            min_width=least_width,
            overflow="fold",
        )
    for number, row in enumerate(rows, start=1):
        style = "bold" if bold_last and number == len(rows) else None
        # Text, never a plain str: Rich would read [brackets] in stored text as its own markup.
        table.add_row(*(Text(cell.text, style=cell.style) for cell in row), style=style)
    # Into a buffer and out through ``output``, which handles a reader that has gone.
    file = io.StringIO()
    widest = max(shutil.get_terminal_size().columns, sum(least_widths) + _GAP * len(columns))
    Console(file=file, force_terminal=True, width=widest, highlight=False).print(table)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _widest_cells(columns: Sequence[TableColumn], rows: Sequence[Sequence[TableCell]]) -> list[int]:
    """Return the width of each column's widest cell or of its title."""
    cells = zip(*rows, strict=True) if rows else [()] * len(columns)
    return [
        max(len(column.title), *(width(cell.text) for cell in texts), 0)
        for column, texts in zip(columns, cells, strict=True)
    ]


def width(text: str) -> int:
    """Return how many terminal columns *text* takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def _escape_cells(row: Row) -> list[TableCell]:
    return [_escape_cell(cell) for cell in row]


def _escape_cell(cell: Cell) -> TableCell:
    if isinstance(cell, TableCell):
        return TableCell(escape.line(cell.text), cell.style)
    return TableCell(f"{cell:,}" if isinstance(cell, int) else escape.line(cell))
