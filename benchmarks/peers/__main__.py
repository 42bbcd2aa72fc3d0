"""``python -m benchmarks.peers``: let every peer append in turn, print two tables."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.lab import machine, temporary_folder
from benchmarks.table import lines

BARE = "bare_sqlite"
PEERS = (
    BARE,
    "ours",
    "ours_threads",
    "openai_sqlite",
    "openai_sqlalchemy",
    "langgraph_saver",
    "langgraph_history",
    "eventsourcing_recorder",
    "adk_database",
    "dagster_log",
)
_ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(slots=True)
class Running:
    """A peer in its process, and what it took: the median append and the mean, by round."""

    process: subprocess.Popen[str]
    facts: dict[str, Any] = field(default_factory=dict)
    medians_ns: list[float] = field(default_factory=list)
    means_ns: list[float] = field(default_factory=list)

    def ask(self, word: str) -> Any:
        """Return the answer to one line; :class:`EOFError` when the process has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise EOFError
        return json.loads(line)


def main(arguments: list[str] | None = None) -> int:
    """Measure the peers that are installed and print the tables; return the exit code."""
    options = _parser().parse_args(arguments)
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder(options.directory))
        peers: dict[str, Running] = {}
        for name in PEERS:
            (folder / name).mkdir()
            running = stack.enter_context(_started(name, folder / name))
            try:
                running.facts = running.ask("facts")
                running.ask(str(options.appends))
            except (EOFError, BrokenPipeError):
                print(f"{name}: not measured, its process ended", file=sys.stderr)
            else:
                peers[name] = running
        _measure(list(peers.values()), options.rounds, options.appends)
    bare = peers[BARE]
    print(machine())
    print(f"{options.rounds} rounds of {options.appends} appends each\n")
    print(lines(_times(peers.values(), bare), left=(0,)), end="\n\n")
    print(lines(_guarantees(peers.values()), left=(0, 1, 2, 3, 4)))
    return 0


@contextmanager
def _started(name: str, folder: Path) -> Iterator[Running]:
    with subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.peers.{name}", str(folder)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def _measure(peers: Sequence[Running], rounds: int, appends: int) -> None:
    order = random.Random(0)
    for _ in range(rounds):
        for peer in order.sample(peers, len(peers)):
            answer = peer.ask(str(appends))
            peer.medians_ns.append(median(answer["each"]))
            peer.means_ns.append(answer["all"] / appends)


def _times(peers: Any, bare: Running) -> Iterator[tuple[str, ...]]:
    yield ("one message of 1 kB", "p50", "to bare (min-max)", "appends/s")
    for peer in peers:
        ratios = [
            ours / other for ours, other in zip(peer.medians_ns, bare.medians_ns, strict=True)
        ]
        yield (
            f"{peer.facts['name']} {peer.facts['version']}",
            f"{median(peer.medians_ns) / 1e3:,.0f} µs",
            f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})",
            f"{1e9 / median(peer.means_ns):,.0f}",
        )


def _guarantees(peers: Any) -> Iterator[tuple[str, ...]]:
    yield ("", "journal", "synchronous", "commits", "stores")
    for peer in peers:
        facts = peer.facts
        rows = " + ".join(f"{count:g} {name}" for name, count in facts["rows"].items())
        yield (
            facts["name"],
            facts["journal_mode"],
            facts["synchronous"],
            "each append" if facts["seen"] == 1 else f"{facts['seen']:g} an append",
            f"{facts['stores']} ({rows})",
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description="Compare an append with that of other stores, each with its own defaults.",
    )
    parser.add_argument("--rounds", type=int, default=61, help="rounds in which all append in turn")
    parser.add_argument("--appends", type=int, default=48, help="appends of each in a round")
    parser.add_argument(
        "--directory",
        type=Path,
        help="make the temporary folder in here, which decides the disk that is measured",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
