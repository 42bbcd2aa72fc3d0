"""Listings under pytest-benchmark, for a profile or a comparison between two commits.

Run by ``pytest benchmarks/test_scan.py --benchmark-enable -n 0``; the figures that the
documents quote are those of ``python -m benchmarks`` and ``python -m benchmarks.scale``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from statebackend import StateBackend
from statebackend.catalogue import Catalogue
from statebackend.testing import scan_times

SIZES = (100, 1_000)


@pytest.fixture(params=SIZES, scope="module")
def directory(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Give a folder with *count* sessions."""
    with scan_times.made_sessions(request.param) as made:
        yield made


def test_newest(benchmark: BenchmarkFixture, directory: Path) -> None:
    """The newest 20."""
    backend = StateBackend(directory)
    assert len(benchmark(lambda: backend.list(limit=20))) == 20


def test_scan(benchmark: BenchmarkFixture, directory: Path) -> None:
    """All, from their files."""
    backend = StateBackend(directory, catalogue=False)
    assert len(benchmark(lambda: list(backend.scan()))) in SIZES


def test_bare(benchmark: BenchmarkFixture, directory: Path) -> None:
    """All, by sqlite3 alone."""
    assert len(benchmark(lambda: scan_times.bare(directory))) in SIZES


def test_catalogue(benchmark: BenchmarkFixture, directory: Path) -> None:
    """All, from the catalogue."""
    backend = StateBackend(directory)
    Catalogue(directory).refresh()
    assert len(benchmark(lambda: backend.list(limit=None, roots=True))) in SIZES
