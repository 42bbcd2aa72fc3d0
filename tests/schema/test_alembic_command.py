"""The ordinary ``alembic`` command on a session file, and on none."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from statebackend.schema.migrate import Chain
from tests import chains, fingerprints, released_files, revisions
from tests.chains import SAMPLE, make_chain

Alembic = Callable[..., "subprocess.CompletedProcess[str]"]
REVISION_1 = "0001 (head)\n"


def run_alembic(
    words: tuple[object, ...], site: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command as a process, with the checkout's or the installed settings file."""
    settings = (site / "statebackend" if site else chains.ROOT) / "alembic.ini"
    return subprocess.run(
        [sys.executable, "-m", "alembic", "-c", settings, *map(str, words)],
        env=chains.environment(site),
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a session file of version 1."""
    (tmp_path / "sessions").mkdir(mode=0o700)
    return Path(shutil.copy(SAMPLE, tmp_path / "sessions"))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return where the program of version 5 is, laid out as an installed wheel."""
    return chains.copy_program(tmp_path, 5)


def on(path: Path, *words: object, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``alembic -x session=PATH`` with these words."""
    return run_alembic(("-x", f"session={path}", *words), site)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line with which the command ended."""
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "FAILED" in line]
    return line


HOLD = """
import sqlite3, sys
driver = sqlite3.connect(sys.argv[1], isolation_level=None)
driver.execute("BEGIN IMMEDIATE")
driver.execute("UPDATE session_meta SET profile = 'not committed'")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_reading_commands_work_beside_a_writer_and_write_nothing(old: Path) -> None:
    """While another process holds the write lock they answer; no byte and no name changes."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, old],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        before = released_files.contents(old.parent)
        assert on(old, "current").stdout == REVISION_1
        assert "(current)" in on(old, "history", "-i").stdout
        assert "No new upgrade operations" in on(old, "check").stdout
        after = released_files.contents(old.parent)
        holder.communicate()
    # The -shm file also holds the marks of readers.
    assert {**after, f"{old.name}-shm": ""} == {**before, f"{old.name}-shm": ""}


def test_reading_commands_leave_a_closed_file_alone(old: Path) -> None:
    """Neither the file nor its folder is changed."""
    before = released_files.contents(old.parent)
    for words in (("current",), ("check",)):
        assert on(old, *words).returncode == 0
    assert released_files.contents(old.parent) == before


@pytest.mark.slow
@pytest.mark.conformance("SB-09")
def test_upgrade_and_stamp_from_an_installed_package(old: Path, site: Path, tmp_path: Path) -> None:
    """Steps one by one, a stamp that is true, and the last version; rows and structure hold."""
    rows = released_files.rows(old)
    columns = {table: one.columns for table, one in rows.items()}
    assert on(old, "current", site=site).stdout == "0001\n"
    assert on(old, "upgrade", "+1", site=site).returncode == 0
    assert on(old, "current", site=site).stdout == "0002\n"
    assert on(old, "stamp", "0002", site=site).returncode == 0
    assert on(old, "upgrade", "head", site=site).returncode == 0
    assert on(old, "current", site=site).stdout == "0005 (head)\n"
    assert released_files.rows(old, columns) == rows
    other = Path(shutil.copy(SAMPLE, tmp_path))
    chains.upgrade_file(other, make_chain(tmp_path / "chain", 5))
    assert fingerprints.of_file(old) == fingerprints.of_file(other)
    assert [path.name for path in (old.parent / ".locks").iterdir()] == []


@pytest.mark.slow
def test_a_stamp_that_is_not_true_is_refused(old: Path, site: Path) -> None:
    """A version whose tables the file does not have cannot be stamped; nothing changes."""
    before = old.read_bytes()
    assert "not those of version 3" in refused(on(old, "stamp", "0003", site=site))
    assert "not those of version 0" in refused(on(old, "stamp", "base"))
    assert old.read_bytes() == before


def test_without_a_session_there_is_a_new_schema() -> None:
    """Commands that look work on an empty database at the last revision; others want a file."""
    assert run_alembic(("current",)).stdout == REVISION_1
    assert "No new upgrade operations" in run_alembic(("check",)).stdout
    assert "0001 (head)" in run_alembic(("history",)).stdout
    assert "-x session=PATH" in refused(run_alembic(("upgrade", "head")))


def test_a_mistyped_path_is_refused_and_not_made(tmp_path: Path) -> None:
    """No command creates a file or a folder."""
    path = tmp_path / "nowhere" / SAMPLE.name
    for words in (("current",), ("upgrade", "head")):
        assert "no session" in refused(on(path, *words))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.conformance("SB-31")
def test_a_newer_file_is_refused_untouched(old: Path) -> None:
    """By every command, with both versions, before anything is written."""
    driver = sqlite3.connect(old)
    driver.execute("PRAGMA user_version = 9")
    driver.close()
    before = released_files.contents(old.parent)
    for words in (("current",), ("upgrade", "head"), ("stamp", "0001")):
        assert "schema version 9, this program knows up to 1" in refused(on(old, *words))
    assert released_files.contents(old.parent) == before
    assert list(old.parent.iterdir()) == [old]


@pytest.mark.slow
@pytest.mark.conformance("SB-05")
def test_a_session_that_a_program_writes_is_not_changed(old: Path) -> None:
    """Upgrade and stamp name the writer and stop."""
    holder = chains.start(
        "import sys, time\n"
        "from statebackend import StateBackend\n"
        "with StateBackend(sys.argv[1]).open(sys.argv[2]):\n"
        "    print('open', flush=True)\n"
        "    time.sleep(120)\n",
        old.parent,
        old.stem,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    for words in (("upgrade", "head"), ("stamp", "0001")):
        assert f"process {holder.pid}" in refused(on(old, *words))
    assert on(old, "current").stdout == REVISION_1
    holder.kill()
    holder.communicate()


def test_a_damaged_file_is_not_migrated(old: Path, site: Path) -> None:
    """The same check as at open comes first."""
    content = bytearray(old.read_bytes())
    content[8192:12288] = bytes(4096)
    old.write_bytes(content)
    assert "damaged" in refused(on(old, "upgrade", "head", site=site))
    assert old.read_bytes() == content


@pytest.mark.slow
def test_there_is_no_way_back(old: Path) -> None:
    """Downgrade says so, with or without a session."""
    assert "downgraded" in refused(on(old, "downgrade", "base"))
    assert "downgraded" in refused(run_alembic(("downgrade", "-1")))


def test_the_script_makes_a_whole_database(tmp_path: Path) -> None:
    """Upgrade --sql, run on an empty file, gives the tables and the version and nothing else."""
    done = run_alembic(("upgrade", "head", "--sql"))
    assert done.returncode == 0
    path = tmp_path / "made.sqlite"
    driver = sqlite3.connect(path)
    driver.executescript(done.stdout)
    assert driver.execute("PRAGMA user_version").fetchone() == (1,)
    driver.close()
    assert fingerprints.of_file(path) == fingerprints.of_file(SAMPLE)


@pytest.mark.slow
def test_the_script_of_native_steps(old: Path, site: Path) -> None:
    """A script from one version to another migrates a file; a rebuild cannot be written as one."""
    done = run_alembic(("upgrade", "0001:0003", "--sql"), site)
    driver = sqlite3.connect(old, isolation_level=None)
    driver.executescript(done.stdout)
    assert driver.execute("PRAGMA user_version").fetchone() == (3,)
    driver.close()
    assert on(old, "current", site=site).stdout == "0003\n"
    assert "cannot be rebuilt" in refused(run_alembic(("upgrade", "0003:0005", "--sql"), site))


@pytest.mark.slow
def test_a_new_revision_has_the_next_number(site: Path, old: Path) -> None:
    """Revision --autogenerate compares the models with a new file, and writes a sound revision."""
    models = site / "statebackend" / "schema" / "models.py"
    text = models.read_text(encoding="utf-8")
    column = "    ended_at: Mapped[str | None] = mapped_column(Text)\n"
    added = column + "    note: Mapped[str | None] = mapped_column(Text)\n"
    models.write_text(text.replace(column, added, 1), encoding="utf-8")
    assert on(old, "check", site=site).returncode != 0
    done = run_alembic(("revision", "--autogenerate", "-m", "add a note"), site)
    assert done.returncode == 0, done.stderr
    chain = migrate_chain(site, 6)
    source = (chain.versions / "0006_add_a_note.py").read_text(encoding="utf-8")
    assert "def upgrade(op: Operations) -> None:" in source
    assert 'op.add_column("session_meta"' in source.replace("'", '"')
    assert not [one for one in revisions.problems(chain) if one.startswith("0006")]


def migrate_chain(site: Path, version: int) -> Chain:
    """Return the chain of the program in *site*."""
    return Chain(site / "statebackend" / "migrations" / "sessions", version)


@pytest.mark.slow
def test_a_revision_that_the_program_does_not_use_yet_is_refused(old: Path, site: Path) -> None:
    """A file is never brought to a version that this program could not open."""
    done = run_alembic(("revision", "-m", "nothing yet"), site)
    assert done.returncode == 0, done.stderr
    assert (migrate_chain(site, 6).versions / "0006_nothing_yet.py").is_file()
    before = old.read_bytes()
    assert "SCHEMA_VERSION" in refused(on(old, "upgrade", "head", site=site))
    assert old.read_bytes() == before
