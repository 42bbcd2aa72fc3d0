"""``migrate``: many files, whatever state each is in."""

from __future__ import annotations

import io
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from statebackend import StateBackend
from statebackend.bulk.migration import migrate_each
from statebackend.files import header
from statebackend.schema.migrate import Chain
from statebackend.values import ids
from statebackend.values.reports import MigrationOutcome
from tests import chains, released_files
from tests.chains import SAMPLE, make_chain, program_of
from tests.cli.samples import Cli, damage, parsed, path_of, rewrite
from tests.data.make_sample import START


@pytest.fixture
def later(tmp_path: Path) -> Iterator[Chain]:
    """Let this process be the program of version 5."""
    chain = make_chain(tmp_path / "program", 5)
    with program_of(chain):
        yield chain


def old(backend: StateBackend, number: int) -> str:
    """Put a session of version 1 into the folder and return its id."""
    backend.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    session_id = ids.session_id_from(START, number.to_bytes(10, "big"))
    shutil.copy(SAMPLE, path_of(backend, session_id))
    rewrite(backend, session_id, f"UPDATE session_meta SET session_id = '{session_id}'")
    return session_id


def versions(backend: StateBackend) -> dict[str, int]:
    """Return the version of each readable session."""
    return {
        session_id: int.from_bytes(path_of(backend, session_id).read_bytes()[60:64], "big")
        for session_id in backend.ids()
    }


def test_all_sessions_are_migrated(backend: StateBackend, cli: Cli, later: Chain) -> None:
    """Every file comes to the current version; a second run finds nothing to do."""
    made = [old(backend, number) for number in range(9)]
    result = cli("migrate", "--all", "--json")
    assert result.exit_code == 0
    assert parsed(result) == [
        {
            "session_id": session_id,
            "outcome": "migrated",
            "from_version": 1,
            "to_version": 5,
            "problem": None,
        }
        for session_id in reversed(made)
    ]
    assert set(versions(backend).values()) == {5}
    again = cli("migrate", "--all")
    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr.startswith("statebackend: 9 sessions ")


def test_a_dry_run_changes_nothing(backend: StateBackend, cli: Cli, later: Chain) -> None:
    """It names what would be migrated, and leaves every byte and name."""
    session_id = old(backend, 1)
    before = released_files.contents(backend.directory)
    result = cli("migrate", "--all", "--dry-run")
    assert result.exit_code == 0
    assert session_id in result.stdout
    assert "outdated" in result.stdout
    assert "1 session to be migrated" in result.stderr
    assert released_files.contents(backend.directory) == before


def test_one_bad_file_does_not_stop_the_rest(backend: StateBackend, cli: Cli, later: Chain) -> None:
    """Damaged, newer and unversioned files are listed with the reason; the exit code is 1."""
    made = [old(backend, number) for number in range(5)]
    damage(backend, made[0])
    rewrite(backend, made[1], "PRAGMA user_version = 9")
    rewrite(backend, made[2], "PRAGMA user_version = 0")
    (backend.directory / "notes.sqlite").write_bytes(b"notes")
    result = cli("migrate", "--all", "--json")
    assert result.exit_code == 1
    found = {row["session_id"]: (row["outcome"], row["from_version"]) for row in parsed(result)}
    assert found == {
        made[0]: ("failed", None),
        made[1]: ("newer", 9),
        made[2]: ("failed", None),
        made[3]: ("migrated", 1),
        made[4]: ("migrated", 1),
        "notes": ("failed", None),
    }
    assert all(row["problem"] for row in parsed(result) if row["outcome"] != "migrated")


def test_a_live_session_is_skipped_and_named(backend: StateBackend, cli: Cli, later: Chain) -> None:
    """What an older program writes is left to it; asked for alone, it is refused."""
    live, other = old(backend, 1), old(backend, 2)
    holder = chains.start(
        "import sys, time\n"
        "from statebackend import StateBackend\n"
        "with StateBackend(sys.argv[1]).open(sys.argv[2]):\n"
        "    print('open', flush=True)\n"
        "    time.sleep(120)\n",
        backend.directory,
        live,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    result = cli("migrate", "--all")
    assert result.exit_code == 1
    assert f"{live}  live" in result.stdout
    assert f"process {holder.pid}" in result.stdout
    assert cli("migrate", live).exit_code == 4
    holder.kill()
    holder.communicate()
    assert versions(backend)[other] == 5
    assert cli("migrate", live).exit_code == 0
    assert versions(backend)[live] == 5


def test_one_session_ends_with_its_own_code(backend: StateBackend, cli: Cli, later: Chain) -> None:
    """3 missing, 4 newer, 5 damaged, 2 neither ids nor --all, or both."""
    made = [old(backend, number) for number in range(3)]
    rewrite(backend, made[0], "PRAGMA user_version = 9")
    damage(backend, made[1])
    assert cli("migrate", made[0]).exit_code == 4
    assert cli("migrate", made[1]).exit_code == 5
    assert cli("migrate", SAMPLE.stem).exit_code == 3
    assert cli("migrate", made[0], made[2]).exit_code == 1
    assert cli("migrate").exit_code == 2
    assert cli("migrate", "--all", made[0]).exit_code == 2


def test_a_missing_folder_has_no_sessions(backend: StateBackend, cli: Cli) -> None:
    """There is nothing to do, and nothing is made."""
    result = cli("migrate", "--all", "--json")
    assert (result.exit_code, parsed(result)) == (0, [])
    assert "no sessions" in cli("migrate", "--all").stderr
    assert not backend.directory.exists()


def test_a_run_that_is_broken_off_goes_on(backend: StateBackend, later: Chain) -> None:
    """What was migrated stays; the next run does the rest."""
    for number in range(6):
        old(backend, number)
    results = migrate_each(backend.directory)
    assert [next(results).outcome for _ in range(2)] == [MigrationOutcome.MIGRATED] * 2
    del results
    outcomes = [result.outcome for result in migrate_each(backend.directory, threads=3)]
    assert outcomes == [MigrationOutcome.CURRENT] * 2 + [MigrationOutcome.MIGRATED] * 4


def test_a_session_open_in_this_process_is_current(backend: StateBackend, later: Chain) -> None:
    """What this process has open it has brought to the current version; its locks stay."""
    session_id = old(backend, 1)
    with backend.open(session_id):
        (result,) = migrate_each(backend.directory)
    assert result.outcome is MigrationOutcome.CURRENT
    assert header.read_header(path_of(backend, session_id)).user_version == 5


def _read_all(terminal: io.FileIO) -> str:
    """Read until every process has closed the terminal; Linux then raises an error."""
    drawn = b""
    with suppress(OSError):
        while some := terminal.read(4096):
            drawn += some
    return drawn.decode()


def test_progress_is_for_a_terminal(tmp_path: Path, backend: StateBackend) -> None:
    """On a terminal stderr shows how far it is; stdout has the result alone."""
    site = chains.copy_program(tmp_path, 5)
    for number in range(30):
        old(backend, number)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "statebackend", "migrate", "--all", "--json"],
        env={**chains.environment(site), "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=slave,
        text=True,
    )
    os.close(slave)
    with ThreadPoolExecutor(1) as pool, os.fdopen(master, "rb", buffering=0) as terminal:
        drawing = pool.submit(_read_all, terminal)
        printed = process.communicate(timeout=60)[0]
        drawn = drawing.result(timeout=60)
    assert process.returncode == 0
    assert "Migrating" in drawn
    assert printed.count('"migrated"') == 30
