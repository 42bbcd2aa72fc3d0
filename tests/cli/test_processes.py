"""The command line as real processes: pipes, locales, closed streams, errors, what is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from statebackend import SessionStatus, StateBackend
from statebackend.cli.group import COMMANDS
from tests.cli import samples
from tests.cli.samples import MODEL, Spawn

Shell = Callable[[str], "subprocess.CompletedProcess[bytes]"]
LONG = "x" * 5_000_000


@pytest.fixture
def long_session(backend: StateBackend) -> str:
    """Make a completed session of 5 MB in one event, 2,000 small ones, and a plan."""
    with backend.create(profile="p") as session:
        with session.batch() as batch:
            for number in range(2000):
                batch.append_prompt(payload=f"event {number}".encode(), schema_version="1")
        session.append_prompt(payload=LONG.encode(), schema_version="1")
        session.append_plan(producer=MODEL, payload=b"{}", items=[samples.item("ask")])
        session.set_status(SessionStatus.COMPLETED)
        return str(session.session_id)


READS = {
    "list": "list --json",
    "list (table)": "list",
    "show": "show {id} --json",
    "show (text)": "show {id}",
    "events": "show {id} --json --events",
    "events (text)": "show {id} --events",
    "follow": "show {id} --follow",
    "tree": "tree --json",
    "cost": "cost --json",
    "plan": "plan {id}",
    "replay": "replay {id}",
    "producers": "producers --json",
    "doctor": "doctor --json",
    "help": "--help",
}


@pytest.mark.parametrize("command", READS.values(), ids=READS.keys())
def test_a_reader_that_goes_away(shell: Shell, long_session: str, command: str) -> None:
    """`| head -c 10` ends every command without a word (issue 2, "Shown by")."""
    line = command.format(id=long_session)
    result = shell(f"$SB {line} | head -c 10 | wc -c; exit ${{PIPESTATUS[0]}}")
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.parametrize("name", ["list", "list (table)", "events", "replay", "help"])
def test_a_reader_that_never_was(shell: Shell, long_session: str, name: str) -> None:
    """A pipe whose reader has ended before anything is written ends a command as quietly."""
    line = READS[name].format(id=long_session)
    result = shell(f"(sleep 0.5; $SB {line}) | true; exit ${{PIPESTATUS[0]}}")
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.slow
def test_json_is_whole_through_a_pipe(shell: Shell, backend: StateBackend) -> None:
    """5 MB arrive, 20 times out of 20 (field report 72)."""
    with backend.create(profile="p") as session:
        session.append_prompt(payload=LONG.encode(), schema_version="1")
    for _ in range(20):
        result = shell(f"$SB show {session.session_id} --json --events | cat")
        assert json.loads(result.stdout)["payload"] == LONG


def test_json_is_whole_through_a_slow_pipe(shell: Shell, long_session: str) -> None:
    """A reader that is slow to start misses nothing."""
    result = shell(f"$SB show {long_session} --json --events | (sleep 0.5; wc -l)")
    assert int(result.stdout) == 2002


@pytest.mark.parametrize("name", ["list", "list (table)", "show", "events (text)", "help"])
def test_closed_streams(shell: Shell, backend: StateBackend, name: str) -> None:
    """Without stdout, or without stderr too, nothing fails and nothing is written."""
    line = READS[name].format(id=samples.full(backend))
    for closed in (">&-", ">&- 2>&-"):
        result = shell(f"$SB {line} {closed}")
        assert (result.returncode, result.stderr) == (0, b"")


def test_a_full_disk_is_told(shell: Shell, backend: StateBackend) -> None:
    """A result that could not be written is exit code 5 and one line, not silence."""
    samples.full(backend)
    result = shell("$SB list --json > /dev/full")
    assert result.returncode == 5
    assert result.stderr.startswith(b"statebackend: the result could not be written: ")
    assert result.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "command", [*READS.values(), "plan --rules", "import {file}", "reap", "reap --yes"]
)
def test_nothing_reads_stdin(
    backend: StateBackend, spawn: Spawn, tmp_path: Path, command: str
) -> None:
    """When stdin is an open pipe without data, every command still ends (report 74)."""
    file = tmp_path / "x.jsonl"
    file.write_text("{}\n")
    line = command.format(id=samples.full(backend), file=file)
    process = spawn(*line.split(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    # Field report 74 asks for 5 s, which every command keeps tenfold; a busy machine may not.
    assert process.wait(timeout=60) in (0, 1)


@pytest.mark.parametrize(
    "locale",
    [
        {"LANG": "C", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
)
@pytest.mark.parametrize("arguments", ["show {id} --events", "list"])
def test_printing_never_fails(
    backend: StateBackend, spawn: Spawn, locale: dict[str, str], arguments: str
) -> None:
    """Whatever is stored is shown under any locale (field report 56)."""
    with backend.create(profile="naïve 漢字 \x85") as session:
        session.append_prompt(payload='"\\ud83d" é 漢字'.encode(), schema_version="1")
        session.append_prompt(payload=b'"\\ud83d"', schema_version="1")
        session.append_prompt(payload=b"\xff\xfe\x00", schema_version="1")
    line = arguments.format(id=session.session_id)
    process = spawn(*line.split(), extra_env=locale)
    shown, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, b"")
    assert b"\\u6f22" in shown or "漢".encode() in shown


def test_an_error_line_is_safe(spawn: Spawn) -> None:
    """An argument with control characters or invalid text is escaped in the error."""
    process = spawn("show", "\x1b[2J\n\udcff", extra_env={"PYTHONIOENCODING": "ascii"})
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 3
    assert errors.startswith(b"statebackend: no session \\x1b[2J\\x0a\\udcff in ")
    assert errors.count(b"\n") == 1


def test_debug_adds_the_traceback(spawn: Spawn) -> None:
    """Before and after the command's name --debug shows where an error comes from."""
    for arguments in (("--debug", "show", "01KX"), ("show", "01KX", "--debug")):
        _, errors = spawn(*arguments).communicate(timeout=30)
        line, *trace = errors.decode().splitlines()
        assert line.startswith("statebackend: no session 01KX")
        assert trace[0] == "Traceback (most recent call last):"
        assert trace[-1].startswith("statebackend.errors.SessionNotFound: ")


