"""The migration runner, on the test's chain with versions 2 to 5, on real files."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from statebackend import (
    EventKind,
    MigrationFailed,
    Producer,
    SchemaOutdated,
    SchemaTooNew,
    SessionDamaged,
    SessionStatus,
    StateBackend,
    StorageFull,
)
from statebackend.bulk.migration import migrate_each
from statebackend.schema import migrate
from statebackend.schema.migrate import Chain
from statebackend.sqlite import engine
from statebackend.values.reports import MigrationOutcome
from tests import chains, fingerprints, released_files
from tests.chains import SAMPLE, make_chain, program_of, upgrade_file
from tests.migration_kills import kill_rounds, populated, structure

TOOL = Producer("tool", "shell", "1")
SAMPLE_ID = SAMPLE.stem
COLUMNS_OF_VERSION_1 = {table: rows.columns for table, rows in released_files.rows(SAMPLE).items()}


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """Return the chain that ends at version 5."""
    return make_chain(tmp_path / "program", 5)


@pytest.fixture
def old(backend: StateBackend) -> Path:
    """Return a session file of version 1 with 1,000 events, in the test's folder."""
    backend.directory.mkdir(mode=0o700, parents=True)
    return Path(shutil.copy(SAMPLE, backend.directory))


@pytest.fixture
def later(chain: Chain) -> Iterator[Chain]:
    """Let this process be the program of version 5."""
    with program_of(chain):
        yield chain


def version(path: Path) -> int:
    """Return the ``user_version`` in the header of a closed file."""
    return int.from_bytes(path.read_bytes()[60:64], "big")


def change(path: Path, *statements: str) -> None:
    """Change a closed file by raw SQL, as another program might."""
    driver = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        driver.execute(statement)
    driver.close()


def fails(path: Path, chain: Chain) -> MigrationFailed:
    """Migrate *path*, which must fail and leave every byte of its folder alone."""
    before = released_files.contents(path.parent)
    with pytest.raises(MigrationFailed) as caught:
        upgrade_file(path, chain)
    assert released_files.contents(path.parent) == before
    return caught.value


# -- the ladder ------------------------------------------------------------------------------------


@pytest.mark.conformance("SB-32")
@pytest.mark.parametrize("start", [1, 2, 3, 4])
def test_a_file_of_every_version_comes_to_the_last_and_keeps_its_rows(
    old: Path, tmp_path: Path, start: int
) -> None:
    """Whatever the version, the rows stay and the structure becomes that of a new file."""
    expected = released_files.rows(old)
    upgrade_file(old, make_chain(tmp_path / "start", start))
    assert version(old) == start
    last = make_chain(tmp_path / "last", 5)
    assert upgrade_file(old, last) == start
    assert released_files.rows(old, COLUMNS_OF_VERSION_1) == expected
    assert (version(old), fingerprints.of_file(old)) == (5, structure(last))


@pytest.mark.conformance("SB-30")
def test_a_new_file_is_made_at_the_last_version(backend: StateBackend, later: Chain) -> None:
    """A session created by the later program needs no migration."""
    with backend.create("x") as session:
        session.append(EventKind.TOOL_CALL, producer=TOOL, payload=b"x", schema_version="1")
    assert version(session.path) == 5
    assert fingerprints.of_file(session.path) == structure(later)


@pytest.mark.conformance("SB-32")
def test_every_public_read_works_on_a_migrated_file(
    backend: StateBackend, old: Path, later: Chain
) -> None:
    """A populated old file is migrated by open, and every read gives what was there (report 41)."""
    with backend.open(SAMPLE_ID) as session:
        assert session.counts().events == len(list(session.events())) == 1000
        assert len(list(session.costs())) == len(list(session.plan_items())) == 200
        assert session.producers()
        assert session.missing_producers([])
        assert session.cost_totals().rows == 200
        assert session.open_tool_calls(lambda _event: None)
        assert session.info.session_id == SAMPLE_ID
    assert [info.session_id for info in backend.list()] == [SAMPLE_ID]
    assert backend.tree(SAMPLE_ID).nodes
    assert backend.cost(SAMPLE_ID).own.rows == 200
    assert released_files.problems(SAMPLE, backend.directory.parent / "again") == []


