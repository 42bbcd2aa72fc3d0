"""What each pass of a salvage saves: measured by leaving it out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from statebackend import SessionDamaged, StateBackend, StateBackendError
from statebackend.recovery.salvage import salvage as salvaging
from tests.damage import bases, plain
from tests.damage.bases import Base
from tests.damage.layout import TABLES, Files
from tests.damage.soak import Soak

NAMES = tuple(dict.fromkeys(step.name for step in salvaging.PASSES))
"""The passes, in the order in which they run first."""


@dataclass(slots=True)
class Rows:
    """Rows after a salvage: those as they were before the damage, and all others."""

    right: int = 0
    wrong: int = 0


@contextmanager
def without(name: str | None) -> Iterator[None]:
    """Leave a pass out of every salvage; none without a name."""
    if name not in (None, *NAMES):
        raise ValueError(name)
    passes = tuple(step for step in salvaging.PASSES if step.name != name)
    with patch.object(salvaging, "PASSES", passes):
        yield


def measure(soak: Soak, count: int) -> dict[str | None, Rows]:
    """Salvage the damaged sessions among *count* cases with all passes (None) and without each."""
    totals = {name: Rows() for name in (None, *NAMES)}
    for number in range(count):
        _kind, base, _foreign, files = soak.draw(number)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sessions" / f"{base.session_id}.sqlite"
            path.parent.mkdir(mode=0o700)
            bases.put(files, path)
            if _is_damaged(path):
                for name, total in totals.items():
                    _salvage(path, base, files, name, total)
    return totals


def table(totals: dict[str | None, Rows]) -> list[str]:
    """Return the shares in lines: what is lost, and what is wrong, without each pass."""
    every = totals[None]
    lines = [
        f"all passes: {every.right:,} rows as they were, {every.wrong:,} others",
        f"{'without':20} {'lost':>9} {'share':>8} {'wrong':>7}",
    ]
    for name in NAMES:
        rows = totals[name]
        lost = every.right - rows.right
        lines.append(
            f"{name:20} {lost:9,} {lost / max(1, every.right):8.3%} {rows.wrong - every.wrong:+7,}"
        )
    return lines


def _is_damaged(path: Path) -> bool:
    with suppress(StateBackendError):
        try:
            StateBackend(path.parent).read(path.stem).close()
        except SessionDamaged:
            return True
    return False


def _salvage(path: Path, base: Base, files: Files, name: str | None, total: Rows) -> None:
    with tempfile.TemporaryDirectory() as folder, without(name):
        target = Path(folder) / "saved.sqlite"
        salvaging.salvage(path, target, Path(folder) / "aside", base.session_id)
        stored = plain.stored(target)
    for kind in TABLES:
        for key, values in stored[kind].items():
            row = base.rows[kind].get(key)
            if row is not None and row.values == values:
                total.right += 1
            else:
                total.wrong += 1
