"""``python -m tests.damage``: damage sessions in many ways, open them, and print the result.

Exit status 1 when there is a finding; the files of such a case are kept. ``--seed`` and ``--case``
(and the same ``--bases``) run a case again. ``--shares`` measures what each pass saves.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.damage import shares
from tests.damage.bases import PLANS
from tests.damage.soak import Case, Soak

LEAST_SHARE = 0.95
"""The least share of recovered cases that keep every row whose bytes the damage left alone."""

_MAX_FINDINGS = 8
_MAX_CASES = 40


def table(cases: Iterable[Case]) -> list[str]:
    """Return the counts by kind, in lines."""
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
    """Run the cases that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("cases", nargs="?", type=int, default=2_000, help="how many (2000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bases", type=int, help="how many different sessions to damage")
    parser.add_argument("--case", type=int, help="run only this one")
    parser.add_argument("--keep", type=Path, help="folder for the files of cases with findings")
    parser.add_argument("--shares", action="store_true", help="salvage without each pass in turn")
    parser.add_argument("--without", choices=shares.NAMES, help="leave out a pass of the salvage")
    given = parser.parse_args(arguments)
    keep = given.keep or Path(tempfile.gettempdir()) / "statebackend-damage"
    done: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="damage-") as name:
        soak = Soak(Path(name), keep, given.seed, PLANS[: given.bases])
        if given.shares:
            _print("\n".join(shares.table(shares.measure(soak, given.cases))))
            return 0
        running = soak.cases(given.cases) if given.case is None else [soak.case(given.case)]
        with shares.without(given.without):
            for case in running:
                done.append(case)
                _print_findings(given.seed, case)
    _print("\n".join(["", *table(done)]))
    return _summarize(done, keep)


def _print_findings(seed: int, case: Case) -> None:
    for finding in case.findings[:_MAX_FINDINGS]:
        _print(f"seed {seed} case {case.number} ({case.kind}): {finding}")
    if (more := len(case.findings) - _MAX_FINDINGS) > 0:
        _print(f"seed {seed} case {case.number} ({case.kind}): and {more} more")


def _summarize(done: list[Case], keep: Path) -> int:
    """Print the totals; return the exit status."""
    kept = share(done)
    short = [case for case in done if case.left_out]
    for case in short[:_MAX_CASES]:
        _print(
            f"case {case.number} ({case.kind}): {len(case.left_out)} whole rows left out, "
            f"first {case.left_out[0]}"
        )
    failed = [case for case in done if case.findings]
    _print(f"\n{kept:.1%} of the opened cases keep every row whose bytes the damage left alone")
    _print(
        f"{len(done)} cases, {len(failed)} with findings" + (f", kept in {keep}" if failed else "")
    )
    return 1 if failed or kept < LEAST_SHARE else 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