def test_a_migrated_session_goes_on_at_the_next_number(
    backend: StateBackend, old: Path, later: Chain
) -> None:
    """An append after the migration gets the number after the highest ever given out."""
    with backend.open(SAMPLE_ID) as session:
        session.set_status(SessionStatus.RUNNING)
        event = session.append(EventKind.TOOL_CALL, producer=TOOL, payload=b"x", schema_version="1")
    assert event.sequence == 1001


@pytest.mark.conformance("SB-32")
def test_reading_an_old_file_migrates_it_first(
    backend: StateBackend, old: Path, later: Chain
) -> None:
    """A reader never sees an old schema."""
    with backend.read(SAMPLE_ID) as view:
        assert len(list(view.events())) == 1000
    assert version(old) == 5


def test_a_listing_reads_an_old_file_and_leaves_it(
    backend: StateBackend, old: Path, later: Chain
) -> None:
    """A scan does not migrate, by SB-27; all versions share the columns that it reads."""
    before = released_files.contents(backend.directory)
    (info,) = backend.list()
    assert info.session_id == SAMPLE_ID
    assert released_files.contents(backend.directory) == before


def test_revisions_are_known_by_id_not_by_their_bytes(old: Path, tmp_path: Path) -> None:
    """With CRLF line ends in the revisions an old file opens all the same (report 37)."""
    chain = make_chain(tmp_path, 5)
    for path in chain.versions.glob("*.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert upgrade_file(old, chain) == 1
    assert version(old) == 5


@pytest.mark.slow
def test_a_large_session_keeps_count_and_digest(backend: StateBackend, later: Chain) -> None:
    """200,000 events: the same count, the same payloads, the same numbers (report 42)."""
    path = populated(backend.directory, 200_000)
    expected = released_files.rows(path, {"events": COLUMNS_OF_VERSION_1["events"]})
    with backend.open(path.stem):
        pass
    assert released_files.rows(path, {"events": COLUMNS_OF_VERSION_1["events"]}) == expected
    assert version(path) == 5


# -- what goes wrong ---------------------------------------------------------------------------

WAYS_TO_FAIL = {
    "raises": "raise RuntimeError('no')",
    "bad SQL": "op.execute('SELECT * FROM nothing')",
    "orphans child rows": "op.execute('DELETE FROM events WHERE sequence = 2')",
    "commits": "op.get_bind().commit()",
    "commits on the driver": "op.get_bind().connection.driver_connection.commit()",
    "COMMIT": "op.execute('COMMIT')",
    "END": "op.execute('END')",
    "ROLLBACK": "op.execute('ROLLBACK')",
    "rolls back": "op.get_bind().rollback()",
    "executescript": "op.get_bind().connection.driver_connection.executescript('SELECT 1;')",
    "autocommit_block": "with op.get_context().autocommit_block():\n    op.execute('SELECT 1')",
    "ATTACH": "op.execute(\"ATTACH ':memory:' AS other\")",
    "batch_alter_table": "with op.batch_alter_table('events') as b:\n    b.drop_column('payload')",
    "SQLite ends the transaction": (
        "try:\n"
        '    op.execute("INSERT OR ROLLBACK INTO events SELECT * FROM events LIMIT 1")\n'
        "except Exception:\n"
        "    op.execute(\"UPDATE session_meta SET profile = 'changed'\")"
    ),
    "swallows a refused commit": (
        "import contextlib\n"
        "with contextlib.suppress(Exception):\n"
        "    op.get_bind().commit()\n"
        "op.execute(\"UPDATE session_meta SET profile = 'changed'\")\n"
        "raise RuntimeError('no')"
    ),
}


@pytest.mark.conformance("SB-32")
@pytest.mark.parametrize("body", WAYS_TO_FAIL.values(), ids=WAYS_TO_FAIL.keys())
def test_a_revision_that_fails_leaves_the_file_alone(old: Path, tmp_path: Path, body: str) -> None:
    """However the last of three steps fails, the file is byte for byte as it was."""
    changed_first = "op.execute('ALTER TABLE session_meta ADD COLUMN half TEXT')\n"
    error = fails(old, make_chain(tmp_path / "bad", 3, {3: changed_first + body}))
    assert (error.from_version, error.to_version, error.path) == (1, 3, old)
    assert "\n" not in str(error)
    assert upgrade_file(old, make_chain(tmp_path / "good", 5)) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_ends_a_migration_and_undoes_it(
    old: Path, tmp_path: Path, error: type[BaseException]
) -> None:
    """Ctrl-C in a revision comes out as it is, and the file is as it was."""
    body = f"op.execute('DELETE FROM events')\nraise {error.__name__}"
    chain = make_chain(tmp_path / "bad", 2, {2: body})
    before = released_files.contents(old.parent)
    with pytest.raises(error):
        upgrade_file(old, chain)
    assert released_files.contents(old.parent) == before


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_step_that_stopped_between_its_statements_is_done_whole_next_time(
    old: Path, tmp_path: Path, after: int
) -> None:
    """A step of three statements, broken off anywhere, is completed later (report 36)."""
    statements = [
        "op.execute('ALTER TABLE session_meta ADD COLUMN one TEXT')",
        "op.execute('CREATE INDEX two ON events(timestamp)')",
        "op.execute(\"UPDATE session_meta SET one = 'x'\")",
    ]
    broken = [*statements[:after], "raise RuntimeError", *statements[after:]]
    fails(old, make_chain(tmp_path / "broken", 2, {2: "\n".join(broken)}))
    upgrade_file(old, make_chain(tmp_path / "whole", 2, {2: "\n".join(statements)}))
    assert version(old) == 2


def test_the_failing_check_for_others(tmp_path: Path) -> None:
    """The check that ``statebackend.testing`` offers finds nothing on the released chain."""
    assert released_files.problems_of_failing(SAMPLE, tmp_path) == []


def test_a_full_disk_is_not_the_revisions_fault(old: Path, chain: Chain) -> None:
    """What the system refused is a storage error, and the file is as it was."""
    before = released_files.contents(old.parent)
    connection = engine.connect_for_writing(old)
    driver = engine.driver_of(connection)
    (pages,) = driver.execute("PRAGMA page_count").fetchone()
    driver.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageFull):
        migrate.upgrade(connection, old, chain)
    connection.close()
    assert released_files.contents(old.parent) == before


