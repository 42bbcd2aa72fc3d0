"""A progress bar on stderr, for a person only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

_T = TypeVar("_T")
_SHORT_S = 1.0


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


@contextmanager
def reported(doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give a function to be told how much of how much is done, if stderr is a terminal, else None.

    The bar appears when the work has taken a second, and is gone at the end.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    start = time.monotonic()
    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(doing)

    def report(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if time.monotonic() - start > _SHORT_S:
            bar.start()

    try:
        yield report
    finally:
        bar.stop()
