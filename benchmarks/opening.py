"""Opening: a small session is opened, gets one message, and is closed, over and over."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from benchmarks import bare
from benchmarks.lab import Lab
from benchmarks.measure import Figure, interleave, must_equal, ratio
from benchmarks.samples import Sample, append_each, messages, new_session, stored_rows
from statebackend import StateBackend

_EVENTS_BEFORE = 20


def visit(lab: Lab) -> Iterator[Figure]:
    """Open, append and close, the integrity check included on both sides."""
    count, rounds = lab.size(10, 3), lab.size(31, 5)
    stream = messages()
    with lab.folder() as folder:
        backend = StateBackend(folder / "ours")
        session_id = new_session(backend, list(islice(stream, _EVENTS_BEFORE)))
        ours_path = backend.directory / f"{session_id}.sqlite"
        bare_path = folder / "bare.sqlite"
        shutil.copyfile(ours_path, bare_path)
        prepared = [list(islice(stream, count)) for _ in range(rounds + 1)]
        for_ours, for_bare = iter(prepared), iter(prepared)

        def ours() -> None:
            _visit_ours(backend, session_id, next(for_ours))

        def plain() -> None:
            _visit_bare(bare_path, next(for_bare))

        ours()
        plain()
        must_equal("open + append + close", stored_rows(ours_path), stored_rows(bare_path))
        times = interleave(ours, plain, rounds=rounds)
        must_equal("open + append + close", stored_rows(ours_path), stored_rows(bare_path))
    yield ratio("open + append + close, small file", times, target=2.0, items=count, unit="ms")


def _visit_ours(backend: StateBackend, session_id: str, samples: list[Sample]) -> None:
    for sample in samples:
        with backend.open(session_id) as session:
            append_each(session, [sample])


def _visit_bare(path: Path, samples: list[Sample]) -> None:
    for sample in samples:
        with closing(bare.connect(path)) as driver:
            bare.check(driver)
            bare.append_first(driver, [sample])
