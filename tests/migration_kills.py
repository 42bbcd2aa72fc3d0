"""kill -9 at random moments of a migration of 30,000 events, and what is then found.

``python -m tests.migration_kills 300`` prints the tally; the tests do some.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from statebackend.files.paths import sqlite_uri
from statebackend.schema import migrate
from statebackend.schema.fingerprint import Fingerprint
from statebackend.sqlite import engine
from tests import chains, fingerprints, released_files

EVENTS = 30_000
# Forks a child for each line that it reads (folder, id, seconds), and kills that after so long.
_KILLER = """
import os, signal, sys, time
from alembic.migration import MigrationContext
from statebackend import StateBackend
from statebackend.opening import write
from statebackend.schema import migrate
migrate.load_steps(migrate.SESSIONS)
for line in sys.stdin:
    folder, session_id, seconds = line.split()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        StateBackend(folder).open(session_id).close()
        os._exit(0)
    time.sleep(float(seconds))
    if float(seconds):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(time.monotonic() - started, flush=True)
"""


class Killer:
    """A process of the later program, which migrates files in children and kills them."""

    def __init__(self, site: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _KILLER],
            env=chains.environment(site),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def migrate(self, path: Path, kill_after_s: float = 0.0) -> float:
        """Migrate *path*, kill that if asked to, and return how many seconds it went on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{path.parent} {path.stem} {kill_after_s}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)


def kill_rounds(folder: Path, kills: int, seed: int = 1) -> Counter[str]:
    """Kill so many migrations in the empty *folder*; return how often what was found.

    ``old`` and ``new`` are whole files of the version before and of the last one, ``in the log``
    those old ones that had uncommitted pages in their write-ahead log. Anything else, a lost row,
    or a next open that does not go on, is an AssertionError.
    """
    original = populated(folder / "original", EVENTS)
    columns = {table: rows.columns for table, rows in released_files.rows(original).items()}
    expected = released_files.rows(original)
    chain = chains.make_chain(folder / "chain", 5)
    structures = {1: fingerprints.of_file(original), 5: structure(chain)}
    killer, dice = Killer(chains.copy_program(folder, 5)), random.Random(seed)
    found = Counter[str]()
    try:
        duration = killer.migrate(_copy(original, folder / "timed"))
        for _number in range(kills):
            path = _copy(original, folder / "killed")
            killer.migrate(path, dice.uniform(duration / 1000, duration * 1.1))
            log = path.with_name(f"{path.name}-wal")
            logged = log.exists() and log.stat().st_size > 0
            version = _version(path)
            assert fingerprints.of_file(path) == structures[version]
            assert released_files.rows(path, columns) == expected
            killer.migrate(path)
            assert _version(path) == 5
            assert fingerprints.of_file(path) == structures[5]
            assert released_files.rows(path, columns) == expected
            found["new" if version == 5 else "old"] += 1
            found["in the log"] += logged and version == 1
            shutil.rmtree(path.parent)
    finally:
        killer.end()
    return found


def populated(folder: Path, events: int) -> Path:
    """Put a copy of the sample, given so many events by raw SQL, into the new *folder*."""
    path = _copy(chains.SAMPLE, folder)
    driver = sqlite3.connect(path, isolation_level=None)
    driver.execute(
        f"WITH RECURSIVE n(i) AS (SELECT 1001 UNION ALL SELECT i + 1 FROM n WHERE i < {events}) "
        "INSERT INTO events SELECT i, 'e' || i, '2025-01-01T00:00:00.000Z', 'tool_call', 'tool', "
        "'shell', '1', '1', CAST(i || '-payload' AS BLOB) FROM n"
    )
    driver.close()
    return path


def structure(chain: migrate.Chain) -> Fingerprint:
    """Return the structure of a new file of *chain*."""
    connection = engine.connect_in_memory()
    try:
        migrate.upgrade(connection, Path(":memory:"), chain)
        return fingerprints.of_connection(engine.driver_of(connection))
    finally:
        connection.close()


def _copy(original: Path, folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True)
    return Path(shutil.copy(original, folder))


def _version(path: Path) -> int:
    driver = sqlite3.connect(sqlite_uri(path, "mode=ro"), uri=True)
    try:
        return int(driver.execute("PRAGMA user_version").fetchone()[0])
    finally:
        driver.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asked = int(sys.argv[1])
        tally = kill_rounds(Path(name), asked, seed=random.randrange(1 << 30))
        sys.stdout.write(
            f"{asked} kills: {tally['old']} old ({tally['in the log']} with pages in the log), "
            f"{tally['new']} new, 0 mixed\n"
        )
