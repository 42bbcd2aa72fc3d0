"""What every test may ask for: a backend of its own, real transcripts, a clean child process."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from statebackend import StateBackend

ROOT = Path(__file__).resolve().parent.parent
# Real transcripts, too large and too many to be part of the repository.
TRANSCRIPTS = ROOT.parent / "shared" / "data" / "transcripts"
_DEMAND = re.compile(r"SB-\d\d")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what it runs in the background, and every child of it would be deaf, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def _state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep every test, and what it starts, away from what is of whoever runs the suite."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache-home")))
        yield


@pytest.fixture
def backend(tmp_path: Path) -> StateBackend:
    """Return a backend on an empty folder of the test's own."""
    return StateBackend(tmp_path / "sessions")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real transcripts, or skip where it is not at hand."""
    if not TRANSCRIPTS.is_dir():
        pytest.skip("the real transcripts do not lie beside this checkout")
    return TRANSCRIPTS


@pytest.fixture(scope="session")
def child_environment() -> dict[str, str]:
    """Return the environment for a child process whose imports are looked at.

    Coverage would start in it and load sqlite3 before the first line of the program.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a conformance mark that names no demand: `-m conformance` must mean something."""
    for item in items:
        for mark in item.iter_markers("conformance"):
            if not mark.args or not all(_DEMAND.fullmatch(str(demand)) for demand in mark.args):
                raise pytest.UsageError(f"{item.nodeid}: conformance{mark.args}: name SB-nn")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail, in CI and with the real transcripts at hand, what wanted them and yet skipped."""
    report = yield
    wanted = "shared_data" in getattr(item, "fixturenames", ())
    must_run = os.environ.get("CI", "").lower() in {"1", "true"} and TRANSCRIPTS.is_dir()
    if report.skipped and not hasattr(report, "wasxfail") and wanted and must_run:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI although the data is there: {report.longrepr}"
    return report
