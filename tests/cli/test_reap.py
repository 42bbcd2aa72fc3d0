"""``reap``: sessions that say running but have no living writer."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from statebackend import (
    InvalidTransition,
    InvalidValue,
    Session,
    SessionInfo,
    SessionLocked,
    SessionNotFound,
    StateBackend,
)
from statebackend.files import claim
from statebackend.opening import write
from statebackend.values.reports import ReapOutcome
from tests.chains import SAMPLE, make_chain, program_of
from tests.cli.samples import (
    START,
    Cli,
    damage,
    empty,
    full,
    parsed,
    path_of,
    rewrite,
    series,
)
from tests.crash import children
from tests.crash.processes import several, started
from tests.crash.samples import append, litter
from tests.released_files import contents

LAST = START + timedelta(hours=5)


def stale(backend: StateBackend, *, at: datetime = LAST) -> str:
    """Leave a session running without a writer; its last event has the time *at*."""
    with backend.create("default", started_at=START) as session:
        append(session)
        session.append_prompt(payload=b"last", schema_version="1", timestamp=at)
        return session.session_id


def info(backend: StateBackend, session_id: str) -> SessionInfo:
    """Return what the listing says of a session."""
    (found,) = [one for one in backend.list(limit=None) if one.session_id == session_id]
    assert isinstance(found, SessionInfo)
    return found


def test_without_yes_nothing_changes(backend: StateBackend, cli: Cli) -> None:
    """It lists what would be closed, with the end that each would get; no byte changes."""
    session_id, _done = stale(backend), full(backend)
    before = contents(backend.directory)
    result = cli("reap", "--json")
    assert result.exit_code == 0
    assert parsed(result) == [
        {
            "session_id": session_id,
            "outcome": "stale",
            "status": "running",
            "ended_at": "2026-03-01T17:00:00.000Z",
            "problem": None,
        }
    ]
    table = cli("reap")
    assert session_id in table.stdout
    assert "--yes" in table.stderr
    assert contents(backend.directory) == before


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_stale_sessions_are_closed(backend: StateBackend, cli: Cli, status: str) -> None:
    """They end with their last event, whatever the clock says; a second run finds none."""
    session_id, done = stale(backend), info(backend, full(backend))
    (row,) = parsed(cli("reap", "--status", status, "--yes", "--json"))
    assert (row["session_id"], row["outcome"], row["status"]) == (session_id, "reaped", status)
    assert row["ended_at"] == "2026-03-01T17:00:00.000Z"
    assert (info(backend, session_id).status, info(backend, session_id).ended_at) == (status, LAST)
    assert info(backend, done.session_id) == done
    again = cli("reap", "--yes")
    assert (again.exit_code, again.stdout) == (0, "")
    assert litter(backend) == set()


def test_the_default_is_failed(backend: StateBackend, cli: Cli) -> None:
    """Nobody knows more of a session whose program died."""
    session_id = stale(backend)
    result = cli("reap", "--yes")
    assert result.exit_code == 0
    assert "reaped" in result.stdout
    assert "1 session closed" in result.stderr
    assert info(backend, session_id).status == "failed"


def test_a_session_without_events_ends_with_its_start(backend: StateBackend, cli: Cli) -> None:
    """Nothing is known to have happened later."""
    session_id = empty(backend, started_at=START)
    cli("reap", "--yes")
    assert info(backend, session_id).ended_at == START


def test_times_that_are_none_are_passed_over(backend: StateBackend, cli: Cli) -> None:
    """If the last event has an invalid time, the end is the start, else now."""
    one, other = stale(backend), stale(backend)
    for session_id in (one, other):
        rewrite(backend, session_id, "UPDATE events SET timestamp = 'noon'")
    rewrite(backend, other, "UPDATE session_meta SET started_at = 'dawn'")
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    assert cli("reap", "--yes").exit_code == 0
    assert info(backend, one).ended_at == START
    ended_at = info(backend, other).ended_at
    assert isinstance(ended_at, datetime)
    assert before <= ended_at <= datetime.now(UTC)


def test_only_those_named(backend: StateBackend, cli: Cli) -> None:
    """With ids, no other session is changed; one that has ended is listed and left."""
    one, other, done = stale(backend), stale(backend), full(backend)
    result = cli("reap", one, done, "--yes", "--json")
    assert result.exit_code == 0
    assert [(row["session_id"], row["outcome"], row["status"]) for row in parsed(result)] == [
        (one, "reaped", "failed"),
        (done, "ended", "completed"),
    ]
    assert info(backend, other).status == "running"
    assert "1 session not running" in cli("reap", done).stderr


@pytest.mark.crash
@pytest.mark.parametrize("yes", [["--yes"], []])
def test_a_live_session_is_never_touched(backend: StateBackend, cli: Cli, yes: list[str]) -> None:
    """Without ids it is left out; named by its id, it is refused with its writer."""
    session_id = stale(backend)
    with started(children.hold, backend.directory, session_id) as holder:
        holder.hear()
        assert parsed(cli("reap", *yes, "--json")) == []
        refused = cli("reap", session_id, *yes)
        assert refused.exit_code == 4
        assert str(holder.pid) in refused.stderr
        assert info(backend, session_id).status == "running"
        holder.kill()
    assert cli("reap", session_id, *yes).exit_code == 0
    assert info(backend, session_id).status == ("failed" if yes else "running")


def test_a_session_of_this_process_is_live(backend: StateBackend) -> None:
    """The registry of this process knows the writer; the kernel's lock does not show it."""
    with backend.create("default") as session:
        assert backend.reap("failed", dry_run=False) == []
        (row,) = backend.reap("failed", session_ids=[session.session_id], dry_run=False)
        assert row.outcome is ReapOutcome.LIVE
        assert isinstance(row.error, SessionLocked)
        append(session)


