"""The command line on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from statebackend import StateBackend
from statebackend.cli.transcript import MOST_CHARACTERS
from tests.cli import samples

Terminal = Callable[..., str]
_CODE = re.compile(r"\x1b\[[0-9;]*m")


def _chunks(master: int) -> Iterator[bytes]:
    """Read the output until the last program on the terminal has ended."""
    with suppress(OSError):  # Linux raises it when the other side has closed
        while chunk := os.read(master, 65536):
            yield chunk


@pytest.fixture
def terminal(state_home: object) -> Terminal:
    """Return a function that runs the command line on a terminal with *columns* columns."""

    def run(*arguments: str, columns: int, **environment: str) -> str:
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        process = subprocess.Popen(
            [sys.executable, "-m", "statebackend", *arguments],
            env={**inherited, "TERM": "xterm-256color", **environment},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        shown = b"".join(_chunks(master)).decode().replace("\r\n", "\n")
        os.close(master)
        process.wait()
        return shown

    return run


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_id_is_ever_cut(terminal: Terminal, backend: StateBackend, columns: int) -> None:
    """However narrow the terminal, ids, status, time and cost are whole."""
    session_id = samples.full(backend, profile="a rather long name of a profile " * 3)
    row = _CODE.sub("", terminal("list", columns=columns))
    assert session_id in row
    assert "completed" in row
    assert "$0.2500 + 1 unpriced" in row


def test_colours(terminal: Terminal, backend: StateBackend) -> None:
    """A terminal gets colours, and none with NO_COLOR."""
    samples.full(backend)
    assert "\x1b[32mcompleted" in terminal("list", columns=200)
    assert not re.search(r"\x1b\[3\d", terminal("list", columns=200, NO_COLOR="1"))


def test_the_lines_of_events_stand_out(terminal: Terminal, backend: StateBackend) -> None:
    """In a transcript the line of an event is bold, and plain with NO_COLOR."""
    session_id = samples.full(backend)
    assert "\x1b[1m[1] message" in terminal("replay", session_id, columns=80)
    assert "\x1b" not in terminal("replay", session_id, columns=80, NO_COLOR="1")


def test_stored_text_is_no_markup(terminal: Terminal, backend: StateBackend) -> None:
    """Neither control sequences nor the markup of the library that draws the table work."""
    samples.empty(backend, profile="\x1b[31m[red]:smile:[/red]")
    shown = terminal("list", columns=200)
    assert "\\x1b[31m[red]:smile:[/red]" in _CODE.sub("", shown)
    assert "\x1b[31m" not in shown


def test_a_long_text_is_cut(terminal: Terminal, backend: StateBackend) -> None:
    """A terminal shows the beginning of a long event and the number of other characters."""
    with backend.create(profile="p") as session:
        session.append_prompt(payload=b"x" * (MOST_CHARACTERS + 5), schema_version="1")
    shown = terminal("show", session.session_id, "--events", columns=200)
    assert "... 5 more characters: use --json, replay, or a pipe" in shown
    assert "more characters" not in terminal("replay", session.session_id, columns=200)


@pytest.mark.parametrize("command", ["tree", "cost", "plan --rules", "producers", "doctor"])
def test_the_other_commands(terminal: Terminal, backend: StateBackend, command: str) -> None:
    """Every table can be drawn."""
    samples.full(backend)
    shown = terminal(*command.split(), columns=80)
    assert len(shown.splitlines()) >= 2
    assert "Traceback" not in shown


@pytest.mark.parametrize("name", ["dumb", "unknown"])
def test_a_terminal_without_escapes_gets_the_plain_table(
    terminal: Terminal, backend: StateBackend, name: str
) -> None:
    """Nothing of a row is cut, however narrow it says it is."""
    session_id = samples.full(backend, profile="a rather long name of a profile " * 3)
    shown = terminal("list", columns=80, TERM=name)
    assert "\x1b" not in shown
    (row,) = [line for line in shown.splitlines() if session_id in line]
    assert "$" in row
