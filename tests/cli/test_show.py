"""``show``: summary and transcript."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from statebackend import EventKind, Producer, SessionStatus, StateBackend
from statebackend.cli import transcript
from tests.cli import samples
from tests.cli.samples import TOOL, Cli, Spawn, parsed, parsed_lines


def test_the_summary_as_json(cli: Cli, backend: StateBackend) -> None:
    """One object: the row of list, the file, counts, sums and producers."""
    session_id = samples.full(backend)
    shown = parsed(cli("show", session_id, "--json"))
    assert shown["session_id"] == session_id
    assert shown["path"] == str(samples.path_of(backend, session_id))
    assert shown["counts"]["events"] == 5
    assert shown["counts"]["by_kind"] == {"message": 3, "plan": 1, "tool_result": 1}
    assert shown["cost"] == {
        "rows": 2,
        "input_tokens": 200,
        "output_tokens": 20,
        "cache_write_tokens": 6,
        "cache_read_tokens": 10,
        "cost_usd": 0.25,
        "unpriced_rows": 1,
    }
    assert shown["producers"][0] == {
        "category": "kernel",
        "name": "user",
        "version": "1",
        "first_seen_sequence": 1,
    }


def test_the_summary_for_people(cli: Cli, backend: StateBackend) -> None:
    """The summary names counts, producers and the sum with its unpriced turns."""
    shown = cli("show", samples.full(backend)).stdout
    assert "status      completed\n" in shown
    assert "events      5 (3 message, 1 plan, 1 tool_result)\n" in shown
    assert "cost        $0.2500 + 1 unpriced\n" in shown
    assert "producers   kernel/user@1\n            model/anthropic@2.1.0\n" in shown


def test_events_as_json_lines(cli: Cli, backend: StateBackend) -> None:
    """Each line is one event; a payload is text, or base64 where it is not UTF-8."""
    result = cli("show", samples.full(backend), "--events", "--json")
    events = parsed_lines(result)
    assert [event["sequence"] for event in events] == [1, 2, 3, 4, 5]
    assert events[1].keys() == {
        "sequence",
        "id",
        "timestamp",
        "kind",
        "producer",
        "schema_version",
        "payload",
    }
    assert events[1]["payload"] == '{"text": "yes"}'
    assert base64.b64decode(events[4]["payload_base64"]) == b"\xff\xfe\x00"
    assert "payload" not in events[4]


def test_a_session_without_events(cli: Cli, backend: StateBackend) -> None:
    """There is nothing to show, so nothing is written."""
    result = cli("show", samples.empty(backend), "--events", "--json")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_the_selection(cli: Cli, backend: StateBackend) -> None:
    """--kind (repeated), --after and --limit choose events, and imply --events."""
    session_id = samples.full(backend)

    def sequences(*arguments: str) -> list[int]:
        return [e["sequence"] for e in parsed_lines(cli("show", session_id, "--json", *arguments))]

    assert sequences("--kind", "plan", "--kind", "tool_result") == [4, 5]
    assert sequences("--after", "3") == [4, 5]
    assert sequences("--limit", "2") == [1, 2]
    assert sequences("--after", "1", "--kind", "message", "--limit", "1") == [2]
    assert sequences("--after", "5") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--kind", "render"),
        ("--kind", "x' OR 1=1 --"),
        ("--limit", "0"),
        ("--after", "-1"),
        ("--after", "9223372036854775808"),
    ],
)
def test_wrong_selections(cli: Cli, backend: StateBackend, arguments: tuple[str, ...]) -> None:
    """Kinds are a closed set, numbers have their ranges."""
    assert cli("show", samples.full(backend), *arguments).exit_code == 2


def test_the_transcript(cli: Cli, backend: StateBackend) -> None:
    """Each event is a line with its facts, and below it the rendered text, indented."""
    blocks = cli("show", samples.full(backend), "--events").stdout.split("\n\n")
    assert blocks[0].startswith("[1] message  kernel/user@1  20")
    assert blocks[0].endswith("\n    do it")
    assert blocks[1].endswith('\n    {\n      "text": "yes"\n    }')


def test_no_text_passes_for_another_event(cli: Cli, backend: StateBackend) -> None:
    """Lines of a payload are indented and its control characters escaped (report 75)."""
    with backend.create(profile="p") as session:
        session.append_prompt(payload=b"a\n[2] plan  x\r\n\x1b[2J\tz\xc2\x9b", schema_version="1")
    shown = cli("show", session.session_id, "--events").stdout
    assert shown.splitlines()[1:] == ["    a", "    [2] plan  x", "    \\x1b[2J\tz\\x9b", ""]


def test_a_long_text_is_whole_in_a_pipe(cli: Cli, backend: StateBackend) -> None:
    """Only a terminal is spared the rest of a long text."""
    with backend.create(profile="p") as session:
        session.append_prompt(payload=b"x" * 10_000, schema_version="1")
    assert "x" * 10_000 in cli("show", session.session_id, "--events").stdout


def test_a_cut_says_so() -> None:
    """What a terminal is not shown is counted, with the way to see it."""
    shown = transcript.cut("x" * (transcript.MOST_CHARACTERS + 12_345))
    assert shown.startswith("x" * transcript.MOST_CHARACTERS + "\n... 12,345 more characters")
    assert "--json" in shown


def test_a_damaged_session(cli: Cli, backend: StateBackend) -> None:
    """A damaged file is exit code 5 and one line that names it."""
    session_id = samples.empty(backend)
    samples.damage(backend, session_id)
    result = cli("show", session_id, "--json")
    assert (result.exit_code, result.stdout) == (5, "")
    assert session_id in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_newer_session(cli: Cli, backend: StateBackend) -> None:
    """A file of a newer version is exit code 4 and names both versions."""
    session_id = samples.empty(backend)
    samples.rewrite(backend, session_id, "PRAGMA user_version = 99")
    result = cli("show", session_id)
    assert result.exit_code == 4
    assert "99" in result.stderr


def test_follow_ends_with_a_finished_session(cli: Cli, backend: StateBackend) -> None:
    """Of a session without a writer all events are shown, and the command ends."""
    session_id = samples.full(backend)
    assert len(parsed_lines(cli("show", session_id, "--follow", "--json"))) == 5
    limited = parsed_lines(cli("show", session_id, "--follow", "--limit", "2", "--json"))
    assert [event["sequence"] for event in limited] == [1, 2]


def test_follow_keeps_up_with_a_writer(backend: StateBackend, spawn: Spawn) -> None:
    """An event is shown while its writer is still at work; the end of the session ends it."""
    with backend.create(profile="p") as session:
        session.append_prompt(payload=b"first", schema_version="1")
        follower = spawn("show", session.session_id, "--follow", "--json")
        assert follower.stdout is not None
        assert b'"first"' in follower.stdout.readline()
        session.append(EventKind.TOOL_CALL, producer=TOOL, payload=b"2nd", schema_version="1")
        assert b'"2nd"' in follower.stdout.readline()
        session.set_status(SessionStatus.COMPLETED)
    assert follower.wait(timeout=10) == 0


def test_follow_is_interrupted_quietly(backend: StateBackend, spawn: Spawn) -> None:
    """Ctrl-C ends it with code 130 and without a word."""
    with backend.create(profile="p") as session:
        session.append_prompt(payload=b"first", schema_version="1")
        follower = spawn("show", session.session_id, "--follow")
        assert follower.stdout is not None
        follower.stdout.readline()
        for _ in range(3):  # one that arrives inside a callback of SQLite is lost
            follower.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                follower.wait(timeout=5)
                break
        _, errors = follower.communicate(timeout=5)
    assert (follower.returncode, errors) == (130, b"")


def test_a_foreign_producer_is_shown_safely(cli: Cli, backend: StateBackend) -> None:
    """A name that no terminal should see is escaped in the line of its event."""
    with backend.create(profile="p") as session:
        session.append(
            EventKind.TOOL_CALL,
            producer=Producer("tool", "a\x1b]0;x\x07\nb", "1"),
            payload=b"{}",
            schema_version="1",
        )
    shown = cli("show", session.session_id, "--events").stdout
    assert shown.startswith("[1] tool_call  tool/a\\x1b]0;x\\x07\\x0ab@1  ")


def test_reading_leaves_the_folder_as_it_was(backend: StateBackend) -> None:
    """A summary shown by another process leaves no file behind."""
    session_id = samples.full(backend)
    before = sorted(path.name for path in backend.directory.iterdir())
    command = [sys.executable, "-m", "statebackend", "show", session_id]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert sorted(path.name for path in backend.directory.iterdir()) == before