def test_bad_files_are_named_and_left(backend: StateBackend, cli: Cli) -> None:
    """Damaged, newer and unversioned files do not stop the others, and none is changed."""
    noise, newer, inner, good = (stale(backend) for _ in range(4))
    damage(backend, noise)
    rewrite(backend, newer, "PRAGMA user_version = 9")
    _break_an_index(path_of(backend, inner))
    (backend.directory / "notes.sqlite").write_bytes(b"notes")
    bad = {name: path_of(backend, name).read_bytes() for name in (noise, newer, inner, "notes")}
    for yes, outcome in (((), "stale"), (("--yes",), "reaped")):
        result = cli("reap", *yes, "--json")
        assert result.exit_code == 1
        rows = {row["session_id"]: row for row in parsed(result)}
        assert {name: row["outcome"] for name, row in rows.items()} == {
            noise: "failed",
            newer: "newer",
            inner: "failed",
            "notes": "failed",
            good: outcome,
        }
        assert all(rows[name]["problem"] for name in bad)
        assert {name: path_of(backend, name).read_bytes() for name in bad} == bad
    assert [*backend.directory.glob("*.corrupt*")] == []
    assert [cli("reap", each, "--yes").exit_code for each in (noise, newer, inner)] == [5, 4, 5]
    assert "SESSION" in cli("reap").stdout


def _break_an_index(path: Path) -> None:
    """Damage what a listing does not read, and the integrity check finds."""
    content = bytearray(path.read_bytes())
    (page,) = [
        number
        for number in range(4096, len(content), 4096)
        if content[number] == 10 and content[number + 3 : number + 5] != b"\0\0"
    ][:1]
    content[page + 8 : page + 10] = b"\xff\xff"
    path.write_bytes(content)


def test_wrong_usage(backend: StateBackend, cli: Cli) -> None:
    """3 no such session, 2 a status that is none to close with."""
    missing, there = "01ARZ3NDEKTSV4RRFFQ69G5FAV", stale(backend)
    assert cli("reap", missing).exit_code == 3
    assert cli("reap", missing, there, "--yes").exit_code == 1
    assert info(backend, there).status == "failed"
    assert cli("reap", "--status", "completed").exit_code == 2
    rows = backend.reap("failed", session_ids=[there, missing])
    assert [type(row.error) for row in rows] == [type(None), SessionNotFound]
    for status in ("running", "gone"):
        with pytest.raises(InvalidValue):
            backend.reap(status)
    with pytest.raises(InvalidValue):
        backend.reap("failed", session_ids=there)


