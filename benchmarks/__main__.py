"""``python -m benchmarks``: measure, print one table."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import (
    appending,
    catalogue,
    damage,
    listing,
    migrating,
    open_sessions,
    opening,
    replaying,
    searching,
    sharing,
    starting,
)
from benchmarks.lab import Lab, machine, temporary_folder
from benchmarks.measure import AnswersDiffer, Figure
from benchmarks.table import table

BENCHMARKS: dict[str, Callable[[Lab], Iterator[Figure]]] = {
    "append": appending.append,
    "append-tmpfs": appending.append_memory,
    "batch": appending.batch,
    "threads": sharing.threads,
    "tasks": sharing.tasks,
    "sessions": open_sessions.sessions,
    "open": opening.visit,
    "replay": replaying.replay,
    "memory": replaying.memory,
    "newest": listing.newest,
    "large": listing.large,
    "scan": listing.scan,
    "index": searching.building,
    "search": searching.asking,
    "catalogue": catalogue.across,
    "import": starting.importing,
    "list": starting.listing,
    "migrate": migrating.many,
    "current": migrating.current,
    "check": damage.check,
    "saving": damage.saving,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks that are named, all without a name, and return the exit code.

    1 when both sides of a benchmark do not answer the same or, with ``--strict``, when a target
    is missed; else 0.
    """
    options = _parser().parse_args(arguments)
    start = time.monotonic()
    # An exit, not the end of the process: the temporary folders are removed on the way.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    with temporary_folder(options.directory) as folder:
        lab = Lab(folder, options.smoke)
        figures = [
            figure for name in options.names or BENCHMARKS for figure in _measured(name, lab)
        ]
    print(machine(), table(figures), sep="\n\n")
    print(f"\n{time.monotonic() - start:.0f} s in all")
    differs = any(figure.differs for figure in figures)
    return int(differs or (options.strict and any(figure.missed for figure in figures)))


def _measured(name: str, lab: Lab) -> list[Figure]:
    """Run one benchmark; where the answers differ, say so and let the others run."""
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        return list(BENCHMARKS[name](lab))
    except AnswersDiffer as error:
        print(f"error: {error}", file=sys.stderr)
        return [Figure(name, note="ANSWERS DIFFER", differs=True)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare statebackend with bare sqlite3 loops that do the same work.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        type=_name,
        help=f"run only these: {', '.join(BENCHMARKS)}",
    )
    parser.add_argument("--smoke", action="store_true", help="small sizes: does it work at all")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument(
        "--directory",
        type=Path,
        help="make the temporary folder in here, which decides the disk that is measured",
    )
    return parser


def _name(word: str) -> str:
    if word not in BENCHMARKS:
        raise argparse.ArgumentTypeError(f"{word!r} is not one of: {', '.join(BENCHMARKS)}")
    return word


if __name__ == "__main__":
    sys.exit(main())
