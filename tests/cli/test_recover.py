"""``recover``, ``show --partial``, and what other commands say when they meet damage."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from statebackend import Recovery, StateBackend
from statebackend.files import recovery_reports
from statebackend.testing import damage_page
from tests import released_files
from tests.cli.samples import Cli, damage, full, parsed, parsed_lines, path_of
from tests.session_files import UNKNOWN_ID, damage_index, fill, new, overwrite

CLAUDE = Path(__file__).parents[1] / "data" / "claude_code"


def lossy(backend: StateBackend) -> str:
    """Make a session of many pages, overwrite one in the middle, and return its id."""
    session_id = new(backend, events=400, size=300)
    path = path_of(backend, session_id)
    overwrite(path, path.stat().st_size // 4096 // 2, bytes(4096))
    return session_id


def test_a_sound_session_is_left_alone(backend: StateBackend, cli: Cli) -> None:
    """Exit code 0, and no byte or name changed."""
    session_id = full(backend)
    before = released_files.contents(backend.directory)
    result = cli("recover", session_id)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"session {session_id} is not damaged" in result.stderr
    as_json = cli("recover", session_id, "--json")
    assert parsed(as_json) == {"session_id": session_id, "recovered": False}
    assert released_files.contents(backend.directory) == before


def test_a_recovery_without_loss_ends_with_0(backend: StateBackend, cli: Cli) -> None:
    """Only an index was damaged: the report says so, the original is kept, the session opens."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    damage_index(path)
    damaged = path.read_bytes()
    result = cli("recover", session_id)
    assert result.exit_code == 0, result.output
    assert "complete" in result.stdout
    assert f"{path}.corrupt\n" in result.stdout
    assert Path(f"{path}.corrupt").read_bytes() == damaged
    assert "was damaged and recovered" in result.stderr
    assert cli("verify", session_id).exit_code == 0


def test_a_recovery_with_loss_ends_with_1(backend: StateBackend, cli: Cli) -> None:
    """Missing rows are listed by table and range; all other events are there."""
    session_id = lossy(backend)
    result = cli("recover", session_id, "--json")
    assert result.exit_code == 1, result.output
    form = parsed(result)
    assert form["recovered"] is True
    assert form["complete"] is False
    assert form["original"] == f"{path_of(backend, session_id)}.corrupt"
    (events,) = [table for table in form["tables"] if table["table"] == "events"]
    assert events["kept"] + events["lost"] == 400
    assert 0 < events["lost"] < 100
    shown = parsed_lines(cli("show", session_id, "--events", "--json"))
    missing = {sequence for first, last in events["missing"] for sequence in range(first, last + 1)}
    assert {event["sequence"] for event in shown} == set(range(1, 401)) - missing
    again = cli("recover", session_id)
    assert (again.exit_code, again.stdout) == (0, "")
    verified = cli("verify", session_id, "--json")
    assert verified.exit_code == 0, verified.stdout
    assert [one["what"] for one in parsed(verified)] == ["gap"]


def test_a_loss_of_unknown_size_is_reported(backend: StateBackend, cli: Cli) -> None:
    """Its own log is gone: nothing was seen to be lost, and yet not everything was saved."""
    with backend.create("default") as other:
        fill(other)
        log = Path(f"{other.path}-wal").read_bytes()
    session_id = new(backend, events=20)
    Path(f"{path_of(backend, session_id)}-wal").write_bytes(log)
    result = cli("recover", session_id)
    assert result.exit_code == 1
    assert "result     its own WAL is gone; rows that only" in result.stdout
    assert "complete" not in result.stdout
    shown = cli("list")
    assert (shown.exit_code, "rows were lost to damage" in shown.stdout) == (1, True), shown.output
    assert "its own WAL is gone" in cli("doctor").stdout
    assert "its own WAL is gone" in cli("verify", session_id).stdout
    assert "its own WAL is gone" in cli("show", session_id).stderr


def test_the_table_names_the_missing_sequences(backend: StateBackend, cli: Cli) -> None:
    """For a person: a row for each table, and below where the original and the report are."""
    session_id = lossy(backend)
    result = cli("recover", session_id)
    assert result.exit_code == 1
    assert "MISSING SEQUENCES" in result.stdout
    assert f"{session_id}.sqlite.corrupt.json\n" in result.stdout
    assert "rows lost" in result.stdout


def test_refusals(backend: StateBackend, cli: Cli) -> None:
    """4 live, 3 missing, 5 nothing left or nothing to save."""
    with backend.create("default") as session:
        assert cli("recover", session.session_id).exit_code == 4
    assert cli("recover", UNKNOWN_ID).exit_code == 3
    session_id = full(backend)
    path_of(backend, session_id).write_bytes(b"")
    first = cli("recover", session_id)
    assert first.exit_code == 5
    assert "nothing could be saved" in first.stderr
    assert cli("recover", session_id).exit_code == 5


