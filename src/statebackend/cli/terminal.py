"""What needs Rich; imported only when stdout is a terminal."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from statebackend.cli.table import Cell, Column, widths

_NARROWEST = 12
_GAP = 2


def drawn(columns: Sequence[Column], rows: Sequence[list[Cell]], *, bold_last: bool) -> str:
    """Return the table as text for the terminal, with colours unless NO_COLOR.

    It is as wide as the terminal, or as what may not be folded: a terminal wraps a line that is too
    long, and nothing is lost.
    """
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    least = _least_widths(columns, rows)
    for column, narrowest in zip(columns, least, strict=True):
        table.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            no_wrap=not column.wrap,
            min_width=narrowest,
            overflow="fold",
        )
    for number, row in enumerate(rows, start=1):
        last = bold_last and number == len(rows)
        table.add_row(*map(_text, row), style="bold" if last else None)
    return _printed(table, sum(least) + _GAP * len(least))


def _least_widths(columns: Sequence[Column], rows: Sequence[list[Cell]]) -> list[int]:
    return [
        min(most, _NARROWEST) if column.wrap else most
        for column, most in zip(columns, widths(columns, rows), strict=True)
    ]


def _text(cell: Cell) -> Text:
    # Text, never a plain str: Rich would read [brackets] in a stored text as its own markup.
    return Text(cell.text, style=cell.style)


def _printed(table: Table, least_width: int) -> str:
    # Into a buffer and out through ``output``, which knows what to do when the reader is gone.
    file = io.StringIO()
    columns = max(shutil.get_terminal_size().columns, least_width)
    Console(file=file, force_terminal=True, width=columns, highlight=False).print(table)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())
