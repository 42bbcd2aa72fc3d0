"""``list``: order, filters, marks, bad files."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from datetime import timedelta

import pytest

from statebackend import SessionStatus, StateBackend
from tests.cli import samples
from tests.cli.samples import START, Cli, parsed

KEYS = {
    "session_id",
    "parent_session_id",
    "profile",
    "status",
    "depth",
    "started_at",
    "ended_at",
    "cost_usd",
    "unpriced_rows",
    "live",
    "incomplete",
    "problem",
}


def _ids(cli: Cli, *arguments: str) -> list[str]:
    result = cli("list", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return [row["session_id"] for row in parsed(result)]


def test_newest_first_whatever_the_file_times(cli: Cli, backend: StateBackend) -> None:
    """The order is that of the ids, also after all files were touched (field reports 30, 31)."""
    made = samples.series(backend, 5)
    for session_id in random.sample(made, 5):
        os.utime(samples.path_of(backend, session_id), (0, random.randrange(10**9)))
    assert _ids(cli) == made[::-1]


def test_a_session_object(cli: Cli, backend: StateBackend) -> None:
    """A row has the documented keys, its times are UTC, its cost a lower bound that says so."""
    parent = samples.empty(backend, started_at=START)
    child = samples.full(backend, parent_session_id=parent, depth=1, profile="p", started_at=START)
    row = next(row for row in parsed(cli("list", "--json")) if row["session_id"] == child)
    assert row.keys() == KEYS
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row.pop("ended_at"))
    assert row == {
        "session_id": child,
        "parent_session_id": parent,
        "profile": "p",
        "status": "completed",
        "depth": 1,
        "started_at": "2026-03-01T12:00:00.000Z",
        "cost_usd": 0.25,
        "unpriced_rows": 1,
        "live": False,
        "incomplete": False,
        "problem": None,
    }


def test_nothing_is_an_empty_array(cli: Cli) -> None:
    """Without any session, or any folder, JSON is [] and nothing else (field report 73)."""
    result = cli("list", "--json")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "[]\n", "")


def test_nothing_is_said_on_stderr(cli: Cli) -> None:
    """Without any session the table is empty and a notice says so."""
    result = cli("list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "statebackend: no sessions\n"


def test_twenty_unless_told(cli: Cli, backend: StateBackend) -> None:
    """The newest 20 are shown, --limit and --all change that, --after turns the page."""
    made = samples.series(backend, 23)[::-1]
    assert _ids(cli) == made[:20]
    assert _ids(cli, "--limit", "2") == made[:2]
    assert _ids(cli, "--after", made[19]) == made[20:]
    assert _ids(cli, "--all") == made


def test_more_is_said(cli: Cli, backend: StateBackend) -> None:
    """A page that is full says on stderr how to go on; the whole list does not."""
    made = samples.series(backend, 2)
    assert f"--after {made[1]}" in cli("list", "--limit", "1").stderr
    assert cli("list").stderr == ""


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5"])
def test_a_limit_is_a_positive_number(cli: Cli, limit: str) -> None:
    """Any other limit is wrong usage."""
    result = cli("list", "--limit", limit)
    assert (result.exit_code, result.stdout) == (2, "")


def test_filters(cli: Cli, backend: StateBackend) -> None:
    """Status, profile, parent and --roots leave out what does not fit; a parent may be short."""
    root = samples.full(backend, profile="a", started_at=START)
    child = samples.empty(
        backend, profile="b", parent_session_id=root, depth=1, started_at=START + timedelta(1)
    )
    assert _ids(cli, "--status", "running") == [child]
    assert _ids(cli, "--profile", "a") == [root]
    assert _ids(cli, "--parent", root[-6:]) == [child]
    assert _ids(cli, "--roots") == [root]


def test_times(cli: Cli, backend: StateBackend) -> None:
    """--since includes its moment, --until does not; a date includes the day; ages work."""
    made = samples.series(backend, 3)
    recent = samples.empty(backend)
    assert _ids(cli, "--since", "2026-03-02T12:00Z", "--until", "2026-03-03T12:00Z") == [made[1]]
    assert _ids(cli, "--since", "2026-03-02T13:00+01:00", "--until", "2026-03-04") == made[:0:-1]
    assert _ids(cli, "--since", "1h") == [recent]
    assert _ids(cli, "--until", "1h") == made[::-1]
    assert _ids(cli, "--since", "1815-12-10") == [recent, *made[::-1]]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--status", "x' OR 1=1 --"),
        ("--since", "yesterday"),
        ("--until", "2026-02-30"),
        ("--unknown",),
        ("extra",),
    ],
)
def test_wrong_usage(cli: Cli, arguments: tuple[str, ...]) -> None:
    """Unknown words and invalid times are usage errors (field report 78)."""
    result = cli("list", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("statebackend: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("profile", ["x' OR 1=1 --", "%", "_", "defaul_", "*"])
def test_a_profile_is_a_plain_word(cli: Cli, backend: StateBackend, profile: str) -> None:
    """A profile is compared as it is: no SQL, no wildcards (field report 78)."""
    samples.empty(backend)
    assert _ids(cli, "--profile", profile) == []


def test_a_bad_file_is_a_row(cli: Cli, backend: StateBackend) -> None:
    """Bad files are rows with their reason among the good ones, exit code 1 (field report 27)."""
    good = samples.series(backend, 5)
    bad = samples.series(backend, 5)
    folder = backend.directory
    samples.path_of(backend, bad[0]).write_bytes(b"")
    os.truncate(samples.path_of(backend, bad[1]), 5000)
    samples.damage(backend, bad[2])
    samples.rewrite(backend, bad[3], "PRAGMA user_version = 99")
    samples.rewrite(backend, bad[4], "UPDATE session_meta SET status = 'sleeping'")
    (folder / "01K9AAAAAAAAAAAAAAAAAAAAAA.sqlite").mkdir()
    (folder / "01K9BBBBBBBBBBBBBBBBBBBBBB.sqlite").symlink_to(folder / "nowhere")
    (folder / "notes.sqlite").write_bytes(b"mine")
    result = cli("list", "--all", "--json")
    rows = {row["session_id"]: row for row in parsed(result)}
    assert result.exit_code == 1
    assert [rows[each]["problem"] for each in good] == [None] * 5
    flagged = {each for each, row in rows.items() if row["problem"]}
    named = {"01K9AAAAAAAAAAAAAAAAAAAAAA", "01K9BBBBBBBBBBBBBBBBBBBBBB", "notes"}
    assert flagged == {*bad, *named}
    assert rows[bad[4]]["problem"] == "unknown status word"
    assert all(row.keys() == KEYS for row in rows.values())


def test_a_bad_file_in_the_table(cli: Cli, backend: StateBackend) -> None:
    """The table flags a bad file with its reason, and shows the good ones."""
    good, bad = samples.series(backend, 2)
    samples.damage(backend, bad)
    result = cli("list")
    assert result.exit_code == 1
    heading, first, second = result.stdout.splitlines()
    assert heading.split()[-1] == "PROBLEM"
    assert first.startswith(f"{bad}  bad file")
    assert "damaged" in first
    assert second.startswith(f"{good}  running (no writer)")


def test_a_stored_text_cannot_steer_the_terminal(cli: Cli, backend: StateBackend) -> None:
    """Control characters of a profile are shown escaped, and are escapes in JSON (report 75)."""
    samples.empty(backend, profile="\x1b[31mX\r\x9b\u202e")
    table, text = cli("list").stdout, cli("list", "--json").stdout
    assert "\\x1b[31mX\\x0d\\x9b\\u202e" in table
    assert not set("\x1b\r\x9b\u202e") & set(table + text)
    assert parsed(cli("list", "--json"))[0]["profile"] == "\x1b[31mX\r\x9b\u202e"


def test_costs_in_the_table(cli: Cli, backend: StateBackend) -> None:
    """A sum has the number of unpriced turns; without turns there is no sum."""
    samples.full(backend)
    samples.empty(backend)
    empty, full = sorted(cli("list").stdout.splitlines()[1:], key=len)
    assert "$0.2500 + 1 unpriced" in full
    assert empty.endswith("  -  -") or empty.split()[-1] == "-"


@pytest.mark.crash
def test_a_killed_writer_is_told_from_a_living_one(cli: Cli, backend: StateBackend) -> None:
    """A running session is live while its process lives; after kill -9 it has no writer (53)."""
    program = (
        "import sys, statebackend as s\n"
        "session = s.StateBackend().create(profile='p')\n"
        "print(session.session_id, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        session_id = writer.stdout.readline().decode().strip()
        (live,) = parsed(cli("list", "--json"))
        assert (live["session_id"], live["live"]) == (session_id, True)
        assert "running (live)" in cli("list").stdout
        writer.kill()
        writer.wait()
    (dead,) = parsed(cli("list", "--json"))
    assert (dead["status"], dead["live"]) == (SessionStatus.RUNNING, False)
    assert "running (no writer)" in cli("list").stdout