def test_show_hints_and_shows_a_part(backend: StateBackend, cli: Cli) -> None:
    """5 and a hint without --partial; with it 1, what is missing on stderr, nothing changed."""
    session_id = lossy(backend)
    before = released_files.contents(backend.directory)
    refused = cli("show", session_id)
    assert (refused.exit_code, refused.stdout) == (5, "")
    assert f"try 'show {session_id} --partial' and 'recover {session_id}'" in refused.stderr
    summary = cli("show", session_id, "--partial", "--json")
    assert summary.exit_code == 1, summary.output
    recovery = parsed(summary)["recovery"]
    assert recovery["original"] is None
    lost = sum(table["lost"] for table in recovery["tables"])
    assert f"{lost} rows lost" in summary.stderr
    events = cli("show", session_id, "--partial", "--events", "--json")
    assert events.exit_code == 1
    assert len(parsed_lines(events)) == 400 - lost
    assert f"{lost} rows lost" in events.stderr
    assert "events" in cli("show", session_id, "--partial").stdout
    assert released_files.contents(backend.directory) == before


def test_a_part_of_a_sound_session_is_the_whole(backend: StateBackend, cli: Cli) -> None:
    """--partial changes nothing for it."""
    session_id = full(backend)
    assert cli("show", session_id, "--partial").stdout == cli("show", session_id).stdout
    whole = cli("show", session_id, "--partial", "--json")
    assert (whole.exit_code, parsed(whole)["recovery"]) == (0, None)
    assert cli("show", session_id, "--partial", "--follow").exit_code == 2


def test_a_part_of_nothing_is_refused(backend: StateBackend, cli: Cli) -> None:
    """Noise from end to end."""
    session_id = full(backend)
    damage(backend, session_id)
    result = cli("show", session_id, "--partial")
    assert (result.exit_code, result.stdout) == (5, "")


def test_import_tells_the_recovery_that_it_met(
    backend: StateBackend, cli: Cli, tmp_path: Path
) -> None:
    """On stderr, in the JSON, and by the exit code if the recovery is not complete."""
    source = next(path for path in sorted(CLAUDE.glob("*.jsonl")))
    shutil.copy(source, tmp_path / source.name)
    first = cli("import", str(tmp_path / source.name), "--json")
    session_id = parsed(first)[0]["session_id"]
    assert parsed(first)[0]["recovery"] is None
    damage_index(path_of(backend, session_id))
    again = cli("import", str(tmp_path / source.name), "--json")
    assert (again.exit_code, first.exit_code) == (first.exit_code, first.exit_code)
    assert "was damaged and recovered" in again.stderr
    assert parsed(again)[0]["recovery"]["complete"] is True


