"""``python -m tests.soak_load SECONDS``: writers that are killed and resume, among readers.

Four processes write a session each, by eight threads; four list, tail, read and replay; one is
killed every now and then, and started again. At the end every event that was acknowledged must be
there once, in its thread's order, byte for byte. Exit status 1 when there is a finding; the folder
is then kept.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

from statebackend import StateBackend
from statebackend.verifying import verify
from tests.crash import loaded
from tests.crash.processes import Child
from tests.crash.samples import litter, new_session, session_file

WRITERS = 4
READERS = 4


@dataclass
class Outcome:
    """What came of a run: figures, and whatever was wrong (at most a few of a kind are told)."""

    seconds: float = 0.0
    kills: int = 0
    append_us: list[float] = field(default_factory=list)
    list_us: list[float] = field(default_factory=list)
    seen: int = 0
    late: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[str]:
        """Return all that was wrong."""
        return [*self.lost, *self.doubled, *self.out_of_order, *self.altered, *self.errors]


class Soak:
    """One run in a *folder* of its own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.backend = StateBackend(folder / "sessions")
        self.outcome = Outcome()
        self._folder = folder
        self._chance = random.Random(seed)
        self.sessions = [new_session(self.backend) for _ in range(WRITERS)]
        self._writers: list[Child] = []

    def run(self, seconds: float) -> Outcome:
        """Run so many seconds, then look at what is stored."""
        newest_first = ",".join(sorted(self.sessions, reverse=True))
        readers: list[Child] = []
        try:
            self._writers = [self._start(number) for number in range(WRITERS)]
            readers.extend(
                Child(loaded.read, self.backend.directory, newest_first, number)
                for number in range(READERS)
            )
            began = time.monotonic()
            while (left := began + seconds - time.monotonic()) > 0:
                time.sleep(min(left, self._chance.uniform(0.02, 1.2)))
                self._kill(self._chance.randrange(WRITERS))
            self._stop_writers()
            self.outcome.seconds = time.monotonic() - began
            for reader in readers:
                self._hear(reader)
        finally:
            for child in (*self._writers, *readers):
                child.close()
        self.judge()
        return self.outcome

    def judge(self) -> None:
        """Compare what was noted with what is stored."""
        for number, session_id in enumerate(self.sessions):
            self.backend.open(session_id).close()  # a reader that was last has left the log
            self._judge(number, session_id)
        if left_over := litter(self.backend):
            self.outcome.errors.append(f"left behind: {left_over}")

    def _start(self, number: int) -> Child:
        return Child(loaded.write, self.backend.directory, self.sessions[number], number)

    def _kill(self, number: int) -> None:
        """Kill a writer, wherever it is, and let another resume its session."""
        writer = self._writers[number]
        writer.kill()
        self.outcome.kills += 1
        self.outcome.errors += writer.rest()  # what it has said is what went wrong
        writer.close()
        self._writers[number] = self._start(number)

    def _stop_writers(self) -> None:
        for writer in self._writers:
            writer.say("stop")
        for number, writer in enumerate(self._writers):
            said = writer.rest()
            self.outcome.errors += [line for line in said if line != "ended"]
            if "ended" not in said:
                self.outcome.errors.append(f"writer {number} ended with {writer.wait()}")

    def _hear(self, reader: Child) -> None:
        told = reader.ask("stop")
        self.outcome.errors += told["errors"]
        self.outcome.list_us += [spent * 1e6 for spent in told["listed"]]
        self.outcome.seen += told["seen"]

    def _judge(self, number: int, session_id: str) -> None:
        outcome, stored = self.outcome, defaultdict[str, list[tuple[str, str]]](list)
        with self.backend.read(session_id) as view:
            for event in view.events():
                digest = hashlib.sha256(event.payload).hexdigest()
                stored[event.id.rpartition("-")[0]].append((event.id, digest))
            counts = view.counts()
        for thread in range(loaded.THREADS):
            side = loaded.side_file(self._folder, number, thread)
            noted = loaded.acknowledged(side)
            outcome.late += sum(spent == "late" for *_, spent in noted)
            outcome.append_us += [float(spent) for *_, spent in noted if spent != "late"]
            expected = [(event_id, digest) for event_id, digest, _ in noted]
            self._compare(expected, stored.pop(f"{number}-{thread}", []))
        rows = {"message": counts.cost_ledger, "plan": counts.plan_items}
        if counts.by_kind != {kind: count for kind, count in rows.items() if count}:
            outcome.errors.append(f"{session_id}: {counts} is not one row an event")
        outcome.errors += [f"events of nobody: {name}" for name in stored]
        outcome.errors += [
            f"{session_id}: {finding.text}"
            for finding in verify.verify_file(session_file(self.backend, session_id))
        ]

    def _compare(self, expected: Sequence[tuple[str, str]], found: list[tuple[str, str]]) -> None:
        """Compare what one thread was told with what is stored of it, in the stored order."""
        outcome, ids = self.outcome, [event_id for event_id, _ in found]
        digests = dict(found)
        for event_id, digest in expected:
            if event_id not in digests:
                outcome.lost.append(f"lost: {event_id}")
            elif digests[event_id] != digest:
                outcome.altered.append(f"altered: {event_id}")
        outcome.doubled += [f"doubled: {one}" for one, count in Counter(ids).items() if count > 1]
        # One more may be there, which was stored but not acknowledged before the end.
        wanted = [event_id for event_id, _ in expected]
        if ids[: len(wanted)] != wanted and not outcome.lost:
            outcome.out_of_order.append(f"out of order: {ids[:5]} … {len(ids)} of {len(wanted)}")
        if len(ids) > len(wanted) + 1:
            outcome.errors.append(f"{len(ids) - len(wanted)} events that nobody acknowledged")


def report(outcome: Outcome) -> list[str]:
    """Return the figures, in lines."""
    count = len(outcome.append_us) + outcome.late
    rate = count / outcome.seconds
    wrong = ("lost", "doubled", "out_of_order", "altered", "errors")
    counts = [f"{len(getattr(outcome, kind))} {kind.replace('_', ' ')}" for kind in wrong]
    return [
        f"{count:,} events acknowledged in {outcome.seconds:.0f} s, {rate:,.0f} events/s",
        f"  by {WRITERS} x {loaded.THREADS} threads that note each in a synced side file",
        f"acknowledged append: {_times(outcome.append_us)}",
        f"list(limit=20):      {_times(outcome.list_us)}",
        f"{outcome.kills} writers killed; {outcome.late} of their events were stored, not noted",
        f"{outcome.seen:,} events seen by {READERS} readers",
        ", ".join(counts),
    ]


def _times(microseconds: list[float]) -> str:
    if len(microseconds) < 2:
        return "none"
    parts = quantiles(microseconds, n=100)
    return f"p50 {parts[49] / 1000:.2f} ms, p99 {parts[98] / 1000:.2f} ms"


def main(arguments: list[str] | None = None) -> int:
    """Run for as long as asked for, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak_load", description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=120.0, help="how long (120)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="an empty folder on the disk to be tested")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="statebackend-load-"))
    outcome = Soak(folder, given.seed).run(given.seconds)
    for line in [*report(outcome), *outcome.findings[:20]]:
        sys.stdout.write(line + "\n")
    if outcome.findings:
        sys.stdout.write(f"kept: {folder}\n")
        return 1
    if given.folder is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
