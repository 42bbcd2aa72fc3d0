"""``python -m tests.damage``: damage sessions in many ways, open them, and print what came of it.

Exit status 1 when there is a finding; the files of such a case are kept. ``--seed`` and ``--case``
(and ``--bases``, as it was) run a case again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.damage.bases import PLANS
from tests.damage.soak import Case, Soak

LEAST_SHARE = 0.95
"""Of the cases that were recovered, so many keep every row whose bytes the damage left alone."""

_TOLD = 8


def table(cases: Iterable[Case]) -> list[str]:
    """Return the tally by kind, in lines."""
    by_kind: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_kind[case.kind].append(case)
    head = (
        f"{'kind':26} {'cases':>6} {'recov.':>6} {'sound':>6} {'refus.':>6} {'unread.':>7} "
        f"{'rows there':>11} {'saved':>9} {'lost':>8} {'altered':>8} {'seconds':>8}"
    )
    lines = [head, "-" * len(head)]
    everything = [case for group in by_kind.values() for case in group]
    for kind, group in [*sorted(by_kind.items()), ("all", everything)]:
        ends = [case.ending for case in group]
        there, saved = sum(case.there for case in group), sum(case.saved for case in group)
        altered = sum(case.altered for case in group)
        lines.append(
            f"{kind:26} {len(group):6} {ends.count('recovered'):6} {ends.count('sound'):6} "
            f"{ends.count('refused'):6} {ends.count('unreadable'):7} {there:11,} {saved:9,} "
            f"{there - saved - altered:8,} {altered:8,} {sum(c.seconds for c in group):8.2f}"
        )
    return lines


def share(cases: Iterable[Case]) -> float:
    """Return the share of the cases that keep every row whose bytes the damage left alone."""
    opened = [case for case in cases if case.ending in {"recovered", "sound"}]
    return sum(not case.left_out for case in opened) / len(opened) if opened else 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run the cases that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("cases", nargs="?", type=int, default=2_000, help="how many (2000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bases", type=int, help="damage only so many different sessions")
    parser.add_argument("--case", type=int, help="run only this one")
    parser.add_argument("--keep", type=Path, help="folder for the files of cases with findings")
    given = parser.parse_args(arguments)
    keep = given.keep or Path(tempfile.gettempdir()) / "statebackend-damage"
    done: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="damage-") as name:
        soak = Soak(Path(name), keep, given.seed, PLANS[: given.bases])
        running = soak.cases(given.cases) if given.case is None else [soak.case(given.case)]
        for case in running:
            done.append(case)
            for finding in case.findings[:_TOLD]:
                _say(f"seed {given.seed} case {case.number} ({case.kind}): {finding}")
            if (more := len(case.findings) - _TOLD) > 0:
                _say(f"seed {given.seed} case {case.number} ({case.kind}): and {more} more")
    _say("\n".join(["", *table(done)]))
    return _verdict(done, keep)


def _verdict(done: list[Case], keep: Path) -> int:
    kept = share(done)
    short = [case for case in done if case.left_out]
    for case in short[:40]:
        _say(
            f"case {case.number} ({case.kind}): {len(case.left_out)} whole rows left out, "
            f"first {case.left_out[0]}"
        )
    found = [case for case in done if case.findings]
    _say(f"\n{kept:.1%} of the opened cases keep every row whose bytes the damage left alone")
    _say(f"{len(done)} cases, {len(found)} with findings" + (f", kept in {keep}" if found else ""))
    return 1 if found or kept < LEAST_SHARE else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
