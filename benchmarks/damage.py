"""Damage: the cost of the check at open, and of a salvage."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from benchmarks import bare
from benchmarks.lab import Lab
from benchmarks.measure import Figure, interleave, must_equal, ratio
from benchmarks.memory import peak_bytes
from benchmarks.processes import run_python
from benchmarks.samples import mixed, new_session
from statebackend import StateBackend
from statebackend.recovery.salvage.salvage import salvage

_PAYLOAD_REPEATS = 4  # of 500 bytes
_PAGE = 4096
_MEGABYTE = 1e6
_DAMAGED_SHARE = 50


def check(lab: Lab) -> Iterator[Figure]:
    """Open a large undamaged session for writing and close it, against the bare integrity check."""
    events, rounds = lab.size(50_000, 500), lab.size(9, 3)
    with lab.folder() as folder:
        backend = StateBackend(folder)
        session_id = _filled(backend, events)
        path = folder / f"{session_id}.sqlite"
        size = f"{path.stat().st_size / _MEGABYTE:.0f} MB"

        def ours() -> None:
            backend.open(session_id).close()

        def plain() -> None:
            with closing(bare.connect(path)) as driver:
                bare.check(driver)

        ours()
        plain()
        warm = interleave(ours, plain, rounds=rounds)
        yield ratio(f"open a sound session of {size}, warm", warm, target=1.15, unit="ms")
        if not hasattr(os, "posix_fadvise"):
            yield Figure(f"open a sound session of {size}, cold", note="not measured here")
            return

        def ours_cold() -> None:
            _drop_cache(path)
            ours()

        def plain_cold() -> None:
            _drop_cache(path)
            plain()

        cold = interleave(ours_cold, plain_cold, rounds=lab.size(5, 2))
        yield ratio(
            f"open a sound session of {size}, cold",
            cold,
            target=None if lab.smoke else 0.5,
            unit="ms",
        )


def saving(lab: Lab) -> Iterator[Figure]:
    """Salvage a large session with 2 % of its pages zeroed, against the same one undamaged."""
    events, rounds = lab.size(50_000, 500), lab.size(3, 2)
    with lab.folder() as folder:
        session_id = _filled(StateBackend(folder), events)
        sound = folder / f"{session_id}.sqlite"
        damaged = folder / "damaged" / sound.name
        damaged.parent.mkdir()
        shutil.copyfile(sound, damaged)
        _zero_pages(damaged)
        must_equal("saving all", _kept(sound, folder), events)
        times = interleave(
            lambda: _kept(damaged, folder), lambda: _kept(sound, folder), rounds=rounds
        )
        size = f"{sound.stat().st_size / _MEGABYTE:.0f} MB"
        yield ratio(f"save a session of {size}, 2 % zeroed", times, target=3.0, unit="ms")
        grown = int(run_python("-m", "benchmarks.damage", str(damaged), str(folder))) / _MEGABYTE
        yield Figure(
            "peak memory of that above start", f"{grown:.0f} MB", "", grown, grown, grown, 150, "MB"
        )


def _filled(backend: StateBackend, events: int) -> str:
    session_id = new_session(backend, [])
    with closing(bare.connect(backend.directory / f"{session_id}.sqlite")) as driver:
        driver.execute("BEGIN")
        for sequence, sample in enumerate(islice(mixed(), events), start=1):
            payload = sample.payload * _PAYLOAD_REPEATS
            driver.execute(bare.INSERT_EVENT, (*sample.event_row[:-1], payload))
            if sample.cost_row:
                driver.execute(bare.INSERT_COST, (sequence, *sample.cost_row))
        driver.execute("COMMIT")
    return session_id


def _drop_cache(path: Path) -> None:
    """Drop the file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _zero_pages(path: Path) -> None:
    pages = path.stat().st_size // _PAGE
    with path.open("r+b") as file:
        for page in random.Random(0).sample(range(1, pages), pages // _DAMAGED_SHARE):
            file.seek(page * _PAGE)
            file.write(bytes(_PAGE))


def _kept(path: Path, folder: Path) -> int:
    """Salvage *path* and return the number of saved events."""
    target, aside = folder / "saved", folder / "aside"
    for file in (target, aside):
        file.unlink(missing_ok=True)
    return salvage(path, target, aside, path.stem).tables[0].kept


def main() -> None:
    """Salvage a session in this process, and print by how many bytes its memory grew."""
    path, folder = map(Path, sys.argv[1:])
    before = peak_bytes()
    _kept(path, folder)
    print(peak_bytes() - before)


if __name__ == "__main__":
    main()
