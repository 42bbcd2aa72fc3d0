"""Migrating: many old files through two native steps, and finding out that a file is current.

The released chain has one version, so this process plays a later one, with the tests' chain.
``python -m benchmarks.migrating CHAIN_FOLDER SESSIONS`` migrates a folder in a process of its own
and prints the peak of its memory, in bytes, after the first files and after all.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import bare
from benchmarks.lab import Lab
from benchmarks.listing import folder_of_sessions
from benchmarks.measure import AnswersDiffer, Figure, Rounds, interleave, must_equal, ratio
from benchmarks.memory import peak_bytes
from benchmarks.processes import run_python
from benchmarks.samples import TABLES
from statebackend.bulk.migration import migrate_each
from statebackend.opening import write
from statebackend.schema import migrate
from statebackend.values.recorded import SCHEMA_VERSION
from statebackend.values.reports import MigrationOutcome
from tests.chains import make_chain, program_of

_THREADS = 4  # as many as `statebackend migrate` takes
_VERSION = 3
_STEPS = (
    "ALTER TABLE events ADD COLUMN size_bytes INTEGER",
    "CREATE INDEX idx_cost_ledger_event ON cost_ledger (event_sequence)",
)
_WARM = 20
_MB = 1024 * 1024
_IMMUTABLE = "?mode=ro&immutable=1"
_FLEET = (
    "from statebackend.bulk.migration import migrate_each; from pathlib import Path; import sys"
)
_OUTCOMES = f"{_FLEET}; print(*[one.outcome for one in migrate_each(Path(sys.argv[1]))])"
_VISIT = (
    "import sys; from statebackend import StateBackend; backend = StateBackend(sys.argv[1]); "
    "backend.open(sys.argv[2]).close(); backend.read(sys.argv[2]).close(); print('visited')"
)


def many(lab: Lab) -> Iterator[Figure]:
    """Migrate many files, the integrity check and a claim included on both sides."""
    all_of_them, some = lab.size(2_000, 100), lab.size(300, 30)
    with folder_of_sessions(lab, all_of_them) as source, lab.folder() as folder:
        one_round = _taken(lab, source, folder, all_of_them, rounds=1, threads=_THREADS)
        grown = _memory(lab, source)
        several, few = lab.size(5, 2), lab.size(3, 2)
        by_threads = _taken(lab, source, folder, some, rounds=several, threads=_THREADS)
        one_by_one = _taken(lab, source, folder, some, rounds=few, threads=1)
    what = "migrate {:,} files, two steps, {}"
    threads = f"{_THREADS} threads"
    yield ratio(what.format(all_of_them, threads), one_round, target=3.5, items=all_of_them)
    yield ratio(what.format(some, threads), by_threads, target=3.5, items=some)
    yield ratio(what.format(some, "1 thread"), one_by_one, target=None, items=some)
    yield grown


def current(lab: Lab) -> Iterator[Figure]:
    """Find out that a file is current, against asking SQLite for its version."""
    count, rounds = lab.size(300, 50), lab.size(31, 5)
    with folder_of_sessions(lab, count) as directory, lab.folder() as folder:
        paths = sorted(directory.glob("*.sqlite"), reverse=True)
        _must_not_load_alembic(directory, paths[0].stem)
        # An open asks its connection once more. It is a connection on another file here: `_look`
        # sees to it that this process has none on the file that it looks at.
        other = folder / "opening.sqlite"
        shutil.copyfile(paths[0], other)
        with closing(bare.connect(other)) as driver:
            look = partial(_look_at_each, paths, driver)
            ask = partial(_ask_each, paths, "")
            ask_immutable = partial(_ask_each, paths, _IMMUTABLE)
            visit = partial(_visit_each, directory)
            for side in (look, ask_immutable, visit):
                must_equal("version of a current file", side(), ask())
            against_plain = interleave(look, ask, rounds=rounds)
            against_immutable = interleave(look, ask_immutable, rounds=rounds)
            by_fleet = interleave(visit, ask, rounds=rounds)
    yield ratio("version check at open, current file", against_plain, target=2.0, items=count)
    what = "version check at open, against an immutable look"
    yield ratio(what, against_immutable, target=None, items=count)
    yield ratio("version check by migrate_each, 1 thread", by_fleet, target=None, items=count)


def _taken(
    lab: Lab, source: Path, folder: Path, count: int, *, rounds: int, threads: int
) -> Rounds:
    """Time both sides on copies of the first *count* sessions; compare every file afterwards."""
    chain = make_chain(folder, _VERSION)
    with lab.folder() as copies, program_of(chain):
        warm, *timed = [
            tuple(_copied(source, copies / f"{number}-{side}", size) for side in ("ours", "bare"))
            for number, size in enumerate([min(count, _WARM)] + [count] * rounds)
        ]
        os.sync()  # so that no flush of a timed side has to write the copies too
        _migrate_ours(warm[0], threads)
        _migrate_bare(warm[1])
        _must_agree(*warm)
        for_ours, for_bare = iter(timed), iter(timed)
        taken = interleave(
            lambda: _migrate_ours(next(for_ours)[0], threads),
            lambda: _migrate_bare(next(for_bare)[1]),
            rounds=rounds,
        )
        for pair in timed:
            _must_agree(*pair)
    return taken


def _copied(source: Path, directory: Path, count: int) -> Path:
    directory.mkdir()
    for path in sorted(source.glob("*.sqlite"))[:count]:
        shutil.copyfile(path, directory / path.name)
    return directory


def _migrate_ours(directory: Path, threads: int) -> None:
    for result in migrate_each(directory, threads=threads):
        if result.outcome is not MigrationOutcome.MIGRATED:
            raise AnswersDiffer(f"{result.session_id}: {result.outcome}, {result.error}")


def _migrate_bare(directory: Path) -> None:
    locks = directory / ".locks"
    locks.mkdir()
    for path in _newest_first(directory):
        with _claimed(locks / f"{path.stem}.lock"), closing(bare.connect(path)) as driver:
            bare.check(driver)
            driver.execute("BEGIN IMMEDIATE")
            for step in _STEPS:
                driver.execute(step)
            driver.execute(f"PRAGMA user_version = {_VERSION}")
            driver.execute("COMMIT")


def _newest_first(directory: Path) -> list[Path]:
    names = [entry.name for entry in os.scandir(directory) if entry.name.endswith(".sqlite")]
    return [directory / name for name in sorted(names, reverse=True)]


@contextmanager
def _claimed(lock: Path) -> Iterator[None]:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
        lock.unlink()
    finally:
        os.close(descriptor)


def _must_agree(ours: Path, plain: Path) -> None:
    """Compare the version, the schema and every row of all files, and the names of all files."""
    names = [sorted(path.name for path in directory.iterdir()) for directory in (ours, plain)]
    must_equal("migrated files", *names)
    for path in _newest_first(ours):
        must_equal(f"migrated {path.name}", _content(path), _content(plain / path.name))


def _content(path: Path) -> list[list[tuple[object, ...]]]:
    # Immutable, so that reading makes no WAL; the listings show that there is none.
    with closing(sqlite3.connect(f"file:{path}{_IMMUTABLE}", uri=True)) as driver:
        return [
            driver.execute(question).fetchall()
            for question in (
                "PRAGMA user_version",
                "SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2",
                *(f"SELECT * FROM {name} ORDER BY 1, 2" for name in TABLES),
            )
        ]


def _memory(lab: Lab, source: Path) -> Figure:
    """Migrate all in a process of its own: its peak must not grow with the number of files."""
    with lab.folder() as folder:
        count = len(list(source.glob("*.sqlite")))
        directory = _copied(source, folder / "sessions", count)
        printed = run_python("-m", "benchmarks.migrating", str(folder), str(directory))
    early, late = (int(word) / _MB for word in printed.split())
    what = f"peak memory of {count:,} migrations above first {_first(count)}"
    grown = late - early
    return Figure(what, f"{late:.1f} MB", "", grown, grown, grown, target=5, unit="MB")


def _first(count: int) -> int:
    return count // 10


def _print_peaks(folder: Path, directory: Path) -> None:
    count = len(_newest_first(directory))
    early = 0
    with program_of(make_chain(folder, _VERSION)):
        for number, result in enumerate(migrate_each(directory, threads=_THREADS), start=1):
            assert result.outcome is MigrationOutcome.MIGRATED, result.error
            if number == _first(count):
                early = peak_bytes()
    print(early, peak_bytes())


def _look_at_each(paths: list[Path], driver: sqlite3.Connection) -> list[int]:
    versions = []
    for path in paths:
        found = write.check_header(path)
        assert found is not None
        assert migrate.user_version(driver) == SCHEMA_VERSION
        versions.append(found.user_version)
    return versions


def _ask_each(paths: list[Path], how: str) -> list[int]:
    versions = []
    for path in paths:
        driver = sqlite3.connect(f"file:{path}{how}", uri=True)
        (version,) = driver.execute("PRAGMA user_version").fetchone()
        driver.close()
        versions.append(version)
    return versions


def _visit_each(directory: Path) -> list[int | None]:
    results = list(migrate_each(directory))
    must_equal("migrate_each", {one.outcome for one in results}, {MigrationOutcome.CURRENT})
    return [one.from_version for one in results]


def _must_not_load_alembic(directory: Path, session_id: str) -> None:
    """Visit a current file in new processes, in which nothing else could have loaded it."""
    loaded = "print('loaded:', *[one for one in ('alembic', 'sqlalchemy') if one in sys.modules])"
    for code, allowed in ((_OUTCOMES, set()), (_VISIT, {"sqlalchemy"})):
        answer = run_python("-c", f"{code}; {loaded}", str(directory), session_id)
        if extra := set(answer.rpartition("loaded:")[2].split()) - allowed:
            raise AnswersDiffer(f"a current file loads {', '.join(sorted(extra))}")


if __name__ == "__main__":
    _print_peaks(*map(Path, sys.argv[1:]))
