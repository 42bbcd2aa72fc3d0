"""Progress bars on stderr, only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

_T = TypeVar("_T")
_SHORT_S = 1.0


def track(items: Iterable[_T], total: int, activity: str) -> Iterator[_T]:
    """Return *items*, and show on a terminal how many of the *total* are done.

    The bar is erased at the end; one item shows none.
    """
    if total < 2 or sys.stderr is None or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as draw

    console = Console(stderr=True)
    yield from draw(items, activity, total, transient=True, console=console, disable=False)


@contextmanager
def show(activity: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give a function to call with the units done and their total; None without a terminal.

    The bar appears once the work has taken a second, and is erased at the end.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    start = time.monotonic()
    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(activity)

    def report(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if time.monotonic() - start > _SHORT_S:
            bar.start()

    try:
        yield report
    finally:
        bar.stop()
