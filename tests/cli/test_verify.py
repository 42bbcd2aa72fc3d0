"""``verify``: findings about many files, whatever state each is in."""

from __future__ import annotations

import io
import os
import pty
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from statebackend import StateBackend
from statebackend.bulk.migration import verify_each
from statebackend.testing import damage_page
from statebackend.values.reports import Finding
from statebackend.verifying import verify
from tests import released_files
from tests.cli.samples import Cli, Spawn, damage, full, parsed, path_of, rewrite, series

UNKNOWN = "01KJMG7C00000000000000000Z"


def test_sound_sessions(backend: StateBackend, cli: Cli) -> None:
    """Nothing on stdout but an empty array with --json; exit code 0."""
    series(backend, 3)
    full(backend)
    plain = cli("verify", "--all")
    assert (plain.exit_code, plain.stdout) == (0, "")
    assert plain.stderr == "statebackend: 4 sessions sound\n"
    as_json = cli("verify", "--all", "--json")
    assert (as_json.exit_code, parsed(as_json)) == (0, [])


def test_no_sessions(cli: Cli, backend: StateBackend) -> None:
    """An empty or missing folder is not an error."""
    result = cli("verify", "--all")
    assert (result.exit_code, result.stderr) == (0, "statebackend: no sessions\n")


def test_one_bad_file_does_not_stop_the_rest(backend: StateBackend, cli: Cli) -> None:
    """Each finding with its session, the whole folder left as it is."""
    made = series(backend, 4)
    damage(backend, made[0])
    rewrite(backend, made[1], "UPDATE session_meta SET status = 'done', ended_at = started_at")
    rewrite(backend, made[2], "PRAGMA user_version = 9")
    os.mkfifo(path_of(backend, UNKNOWN))
    before = released_files.contents(backend.directory)
    result = cli("verify", "--all", "--json")
    assert result.exit_code == 1
    found = {(one["session_id"], one["severity"], one["what"]) for one in parsed(result)}
    assert found == {
        (made[0], "damage", "header"),
        (made[1], "problem", "value"),
        (made[2], "problem", "version"),
        (UNKNOWN, "problem", "file"),
    }
    assert all(one["count"] == 1 and one["text"] for one in parsed(result))
    assert released_files.contents(backend.directory) == before
    plain = cli("verify", "--all")
    assert plain.exit_code == 1
    assert made[3] not in plain.stdout
    assert "unknown word" in plain.stdout
    assert plain.stderr == (
        "statebackend: 1 session sound\n"
        "statebackend: 3 sessions with problems\n"
        "statebackend: 1 session damaged\n"
    )


def test_only_the_named_ones(backend: StateBackend, cli: Cli) -> None:
    """Shortened ids will do; each is checked once."""
    first, second = full(backend), full(backend)
    damage_page(path_of(backend, second))
    assert cli("verify", first, first[:25]).stderr == "statebackend: 1 session sound\n"
    result = cli("verify", second, "--json")
    assert result.exit_code == 1
    assert {one["session_id"] for one in parsed(result)} == {second}


def test_wrong_usage_and_missing_sessions(backend: StateBackend, cli: Cli) -> None:
    """2 for neither ids nor --all, or both; 3 for the only one, which is not there."""
    session_id = full(backend)
    assert cli("verify").exit_code == 2
    assert cli("verify", "--all", session_id).exit_code == 2
    assert cli("verify", UNKNOWN).exit_code == 3
    result = cli("verify", UNKNOWN, session_id, "--json")
    assert result.exit_code == 1
    (finding,) = parsed(result)
    assert (finding["session_id"], finding["what"]) == (UNKNOWN, "unchecked")
    assert "1 session could not be checked" in cli("verify", UNKNOWN, session_id).stderr


def test_a_note_alone_ends_with_0(backend: StateBackend, cli: Cli) -> None:
    """Good to know is not in need of a person."""
    from statebackend import Recovery, TableRecovery
    from statebackend.files import recovery_reports
    from statebackend.values import timestamps

    session_id = full(backend)
    path = path_of(backend, session_id)
    rewrite(backend, session_id, "DELETE FROM events WHERE sequence = 5")
    rewrite(backend, session_id, "DELETE FROM producers WHERE first_seen_sequence = 5")
    report = Path(f"{path}.corrupt.json")
    recovery = Recovery(
        session_id=session_id,
        path=path,
        original=Path(f"{path}.corrupt"),
        report=report,
        aside=None,
        recovered_at=timestamps.now(),
        reasons=("malformed",),
        tables=(TableRecovery(table="events", kept=4, missing=((5, 5),), routes={"page": 4}),),
        derived=(),
        notes=(),
    )
    report.write_text(recovery_reports.to_text(recovery))
    result = cli("verify", session_id)
    assert result.exit_code == 0
    assert "as a recovery reported" in result.stdout
    assert result.stderr == "statebackend: 1 session sound\n"


def test_a_live_session_is_checked(backend: StateBackend, cli: Cli) -> None:
    """A writer does not mind."""
    with backend.create("default") as session:
        session.append_prompt(payload=b"x", schema_version="1")
        assert cli("verify", session.session_id).exit_code == 0
        session.append_prompt(payload=b"y", schema_version="1")


def test_a_bar_is_drawn_on_a_terminal_only(backend: StateBackend, spawn: Spawn) -> None:
    """On stderr, and gone at the end; stdout carries the result alone."""
    series(backend, 30)
    ours, theirs = pty.openpty()
    process = spawn(
        "verify", "--all", "--json", stderr=theirs, extra_env={"TERM": "xterm", "COLUMNS": "80"}
    )
    os.close(theirs)
    drawn = io.BytesIO()
    with suppress(OSError):
        while piece := os.read(ours, 4096):
            drawn.write(piece)
    os.close(ours)
    stdout, _ = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (0, b"[]\n")
    assert b"Checking" in drawn.getvalue()
    quiet = spawn("verify", "--all", stderr=subprocess.PIPE)
    assert quiet.communicate(timeout=60) == (b"", b"statebackend: 30 sessions sound\n")


def test_threads_find_the_same_in_the_same_order(backend: StateBackend) -> None:
    """Newest first, one result a file, also where there are more files than threads."""
    made = series(backend, 80)
    for session_id in made[::7]:
        damage(backend, session_id)
    alone = list(verify_each(backend.directory))
    assert [one.session_id for one in alone] == made[::-1]
    assert list(verify_each(backend.directory, threads=3)) == alone
    assert {one.session_id for one in alone if not one.sound} == set(made[::7])


def test_a_fault_at_one_file_is_told_with_it(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even one of the program itself does not stop the others."""
    made = series(backend, 2)
    report = verify.verify_file

    def failing(path: Path) -> tuple[Finding, ...]:
        if path.stem == made[0]:
            raise ZeroDivisionError("oops")
        return report(path)

    monkeypatch.setattr(verify, "verify_file", failing)
    newer, older = verify_each(backend.directory)
    assert newer.sound
    assert [one.what for one in older.findings] == ["unchecked"]
    assert "ZeroDivisionError: oops" in str(older.error)
