"""The table that a run prints."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from benchmarks.measure import Figure

_HEADINGS = ("what", "ours", "bare", "ratio (min-max)", "target", "")
_LEFT = (0, 5)


def table(figures: Iterable[Figure]) -> str:
    """Return *figures* as lines of plain text."""
    return lines([_HEADINGS, *(_cells(figure) for figure in figures)], left=_LEFT)


def lines(rows: Iterable[tuple[str, ...]], *, left: Collection[int]) -> str:
    """Return *rows*, headings first, as lines of plain text; the columns *left* are flush left."""
    headings, *others = rows
    widths = [max(map(len, column)) for column in zip(headings, *others, strict=True)]
    rule = tuple("-" * width for width in widths)
    return "\n".join(_line(cells, widths, left) for cells in (headings, rule, *others))


def _line(cells: tuple[str, ...], widths: list[int], left: Collection[int]) -> str:
    padded = (
        cell.ljust(width) if column in left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def _cells(figure: Figure) -> tuple[str, ...]:
    return (
        figure.what,
        figure.ours,
        figure.bare,
        _measured(figure),
        _target(figure),
        _verdict(figure),
    )


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return f"{'>=' if figure.at_least else '<='} {_amount(figure, figure.target)}"


def _measured(figure: Figure) -> str:
    if figure.value is None:
        return "not run"
    value, low, high = (_amount(figure, edge) for edge in (figure.value, figure.low, figure.high))
    return value if figure.low == figure.high else f"{value} ({low}-{high})"


def _amount(figure: Figure, value: float) -> str:
    return f"{value:.2f}" if figure.unit is None else f"{value:.0f} {figure.unit}"


def _verdict(figure: Figure) -> str:
    if figure.note or figure.value is None or figure.target is None:
        return figure.note
    return "MISSED" if figure.missed else "ok"