def test_references_that_were_broken_before_do_not_stop_a_migration(
    old: Path, chain: Chain
) -> None:
    """A salvaged file, with ledger rows whose event is lost, migrates and keeps them."""
    change(old, "DELETE FROM events WHERE sequence IN (2, 3, 7)")
    expected = released_files.rows(old)
    upgrade_file(old, chain)
    assert released_files.rows(old, COLUMNS_OF_VERSION_1) == expected


def test_enforcing_references_is_switched_on_again(old: Path, tmp_path: Path, chain: Chain) -> None:
    """After a migration, and after one that failed, references are enforced as before."""
    connection = engine.connect_for_writing(old)
    driver = engine.driver_of(connection)
    with pytest.raises(MigrationFailed):
        migrate.upgrade(connection, old, make_chain(tmp_path / "bad", 2, {2: "raise RuntimeError"}))
    assert driver.execute("PRAGMA foreign_keys").fetchone() == (1,)
    migrate.upgrade(connection, old, chain)
    assert driver.execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert driver.execute("SELECT count(*) FROM temp.sqlite_schema").fetchone() == (0,)
    connection.close()


def test_revisions_that_are_not_one_line_are_refused(old: Path, tmp_path: Path) -> None:
    """A gap in the numbers, or a missing last revision, is told before anything is run."""
    chain = make_chain(tmp_path / "short", 3)
    assert "end at version 3" in str(fails(old, Chain(chain.versions, 4)))
    (chain.versions / "0002_event_size.py").unlink()
    fails(old, Chain(chain.versions, 3))


