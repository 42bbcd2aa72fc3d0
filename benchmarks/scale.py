"""``python -m benchmarks.scale``: how the cost of a listing grows, up to 100,000 sessions.

It prints a table and, with ``--into FOLDER``, writes the figures and a plot of them there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import many_sessions, scan_times
from benchmarks.lab import machine
from benchmarks.scan_times import Timing
from statebackend import StateBackend

SIZES = (100, 1_000, 10_000, 100_000)
LENGTHS = (1, 100, 1_000)
OF_EACH_LENGTH = 1_000
LARGE_BYTES = 1_000_000_000
AMONG = 100
_NAME = "scan-at-scale"


@dataclass(frozen=True, slots=True)
class Measured:
    """What one folder is, and how long each question took there."""

    folder: str
    sessions: int
    cache: str
    timings: list[Timing]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    options = _parser().parse_args(arguments)
    measured = []
    for folder_times in _each(options.largest, options.directory):
        measured.append(folder_times)
        print(f"\n{folder_times.folder}, {folder_times.cache}", flush=True)
        for timing in folder_times.timings:
            print(f"  {timing.what:36} {timing.seconds * 1e3:12,.1f} ms", flush=True)
    if options.into is not None:
        text = json.dumps([machine(), *map(asdict, measured)], indent=1)
        (options.into / f"{_NAME}.json").write_text(text + "\n", encoding="utf-8")
        _plot(measured, options.into / f"{_NAME}.svg")
    return 0


def _each(largest: int, base: Path | None) -> Iterator[Measured]:
    for size in [size for size in SIZES if size <= largest]:
        with scan_times.generated_sessions(size, base) as directory:
            what = f"{size:,} small sessions"
            yield Measured(what, size, "warm", list(scan_times.measure(directory)))
            yield Measured(what, size, "cold", list(_cold(directory)))
    for events in LENGTHS:
        count = min(OF_EACH_LENGTH, largest)
        with scan_times.generated_sessions(count, base, events=(events,)) as directory:
            what = f"{count:,} sessions of {events:,} events"
            yield Measured(what, count, "warm", list(scan_times.measure(directory)))
    with scan_times.generated_sessions(AMONG, base) as directory:
        yield Measured(f"{AMONG} sessions", AMONG, "warm", list(scan_times.measure(directory)))
        large_bytes = LARGE_BYTES if largest >= SIZES[-1] else LARGE_BYTES // 100
        payload_bytes = 1_000_000
        large = many_sessions.template(directory, large_bytes // payload_bytes, payload_bytes)
        what = f"{AMONG} sessions and one of {len(large.image) / 1e9:.2f} GB"
        yield Measured(what, AMONG + 1, "warm", list(scan_times.measure(directory)))


def _cold(directory: Path) -> Iterator[Timing]:
    """Ask with no page of any session in memory; names and file times stay there."""
    backend = StateBackend(directory, catalogue=False)
    questions: dict[str, Callable[[], int]] = {
        f"newest {scan_times.NEWEST}, sqlite3 alone": lambda: len(
            scan_times.bare(directory, scan_times.NEWEST)
        ),
        f"newest {scan_times.NEWEST}": lambda: len(backend.list(limit=scan_times.NEWEST)),
        "every session, sqlite3 alone": lambda: len(scan_times.bare(directory)),
        "every session, from the files": lambda: len(list(backend.scan())),
    }
    for what, ask in questions.items():
        _forget(directory)
        yield scan_times.time_question(what, ask, rounds=1)


def _forget(directory: Path) -> None:
    """Let the system drop every page of these files, which it does only for what is on disk."""
    os.sync()
    for path in directory.iterdir():
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _plot(measured: list[Measured], path: Path) -> None:
    """Draw, for the small sessions, the time of each question by the number of sessions."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = _NAME  # the same figures, the same file
    from matplotlib import pyplot as plt

    lines: dict[str, tuple[list[int], list[float]]] = {}
    for folder_times in measured:
        if folder_times.folder.endswith("small sessions"):
            for timing in folder_times.timings:
                label = timing.what + (" (cold)" if folder_times.cache == "cold" else "")
                sizes, times = lines.setdefault(label, ([], []))
                sizes.append(folder_times.sessions)
                times.append(timing.seconds * 1e3)
    figure, axes = plt.subplots(figsize=(9, 6))
    for label, (sizes, times) in lines.items():
        style = "--" if "sqlite3 alone" in label else ":" if "cold" in label else "-"
        axes.loglog(sizes, times, style, marker="o", markersize=3, label=label)
    axes.set_xlabel("sessions in the folder")
    axes.set_ylabel("milliseconds")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize=7, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description="Measure listings of ever more sessions, and of larger ones.",
    )
    parser.add_argument(
        "--largest", type=int, default=SIZES[-1], help="leave out folders of more sessions"
    )
    parser.add_argument("--into", type=Path, help="write the figures and a plot into this folder")
    parser.add_argument(
        "--directory", type=Path, help="make the sessions in here, which decides the disk"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