def test_the_state_folder(backend: StateBackend, spawn: Spawn, tmp_path: Path) -> None:
    """Unset, empty and relative values fall back to ~/.local/state (field reports 50, 65)."""
    home = tmp_path / "a home"
    elsewhere = StateBackend(home / ".local" / "state" / "agent" / "sessions")
    session_id = samples.empty(elsewhere)
    for value in ("", "relative/path"):
        process = spawn("list", "--json", extra_env={"XDG_STATE_HOME": value, "HOME": str(home)})
        rows = json.loads(process.communicate(timeout=30)[0])
        assert [row["session_id"] for row in rows] == [session_id]
    slashed = spawn("list", extra_env={"XDG_STATE_HOME": f"{home}/.local/state/"})
    assert session_id.encode() in slashed.communicate(timeout=30)[0]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["list"], ["list", "--json"], ["list", "--help"], ["doctor"]]
)
def test_what_is_not_loaded(
    backend: StateBackend, child_environment: dict[str, str], arguments: list[str]
) -> None:
    """Help, list and doctor load neither SQLAlchemy nor Alembic nor Rich."""
    samples.full(backend)
    program = (
        "import sys\n"
        "from statebackend.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'sqlalchemy', 'alembic', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**child_environment, "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def test_importing_the_package_loads_no_click(child_environment: dict[str, str]) -> None:
    """A host that never mounts the group does not pay for it, and `sessions` is a group."""
    program = (
        "import sys, statebackend.cli\n"
        "assert 'click' not in sys.modules\n"
        "assert statebackend.cli.sessions.name == 'sessions'\n"
        "assert 'click' in sys.modules\n"
        "assert not hasattr(statebackend.cli, 'nothing')\n"
    )
    subprocess.run([sys.executable, "-c", program], env=child_environment, check=True)


def test_completion(backend: StateBackend, spawn: Spawn) -> None:
    """The shell completes commands and ids."""
    session_id = samples.full(backend)

    def completed(words: str, number: int) -> bytes:
        environment = {
            "_STATEBACKEND_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(number),
        }
        return bytes(spawn(extra_env=environment).communicate(timeout=30)[0])

    assert completed("statebackend sho", 1) == b"plain,show\n"
    assert completed("statebackend show 0", 2) == f"plain,{session_id}\n".encode()
    assert set(COMMANDS) <= {
        line.partition(",")[2] for line in completed("statebackend ", 1).decode().splitlines()
    }