# -- versions that cannot be believed --------------------------------------------------------------


@pytest.mark.conformance("SB-31")
@pytest.mark.parametrize("found", [2, 6, 2**31 - 1])
def test_a_newer_file_is_refused_untouched(backend: StateBackend, old: Path, found: int) -> None:
    """Open, read, list and migrate name both versions and change nothing (reports 38)."""
    change(old, f"PRAGMA user_version = {found}")
    before = released_files.contents(backend.directory)
    for attempt in (backend.open, backend.read):
        with pytest.raises(SchemaTooNew) as caught:
            attempt(SAMPLE_ID)
        assert (caught.value.found_version, caught.value.supported_version) == (found, 1)
    (listed,) = backend.list()
    assert str(found) in str(getattr(listed, "problem", ""))
    (result,) = migrate_each(backend.directory)
    assert (result.outcome, result.from_version) == (MigrationOutcome.NEWER, found)
    with pytest.raises(SchemaTooNew):
        upgrade_file(old, migrate.SESSIONS)
    shutil.rmtree(backend.directory / ".locks", ignore_errors=True)
    assert released_files.contents(backend.directory) == before


@pytest.mark.parametrize("found", [0, -1])
def test_a_session_that_lost_its_version_is_damaged(
    backend: StateBackend, old: Path, found: int
) -> None:
    """Version 0 with a session's tables, and a negative one, are never guessed at (report 39)."""
    change(old, f"PRAGMA user_version = {found}")
    before = released_files.contents(backend.directory)
    with pytest.raises(SessionDamaged, match="no schema version"):
        backend.read(SAMPLE_ID)
    (result,) = migrate_each(backend.directory)
    assert result.outcome is MigrationOutcome.FAILED
    assert released_files.contents(backend.directory) == before
    with backend.open(SAMPLE_ID) as session:
        assert session.recovery is not None


def test_tables_without_a_version_are_not_migrated(old: Path, chain: Chain) -> None:
    """The runner itself refuses version 0 with tables, by saying so and not by a clash of names."""
    change(old, "PRAGMA user_version = 0")
    assert "has tables but no version" in str(fails(old, chain))


def test_version_0_without_tables_gets_the_whole_schema(tmp_path: Path, chain: Chain) -> None:
    """An empty database is brought up from the first revision, which is how new files are made."""
    path = tmp_path / "empty.sqlite"
    change(path, "PRAGMA journal_mode = WAL")
    assert upgrade_file(path, chain) == 0
    assert fingerprints.of_file(path) == structure(chain)


STAMPED = "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"


@pytest.mark.conformance("SB-09")
@pytest.mark.parametrize("stamps", ["('0001')", None])
def test_a_stamp_that_agrees_is_taken_away(old: Path, chain: Chain, stamps: str | None) -> None:
    """A stray ``alembic_version`` that tells nothing else is gone after the migration."""
    change(old, STAMPED, *([f"INSERT INTO alembic_version VALUES {stamps}"] if stamps else []))
    upgrade_file(old, chain)
    assert fingerprints.of_file(old) == structure(chain)


@pytest.mark.parametrize("stamps", ["('0003')", "('a1b2c3')", "('0001'), ('0002')"])
def test_a_stamp_that_disagrees_stops_the_migration(old: Path, chain: Chain, stamps: str) -> None:
    """Unknown, later and double stamps are named beside the ``user_version`` (report 44)."""
    change(old, STAMPED, f"INSERT INTO alembic_version VALUES {stamps}")
    message = str(fails(old, chain))
    assert "its user_version 1" in message
    assert stamps[2:6] in message


