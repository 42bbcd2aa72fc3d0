"""Tables: drawn by Rich on a terminal, aligned plain text everywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statebackend.cli import escape, output


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    ``right`` aligns its cells to the right. ``wrap`` lets a terminal fold them; all others are
    never cut, since half an id is of no use. ``optional`` leaves the column out where it is empty.
    """

    title: str
    right: bool = False
    wrap: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: stored text, escaped when it is drawn, and Rich's style for a terminal."""

    text: str
    style: str = ""


Row = Sequence[Cell | str]


def write_table(columns: Sequence[Column], rows: Sequence[Row], total: Row | None = None) -> None:
    """Write a table to stdout, with the *total* row, if any, set off below."""
    lines = [_cells(row) for row in (*rows, *([] if total is None else [total]))]
    used = [
        number
        for number, column in enumerate(columns)
        if not column.optional or any(line[number].text for line in lines)
    ]
    columns, lines = [columns[n] for n in used], [[line[n] for n in used] for line in lines]
    if output.stdout_is_terminal() and not output.terminal_is_dumb():
        from statebackend.cli.terminal import drawn

        output.write(drawn(columns, lines, bold_last=total is not None))
    else:
        output.write(aligned(columns, lines))


def aligned(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    """Return the table as lines of plain text, two spaces between its columns."""
    lines = [[column.title.upper() for column in columns]]
    lines += [[cell.text for cell in row] for row in rows]
    most = widths(columns, rows)
    return "".join(_line(columns, texts, most) for texts in lines)


def widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
    """Return for each column how wide its widest cell is, or its title."""
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


def _cells(row: Row) -> list[Cell]:
    cells = (cell if isinstance(cell, Cell) else Cell(cell) for cell in row)
    return [Cell(escape.line(cell.text), cell.style) for cell in cells]


def _line(columns: Sequence[Column], texts: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, text, most in zip(columns, texts, widths, strict=True):
        padding = " " * (most - width(text))
        parts.append(padding + text if column.right else text + padding)
    return "  ".join(parts).rstrip() + "\n"