def test_import_adds_nothing_to_a_session_that_lost_rows(
    backend: StateBackend, cli: Cli, tmp_path: Path
) -> None:
    """What was lost would come back out of order, and its cost beside the row that was kept."""
    source = max(CLAUDE.glob("*.jsonl"), key=lambda path: path.stat().st_size)
    shutil.copy(source, tmp_path / source.name)
    (imported,) = parsed(cli("import", str(tmp_path / source.name), "--json"))
    path = path_of(backend, imported["session_id"])
    leaves = [at for at in range(0, path.stat().st_size, 4096) if path.read_bytes()[at] == 0x0D]
    overwrite(path, max(leaves) // 4096 + 1, bytes(4096))
    with backend.open(path.stem) as session:
        assert session.info.incomplete
        before = session.cost_totals()
    again = cli("import", str(tmp_path / source.name), "--json")
    assert again.exit_code != 0
    assert "lost rows to damage" in parsed(again)[0]["problem"]
    assert backend.cost(path.stem).own == before


def test_doctor_tells_what_was_lost(backend: StateBackend, cli: Cli) -> None:
    """Each kept original with its report, and what an interrupted recovery left."""
    session_id = lossy(backend)
    cli("recover", session_id)
    gone = full(backend)
    damage(backend, gone)
    cli("recover", gone)
    path = path_of(backend, session_id)
    for ending in (".recovering", ".recovering.json", ".recovering.aside"):
        Path(f"{path}{ending}").touch(mode=0o600)
    result = cli("doctor")
    assert result.exit_code == 1
    assert f"{path.name}.corrupt (20" in result.stdout
    assert "rows lost)" in result.stdout
    assert f"{gone}.sqlite.corrupt (20" in result.stdout
    assert "nothing could be saved)" in result.stdout
    form = json.loads(cli("doctor", "--json").stdout)
    assert {one["session_id"] for one in form["recoveries"]} == {session_id, gone}
    assert form["unfinished"] == [
        f"{path.name}{ending}"
        for ending in (".recovering", ".recovering.aside", ".recovering.json")
    ]


@pytest.mark.parametrize("command", ["list", "cost", "show"])
def test_a_bad_report_marks_its_session(backend: StateBackend, cli: Cli, command: str) -> None:
    """What was lost is unknown, so the session is marked incomplete; the rest is shown."""
    session_id = full(backend)
    Path(f"{path_of(backend, session_id)}.corrupt.json").write_text("{")
    result = cli(command, *[session_id] * (command == "show"))
    assert result.exit_code == 1
    assert "rows were lost to damage: see `statebackend doctor`" in " ".join(result.output.split())
    assert session_id in result.stdout
    told = cli("doctor")
    assert told.exit_code == 1
    assert "is not a readable recovery report" in told.stderr
    assert "rows were lost to damage" in told.stdout
    assert "no report can be read" in told.stdout


def recovered(backend: StateBackend) -> tuple[str, Recovery]:
    """Make a lossy session, recover it, and return its id and the report."""
    session_id = lossy(backend)
    with backend.open(session_id) as session:
        assert session.recovery is not None
        return session_id, session.recovery


def missing_events(recovery: Recovery) -> str:
    """Return the missing events as the notice lists them."""
    (events,) = [table for table in recovery.tables if table.table == "events"]
    assert events.missing
    return "missing events " + ", ".join(
        f"{first}-{last}" if last > first else str(first) for first, last in events.missing
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("show", "--events"),
        ("show", "--follow"),
        ("show", "--partial"),
        ("replay",),
        ("plan",),
        ("producers",),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_one_that_lost_rows_is_not_shown_as_whole(
    backend: StateBackend, cli: Cli, arguments: tuple[str, ...], as_json: bool
) -> None:
    """What is missing and where the original is come on stderr, and the exit code is 1."""
    session_id, recovery = recovered(backend)
    result = cli(*arguments, session_id, *["--json"] * as_json)
    assert result.exit_code == 1, result.output
    assert missing_events(recovery) in result.stderr
    assert f"the original is {recovery.original}" in result.stderr
    if as_json and arguments in {("show",), ("show", "--partial")}:
        form = parsed(result)
        assert (form["incomplete"], form["recovery"]["original"]) == (True, str(recovery.original))


@pytest.mark.parametrize("arguments", [("cost",), ("tree",), ("producers",), ("plan", "--rules")])
def test_a_result_over_one_that_lost_rows_is_partial(
    backend: StateBackend, cli: Cli, arguments: tuple[str, ...]
) -> None:
    """It is named on stderr, and the exit code is 1."""
    session_id, _recovery = recovered(backend)
    result = cli(*arguments)
    assert result.exit_code == 1, result.output
    assert f"session {session_id}: rows were lost to damage" in result.stderr
    assert "the result is partial: 1 session lost rows\n" in result.stderr


def test_the_first_of_many_missing_ranges_are_listed(backend: StateBackend, cli: Cli) -> None:
    """The report has them all; a recovery that saved nothing says so."""
    session_id, recovery = recovered(backend)
    assert recovery.report is not None
    (events,) = [table for table in recovery.tables if table.table == "events"]
    ranges = tuple((number, number) for number in range(2, 50, 2))
    torn = replace(recovery, tables=(replace(events, missing=ranges),), derived=())
    recovery.report.write_text(recovery_reports.to_text(torn))
    said = cli("show", session_id).stderr
    assert "24 rows lost; missing events 2, 4, 6," in said
    assert ", 40 and 4 more ranges; the original is" in said
    nothing = replace(recovery, tables=(), derived=())
    recovery.report.write_text(recovery_reports.to_text(nothing))
    result = cli("show", session_id)
    assert result.exit_code == 1
    assert "nothing could be saved; the original is" in result.stderr


def test_the_mark_goes_with_the_kept_files(backend: StateBackend, cli: Cli, tmp_path: Path) -> None:
    """``list`` flags it until they are moved away, ``doctor`` says what was lost."""
    session_id, recovery = recovered(backend)
    flagged = cli("list", "--json")
    (row,) = parsed(flagged)
    assert (flagged.exit_code, row["incomplete"]) == (1, True)
    assert row["problem"] == "rows were lost to damage: see `statebackend doctor`"
    assert recovery.original is not None
    recovery.original.rename(tmp_path / "original")
    doctor = cli("doctor")
    assert doctor.exit_code == 1
    assert "rows lost" in doctor.stdout
    assert recovery.report is not None
    recovery.report.rename(tmp_path / "report")
    for command in (("list",), ("show", session_id), ("cost",), ("tree",), ("replay", session_id)):
        result = cli(*command)
        assert (result.exit_code, "lost" in result.stderr) == (0, False), result.output


def test_damage_of_a_page_is_reported_with_its_reason(backend: StateBackend, cli: Cli) -> None:
    """What the check found is in the report."""
    session_id = full(backend)
    damage_page(path_of(backend, session_id), "cost_ledger")
    form = parsed(cli("recover", session_id, "--json"))
    assert form["reasons"]