@pytest.mark.parametrize("stamp", ["0001", "0009"])
def test_a_stamp_in_a_current_file_is_not_looked_at(
    backend: StateBackend, old: Path, stamp: str
) -> None:
    """Only ``user_version`` decides: such a session opens and reads as ever."""
    change(old, STAMPED, f"INSERT INTO alembic_version VALUES ('{stamp}')")
    with backend.open(SAMPLE_ID) as session:
        assert session.counts().events == 1000


# -- the host's logging ----------------------------------------------------------------------------


class Keeper(logging.Handler):
    """A host's handler that uses sessions: it appends to one, and opens an old one."""

    def __init__(self, backend: StateBackend, session_id: str, old_id: str) -> None:
        super().__init__()
        self._backend, self._old_id = backend, old_id
        self.session = backend.open(session_id)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Append the message, and at the first one open the old file."""
        first = not self.records
        self.records.append(record.name)
        if first:
            self._backend.open(self._old_id).close()
        self.session.append(
            EventKind.TOOL_CALL,
            producer=TOOL,
            payload=record.getMessage().encode(),
            schema_version="1",
        )


@pytest.mark.parametrize("thread", [False, True], ids=["in this thread", "in another it waits for"])
def test_a_log_handler_may_use_sessions(
    backend: StateBackend, chain: Chain, thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler appends to a session and migrates another file inside a migration (report 47)."""
    # Other tools in this process may have switched off the loggers that they found.
    monkeypatch.setattr(logging.getLogger("alembic.runtime.migration"), "disabled", False)
    backend.directory.mkdir(mode=0o700, parents=True)
    ids = [_renamed(backend, number) for number in range(2)]
    with program_of(chain):
        with backend.create("log") as log:
            pass
        handler = Keeper(backend, log.session_id, ids[1])
        outermost: logging.Handler = Elsewhere(handler) if thread else handler
        logger = logging.getLogger("alembic")
        level = logger.level
        logger.addHandler(outermost)
        logger.setLevel(logging.INFO)
        try:
            backend.open(ids[0]).close()
        finally:
            logger.removeHandler(outermost)
            logger.setLevel(level)
        assert handler.records
        assert handler.session.counts().events == len(handler.records)
        handler.session.close()
    for session_id in ids:
        path = backend.directory / f"{session_id}.sqlite"
        assert version(path) == 5
        assert released_files.rows(path, {"events": ["payload"]}) == released_files.rows(
            SAMPLE, {"events": ["payload"]}
        )


class NoLock(nullcontext[None]):
    """What a handler takes for its lock: all may pass at once."""

    def acquire(self) -> None:
        """Wait for nobody."""

    def release(self) -> None:
        """Let nobody in, since nobody waits."""


class Elsewhere(logging.Handler):
    """Hands each record to another handler in a new thread, and waits for it."""

    def __init__(self, inner: logging.Handler) -> None:
        super().__init__()
        self._inner = inner

    def createLock(self) -> None:  # noqa: N802 - logging's name
        """Hold no lock while waiting: the other thread logs too."""
        self.lock = NoLock()  # type: ignore[assignment]

    def emit(self, record: logging.LogRecord) -> None:
        """Wait for the other thread, at most ten seconds."""
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self._inner.emit, record).result(timeout=10)


def _renamed(backend: StateBackend, number: int) -> str:
    """Put a copy of the sample under an id of its own into the folder."""
    session_id = f"{SAMPLE_ID[:-2]}A{number}"
    path = backend.directory / f"{session_id}.sqlite"
    shutil.copy(SAMPLE, path)
    change(path, f"UPDATE session_meta SET session_id = '{session_id}'")
    return session_id


