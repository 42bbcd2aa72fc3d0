"""A progress bar on stderr, for a person only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


def shown(items: Iterable[_T], total: int, doing: str) -> Iterator[_T]:
    """Return *items*, drawing how many of the *total* have come, if stderr is a terminal.

    Work that is over before the bar is drawn shows none; the bar is gone at the end.
    """
    if total < 2 or sys.stderr is None or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(
        items,
        total=total,
        description=doing,
        console=Console(stderr=True),
        transient=True,
        disable=False,
    )
