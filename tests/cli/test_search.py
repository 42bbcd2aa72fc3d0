"""``search``: what it finds, how it is shown, and how it ends."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from statebackend import EventKind, StateBackend
from statebackend.catalogue import Catalogue
from statebackend.cli import output
from tests.cli import samples
from tests.cli.samples import START, TOOL, Cli, parsed


@pytest.fixture
def session_id(backend: StateBackend) -> str:
    """Make a session with a prompt, and a tool's result of the day after."""
    with backend.create("work", started_at=START) as session:
        session.append_prompt(payload=b"list the C++ files", schema_version="1", timestamp=START)
        session.append(
            EventKind.TOOL_RESULT,
            producer=TOOL,
            payload=b'{"stdout": "main.cpp \\u001b[31mthe\\u001b[m files \\u202ebad\\u0007 files"}',
            schema_version="1",
            timestamp=START + timedelta(days=1),
        )
        return str(session.session_id)


def test_json(cli: Cli, session_id: str) -> None:
    """An array of objects; the marks are places in the snippet."""
    (hit,) = parsed(cli("search", "c++", "--json"))
    assert hit == {
        "session_id": session_id,
        "sequence": 1,
        "kind": "message",
        "producer": {"category": "kernel", "name": "user", "version": "1"},
        "timestamp": "2026-03-01T12:00:00.000Z",
        "snippet": "list the C++ files",
        "marks": [[9, 10]],
    }


def test_text(cli: Cli, session_id: str) -> None:
    """A line that says where, and below it the snippet; nothing in it steers the terminal."""
    result = cli("search", "main.cpp", "files")
    assert result.exit_code == 0
    heading, snippet = result.stdout.splitlines()
    assert heading.startswith(f"{session_id} [2] tool_result  tool/shell@1.0.0  2026-03-0")
    assert snippet == "    main.cpp the files \\u202ebad\\x07 files"
    assert result.stderr == ""


def test_matches_are_bold_on_a_terminal(
    cli: Cli, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only there."""
    monkeypatch.setattr(output, "stdout_is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert "the \x1b[1mC\x1b[0m++ files" in cli("search", "c++").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in cli("search", "c++").stdout


@pytest.mark.parametrize(
    "arguments,sequences",
    [
        (("files",), [1, 2]),
        (("--kind", "tool_result", "files"), [2]),
        (("files", "--producer", "shell"), [2]),
        (("files", "--producer", "kernel/user"), [1]),
        (("files", "--profile", "work", "--limit", "1"), [2]),
        (("files", "--profile", "play"), []),
        (("files", "--since", "2026-03-02T00:00Z"), [2]),
        (("files", "--until", "2026-03-02T00:00Z"), [1]),
        (('"the files"',), [2]),
        (("file.rs",), []),
        (("--", "-"), []),
        (("",), []),
        (('"',), []),
    ],
)
def test_options_and_odd_words(
    cli: Cli, session_id: str, arguments: tuple[str, ...], sequences: list[int]
) -> None:
    """Filters narrow the result down, and no word is an error."""
    result = cli("search", "--json", *arguments)
    assert result.exit_code == 0
    assert sorted(hit["sequence"] for hit in parsed(result)) == sequences


def test_a_session_is_named_by_any_end(cli: Cli, backend: StateBackend, session_id: str) -> None:
    """And several may be given; one that is not there ends with exit code 3."""
    other = samples.full(backend)
    both = cli("search", "files", "--session", session_id[:20], "--session", other, "--json")
    assert len(parsed(both)) == 2
    assert parsed(cli("search", "files", "--session", other, "--json")) == []
    assert cli("search", "files", "--session", "01KJMG7C00000000000000000Z").exit_code == 3


def test_nothing_found(cli: Cli, session_id: str) -> None:
    """JSON is [], people get a notice, and the exit code is 0."""
    assert cli("search", "nowhere", "--json").stdout == "[]\n"
    result = cli("search", "nowhere")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "statebackend: nothing found\n"


def test_more_is_said(cli: Cli, session_id: str) -> None:
    """At the limit a notice says so."""
    assert "there may be more" in cli("search", "files", "--limit", "1").stderr


def test_a_partial_result(cli: Cli, backend: StateBackend, session_id: str) -> None:
    """A file left out is named on stderr, and the exit code is 1."""
    samples.damage(backend, samples.full(backend))
    result = cli("search", "files", "--json")
    assert result.exit_code == 1
    assert len(parsed(result)) == 2
    assert "left out: " in result.stderr


@pytest.mark.parametrize(
    "arguments", [(), ("x", "--kind", "odd"), ("x", "--limit", "0"), ("x", "--since", "odd")]
)
def test_wrong_usage(cli: Cli, arguments: tuple[str, ...]) -> None:
    """Ends with exit code 2."""
    assert cli("search", *arguments).exit_code == 2


def test_no_index(
    cli: Cli, session_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none can be kept, one line says so, with exit code 5."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    result = cli("search", "files")
    assert (result.exit_code, result.stdout) == (5, "")
    assert result.stderr.count("\n") == 1


def test_a_bar_on_a_terminal_alone(backend: StateBackend, session_id: str) -> None:
    """Drawn on stderr, if it is a terminal, once the work has taken a while."""
    code = (
        "import sys; from statebackend.cli import main, progress; "
        "progress._SHORT_S = 0; sys.argv[1:] = ['search', 'files', '--json']; main()"
    )
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm"},
            timeout=60,
            check=False,
        )
        assert b"Indexing" in os.read(ours, 100_000)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout.startswith(b"[\n{")
    Catalogue(backend.directory).path.unlink()


def test_a_limit_that_is_none_is_refused_by_name(cli: Cli) -> None:
    """With the range that it may have."""
    for command in (("search", "apple"), ("list",)):
        done = cli(*command, "--limit", "1" + "0" * 20)
        assert done.exit_code == 2
        assert "--limit" in done.stderr
        assert "1<=x<=9223372036854775807" in done.stderr
