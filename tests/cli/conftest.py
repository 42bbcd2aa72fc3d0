"""A new state folder for each test; the command line in this process and in child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from statebackend import StateBackend
from statebackend.cli import sessions
from tests.cli.samples import Cli, Spawn

COMMAND = [sys.executable, "-m", "statebackend"]


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point this process and its children to an empty state folder."""
    home = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    monkeypatch.delenv("NO_COLOR", raising=False)
    return home


@pytest.fixture
def backend(state_home: Path) -> StateBackend:
    """Return the store that the command line uses."""
    return StateBackend()


@pytest.fixture
def cli(state_home: Path) -> Cli:
    """Return a function that runs the command line in this process."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(sessions, arguments, prog_name="statebackend")

    return run


@pytest.fixture
def spawn(state_home: Path) -> Iterator[Spawn]:
    """Return a function that starts the command line as a process; all are killed in the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **_environment(options)}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
            [*COMMAND, *arguments], env=environment, **streams
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _environment(options: dict[str, object]) -> dict[str, str]:
    extra = options.pop("extra_env", {})
    assert isinstance(extra, dict)
    return extra


RunShell = Callable[[str], "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def shell(state_home: Path) -> RunShell:
    """Return a function that runs a line of bash, in which ``$SB`` is the command line."""

    def run(line: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["/bin/bash", "-c", line],
            env={**os.environ, "SB": " ".join(COMMAND)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )

    return run
