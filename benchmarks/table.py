"""The table that a run prints."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.measure import Figure

_HEADINGS = ("what", "ours", "bare", "ratio (min-max)", "target", "")
_LEFT = (0, 5)


def table(figures: Iterable[Figure]) -> str:
    """Return *figures* as lines of plain text."""
    lines = [_HEADINGS, *(_cells(figure) for figure in figures)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = tuple("-" * width for width in widths)
    return "\n".join(_line(cells, widths) for cells in (lines[0], rule, *lines[1:]))


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = (
        cell.ljust(width) if column in _LEFT else cell.rjust(width)
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
    value, low, high = (_amount(figure, one) for one in (figure.value, figure.low, figure.high))
    return value if figure.low == figure.high else f"{value} ({low}-{high})"


def _amount(figure: Figure, value: float) -> str:
    return f"{value:.2f}" if figure.unit is None else f"{value:.0f} {figure.unit}"


def _verdict(figure: Figure) -> str:
    if figure.note or figure.value is None or figure.target is None:
        return figure.note
    return "MISSED" if figure.missed else "ok"