def test_alembic_is_not_heard_while_it_is_imported(tmp_path: Path) -> None:
    """A handler at the first record of a new process finds a whole Alembic, and may create."""
    code = """
import logging, sys
from statebackend import StateBackend
class Handler(logging.Handler):
    seen = []
    def emit(self, record):
        self.seen.append(record.name)
        if len(self.seen) == 1:
            backend.create("inner").close()
logging.getLogger().addHandler(Handler())
logging.getLogger("alembic").setLevel(logging.INFO)
backend = StateBackend(sys.argv[1])
backend.create("outer").close()
assert Handler.seen
print(len(list(backend.ids())), logging.getLogger("alembic.runtime.plugins").filters)
"""
    assert chains.run(code, tmp_path / "sessions") == "2 []\n"


def test_a_migration_says_nothing_and_leaves_logging_alone(tmp_path: Path) -> None:
    """Nothing on stdout or stderr; the host's loggers emit as before (report 46)."""
    site = chains.copy_program(tmp_path, 5)
    folder = tmp_path / "sessions"
    folder.mkdir(mode=0o700)
    shutil.copy(SAMPLE, folder)
    code = """
import logging, sys
from statebackend import StateBackend
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
host = logging.getLogger("host")
def state():
    loggers = [logging.getLogger()] + [logging.getLogger(n) for n in ("host", "alembic")]
    return [(x.level, x.handlers, x.disabled, x.propagate, x.filters) for x in loggers]
before = state()
StateBackend(sys.argv[1]).open(sys.argv[2]).close()
assert state() == before
host.warning("still heard")
"""
    process = chains.start(code, folder, SAMPLE_ID, site=site)
    assert process.communicate(timeout=60) == ("still heard\n", "")
    assert version(folder / SAMPLE.name) == 5


# -- threads and processes -------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_threads_migrate_many_files_at_once(
    backend: StateBackend, chain: Chain, rounds: int
) -> None:
    """Eight files by eight threads: each gets its own steps and keeps its rows, in every round."""
    expected = released_files.rows(SAMPLE, {"events": COLUMNS_OF_VERSION_1["events"]})
    for one_round in range(rounds):
        folder = StateBackend(backend.directory.parent / f"round-{one_round}")
        folder.directory.mkdir(mode=0o700)
        ids = [_renamed(folder, number) for number in range(8)]
        migrate.load_steps.cache_clear()
        with program_of(chain), ThreadPoolExecutor(8) as pool:
            list(pool.map(partial(_open, folder), ids))
        for session_id in ids:
            path = folder.directory / f"{session_id}.sqlite"
            assert released_files.rows(path, {"events": COLUMNS_OF_VERSION_1["events"]}) == expected
            assert fingerprints.of_file(path) == structure(chain)


def _open(backend: StateBackend, session_id: str) -> None:
    backend.open(session_id).close()


OPEN = """
import sys
from statebackend import SessionLocked, StateBackend
try:
    StateBackend(sys.argv[1]).open(sys.argv[2]).close()
    print("opened")
except SessionLocked:
    print("locked")
"""


def test_processes_open_one_old_file_at_once(tmp_path: Path) -> None:
    """Of eight, one migrates; the others are refused, or find it done (SB-05)."""
    site = chains.copy_program(tmp_path, 5)
    folder = tmp_path / "sessions"
    folder.mkdir(mode=0o700)
    path = Path(shutil.copy(SAMPLE, folder))
    processes = [chains.start(OPEN, folder, SAMPLE_ID, site=site) for _ in range(8)]
    printed = [process.communicate(timeout=60) for process in processes]
    assert {out for out, _errors in printed} <= {"opened\n", "locked\n"}, printed
    assert ("opened\n", "") in printed
    assert version(path) == 5
    assert released_files.rows(path, COLUMNS_OF_VERSION_1) == released_files.rows(SAMPLE)


HOLD = """
import sys
from statebackend import Producer, StateBackend
with StateBackend(sys.argv[1]).open(sys.argv[2]) as session:
    print("open", flush=True)
    sys.stdin.read()
"""


