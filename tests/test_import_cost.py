"""What an import or a command may load. Times are measured by the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from statebackend import StateBackend

HEAVY = {"alembic", "click", "mako", "opentelemetry", "platformdirs", "rich", "sqlalchemy", "ulid"}
ORM = {"alembic", "mako", "sqlalchemy"}


def loaded_by(environment: dict[str, str], *arguments: str) -> set[str]:
    """Run Python with *arguments* and return the top-level modules it loaded."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def test_the_probe_sees_what_is_loaded(child_environment: dict[str, str]) -> None:
    """The measurement itself works: what a program imports is in its answer."""
    loaded = loaded_by(child_environment, "-c", "def f(): import sqlite3\nf()")
    assert "sqlite3" in loaded


def test_import_loads_nothing_heavy(child_environment: dict[str, str]) -> None:
    """`import statebackend` loads none of the packages that this one stands on."""
    loaded = loaded_by(child_environment, "-c", "import statebackend")
    assert "statebackend" in loaded
    assert not loaded & (HEAVY | {"asyncio", "concurrent"})


def test_sessions_load_no_asyncio(tmp_path: Path, child_environment: dict[str, str]) -> None:
    """Who has no event loop pays nothing for its face."""
    code = (
        "from statebackend import Producer, StateBackend\n"
        f"with StateBackend({str(tmp_path)!r}).create('default') as session:\n"
        "    session.append_prompt(payload=b'', schema_version='1')\n"
        "import sys; assert 'statebackend.aio' not in sys.modules"
    )
    assert "sqlalchemy" in loaded_by(child_environment, "-c", code)


def test_light_names_load_nothing_heavy(child_environment: dict[str, str]) -> None:
    """Using errors and values does not pull in what only a session needs."""
    code = "from statebackend import Cost, EventKind, Producer, SessionLocked, SessionStatus"
    assert not loaded_by(child_environment, "-c", code) & HEAVY


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "list",
        "search x",
        "list --json",
        "list --help",
        "tree --json",
        "cost --json",
    ],
)
def test_reading_commands_load_no_orm(
    command: str, tmp_path: Path, child_environment: dict[str, str]
) -> None:
    """What answers from a scan, and every help page, starts without SQLAlchemy and Alembic."""
    with StateBackend(tmp_path / "agent" / "sessions").create(profile="default"):
        pass
    environment = child_environment | {"XDG_STATE_HOME": str(tmp_path)}
    loaded = loaded_by(environment, "-m", "statebackend", *command.split())
    assert "statebackend" in loaded
    assert not loaded & ORM


def test_a_listing_of_the_newest_loads_no_catalogue(
    tmp_path: Path, child_environment: dict[str, str]
) -> None:
    """Who asks for a page of the newest pays nothing for questions about all."""
    code = (
        "from statebackend import StateBackend\n"
        f"StateBackend({str(tmp_path)!r}).list()\n"
        "import sys; assert 'statebackend.catalogue' not in sys.modules"
    )
    assert "sqlite3" in loaded_by(child_environment, "-c", code)


def test_json_output_loads_no_rich(tmp_path: Path, child_environment: dict[str, str]) -> None:
    """JSON for a program pays nothing for tables."""
    environment = child_environment | {"XDG_STATE_HOME": str(tmp_path)}
    assert "rich" not in loaded_by(environment, "-m", "statebackend", "list", "--json")