def test_a_fault_at_one_file_does_not_stop_the_others(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any error is reported for that session."""
    one, other = stale(backend), stale(backend)
    real = write.open_for_writing

    def trip(path: Path, *, may_recover: bool = True) -> Session:
        if path == path_of(backend, other):
            raise MemoryError("too little")
        return real(path, may_recover=may_recover)

    monkeypatch.setattr(write, "open_for_writing", trip)
    rows = {row.session_id: row for row in backend.reap("failed", dry_run=False)}
    assert (rows[one].outcome, rows[other].outcome) == ("reaped", "failed")
    assert "MemoryError: too little" in str(rows[other].error)


def test_a_missing_folder_has_no_sessions(backend: StateBackend, cli: Cli) -> None:
    """There is nothing to do, and nothing is made."""
    result = cli("reap", "--yes", "--json")
    assert (result.exit_code, parsed(result)) == (0, [])
    assert not backend.directory.exists()


def test_an_older_session_is_migrated(backend: StateBackend, cli: Cli, tmp_path: Path) -> None:
    """Closing is writing, and that needs the current version; a dry run leaves it."""
    session_id = SAMPLE.stem
    with program_of(make_chain(tmp_path / "program", 5)):
        backend.directory.mkdir(mode=0o700, parents=True)
        shutil.copy(SAMPLE, path_of(backend, session_id))
        rewrite(
            backend,
            session_id,
            f"UPDATE session_meta SET session_id = '{session_id}', status = 'running', "
            "ended_at = NULL",
        )
        before = contents(backend.directory)
        assert [row.outcome for row in backend.reap("failed")] == [ReapOutcome.STALE]
        assert contents(backend.directory) == before
        assert [row.outcome for row in backend.reap("failed", dry_run=False)] == ["reaped"]
    assert path_of(backend, session_id).read_bytes()[60:64] == b"\0\0\0\5"


# -- the race with a writer that resumes ----------------------------------------------------------


def test_a_writer_that_was_first_keeps_its_session(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It resumed between the look and the claim: live, or ended by itself, never reaped."""
    one, other = stale(backend), stale(backend)
    real = write.open_for_writing
    held: list[Session] = []

    def resumed_first(path: Path, *, may_recover: bool = True) -> Session:
        if may_recover:  # the writer's own open, below
            return real(path)
        if path == path_of(backend, one):
            held.append(backend.open(one))
        else:
            with backend.open(other) as session:
                session.set_status("completed")
        return real(path, may_recover=False)

    monkeypatch.setattr(write, "open_for_writing", resumed_first)
    rows = {row.session_id: row for row in backend.reap("failed", dry_run=False)}
    assert (rows[one].outcome, rows[other].outcome) == ("live", "ended")
    assert (rows[other].status, rows[other].error) == ("completed", None)
    with held[0] as session:
        append(session)
        assert session.info.status == "running"


def test_a_writer_that_was_second_is_refused(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the status changes the claim is held; afterwards the session is closed."""
    session_id = stale(backend)
    refused: list[int | None] = []
    real = Session.set_status

    def resumed_now(self: Session, *arguments: Any, **options: Any) -> None:
        writer = claim.writer_of(self.path)
        refused.append(writer.pid if writer else None)
        with pytest.raises(SessionLocked):
            backend.open(session_id)
        real(self, *arguments, **options)

    monkeypatch.setattr(Session, "set_status", resumed_now)
    backend.reap("failed", dry_run=False)
    assert refused == [os.getpid()]
    with backend.open(session_id) as session, pytest.raises(InvalidTransition):
        append(session)


@pytest.mark.crash
def test_reaping_while_a_writer_resumes(backend: StateBackend) -> None:
    """Of two processes at once either wins, 25 times; what a writer won stays running."""
    sessions = series(backend, 25)
    with (
        several(1, children.race_to_append, backend.directory) as (writer,),
        several(1, children.race_to_reap, backend.directory) as (reaper,),
    ):
        orders = set()
        for session_id in sessions:
            for racer in (writer, reaper):
                racer.say(session_id)
            answers = (writer.hear(), reaper.hear())
            events, status = len(_events(backend, session_id)), info(backend, session_id).status
            orders.add(answers)
            assert (answers, events, status) in (
                (("appended", "live"), 1, "running"),  # it came while the writer was there
                (("appended", "reaped"), 1, "failed"),  # or afterwards
                (("refused", "reaped"), 0, "failed"),
            )
    assert orders
    assert litter(backend) == set()


def _events(backend: StateBackend, session_id: str) -> list[int]:
    with backend.read(session_id) as view:
        return [event.sequence for event in view.events()]