def _held(folder: Path) -> subprocess.Popen[str]:
    """Start a program of version 1 that has the session open for writing."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, folder, SAMPLE_ID],
        env=chains.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def test_a_file_that_an_older_program_writes_is_not_migrated(
    backend: StateBackend, old: Path, chain: Chain
) -> None:
    """Readers are told that it is outdated, and who has it; migrate skips it (report 43)."""
    holder = _held(backend.directory)
    with program_of(chain):
        with pytest.raises(SchemaOutdated, match=str(holder.pid)) as caught:
            backend.read(SAMPLE_ID)
        assert (caught.value.found_version, caught.value.required_version) == (1, 5)
        for dry_run in (True, False):
            (result,) = migrate_each(backend.directory, dry_run=dry_run)
            assert (result.outcome, result.from_version) == (MigrationOutcome.LIVE, 1)
        holder.communicate()
        with backend.read(SAMPLE_ID) as view:
            assert view.counts().events == 1000
    assert version(old) == 5


def test_an_old_file_in_a_read_only_folder_is_outdated(chain: Chain) -> None:
    """Where it cannot be migrated, a reader is told why; nothing is half done."""
    code = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from statebackend import SchemaOutdated, StateBackend
from statebackend.schema.migrate import Chain
from tests.chains import program_of
if os.geteuid() == 0:  # who passes every check of rights
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
with program_of(Chain(Path(sys.argv[4]), 5)):
    try:
        StateBackend(sys.argv[1]).read(sys.argv[2])
    except SchemaOutdated as error:
        print(error.found_version, error.required_version)
"""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(SAMPLE, folder)
        shutil.copytree(chain.versions, folder / "chain")
        (folder / SAMPLE.name).chmod(0o444)
        folder.chmod(0o555)
        before = released_files.contents(folder)
        done = subprocess.run(
            [sys.executable, "-B", "-c", code, folder, SAMPLE_ID, chains.ROOT, folder / "chain"],
            # Coverage could not write its figures as that user, and would say so.
            env={k: v for k, v in chains.environment().items() if not k.startswith("COVERAGE_")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("1 5\n", "")
        assert released_files.contents(folder) == before
        folder.chmod(0o755)


@pytest.mark.crash
def test_readers_of_an_old_file_wait_for_the_one_that_migrates_it(old: Path, chain: Chain) -> None:
    """5 processes that read it at once all see every event, and none is refused."""
    code = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from statebackend import StateBackend
from statebackend.schema.migrate import Chain
from tests.chains import program_of
backend = StateBackend(sys.argv[1])
with program_of(Chain(Path(sys.argv[4]), 5)):
    sys.stdin.read()
    with backend.read(sys.argv[2]) as view:
        print(view.counts().events)
"""
    arguments = [old.parent, SAMPLE_ID, chains.ROOT, chain.versions]
    readers = [
        subprocess.Popen(
            [sys.executable, "-B", "-c", code, *map(str, arguments)],
            env=chains.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(5)
    ]
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.close()
        reader.stdin = None
    assert [reader.communicate()[0] for reader in readers] == ["1000\n"] * 5
    assert version(old) == 5


# -- kill -9 ---------------------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.conformance("SB-32")
@pytest.mark.parametrize("kills", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_a_killed_migration_leaves_a_whole_version(tmp_path: Path, kills: int) -> None:
    """At any moment: the old file or the migrated one, no mixture, and open goes on."""
    found = kill_rounds(tmp_path, kills, seed=kills)
    assert found["old"] + found["new"] == kills
    assert found["old"]


# -- what it costs ---------------------------------------------------------------------------------


def test_alembic_is_not_imported_for_a_current_file(tmp_path: Path) -> None:
    """Opening a current session compares a number and goes on."""
    folder = tmp_path / "sessions"
    folder.mkdir(mode=0o700)
    shutil.copy(SAMPLE, folder)
    code = """
import sys
from statebackend import StateBackend
StateBackend(sys.argv[1]).open(sys.argv[2]).close()
print([name for name in sys.modules if name.partition(".")[0] == "alembic"])
"""
    assert chains.run(code, folder, SAMPLE_ID) == "[]\n"
