"""The report on one file: what SQLite's own check does not see, and that nothing is changed."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from statebackend import (
    Recovery,
    SchemaTooNew,
    SessionNotFound,
    SessionUnreadable,
    StateBackend,
    TableRecovery,
)
from statebackend.errors import StorageBusy
from statebackend.files import recovery_reports
from statebackend.files.paths import SessionFiles
from statebackend.schema.migrate import Chain
from statebackend.sqlite import settings
from statebackend.testing import damage_page, flip_bits, truncate
from statebackend.values.reports import FindingCode
from statebackend.values.tables import COLUMNS, SEQUENCED
from statebackend.values.timestamps import from_text, now
from statebackend.verifying import row_checks
from statebackend.verifying.verify import verify_file
from tests.chains import make_chain, program_of
from tests.session_files import (
    UNKNOWN_ID,
    call,
    damage_index,
    full,
    killed_writer,
    new,
    path_of,
    snapshot,
    sql,
)

PLACED = {"value", "foreign_key", "ledger", "plan", "producer", "sequence", "gap", "shape"}


@pytest.fixture
def path(backend: StateBackend) -> Path:
    """Return the file of a closed session with a row of everything."""
    return path_of(backend, full(backend))


def find(path: Path) -> list[tuple[str, str, str, int]]:
    """Return severity, code, place and count of each finding about *path*.

    The place is the table, column or index that the text begins with, for codes that have one.
    """
    findings = verify_file(path)
    assert {finding.what for finding in findings} <= set(get_args(FindingCode))
    return [
        (
            finding.severity,
            finding.what,
            finding.text.partition(":")[0] if finding.what in PLACED else "",
            finding.count,
        )
        for finding in findings
    ]


def find_damage(path: Path) -> set[str]:
    """Return the codes of all damage."""
    return {finding.what for finding in verify_file(path) if finding.severity == "damage"}


def change(path: Path, *statements: str) -> None:
    """Change a closed file as another program would, without its references being enforced."""
    for statement in statements:
        sql(path, statement)


def test_a_sound_session_has_no_findings_and_keeps_its_folder(path: Path) -> None:
    """Neither a byte nor a name changes, nor any time of change."""
    before = snapshot(path.parent)
    assert find(path) == []
    assert snapshot(path.parent) == before


def test_an_open_session_is_checked_beside_its_writer(backend: StateBackend, path: Path) -> None:
    """Also by the process that writes it, which keeps its claim and its locks."""
    with backend.create("default") as session:
        call(session)
        assert find(session.path) == []
        call(session)
        assert find(session.path) == []
        assert SessionFiles(session.path).wal.exists()


def test_what_a_killed_writer_left_is_sound_and_stays(backend: StateBackend) -> None:
    """Its WAL is read, and not checkpointed."""
    path = path_of(backend, killed_writer(backend))
    for file in path.parent.glob(path.name + "*"):
        file.chmod(0o600)
    before = snapshot(path.parent)
    assert find(path) == []
    # The shm holds where a reader stands in the WAL; that is not part of the session.
    after = snapshot(path.parent)
    assert {name for name in before if before[name] != after.get(name)} <= {f"{path}-shm"}
    assert before.keys() == after.keys()


def test_every_kind_of_event_is_sound(backend: StateBackend) -> None:
    """An empty session, a child, many events, a batch: nothing of ours is a finding."""
    parent = new(backend)
    for session_id in (parent, new(backend, parent_session_id=parent), new(backend, events=3_000)):
        assert find(path_of(backend, session_id)) == []


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        (
            "UPDATE events SET kind = 'mesage' WHERE sequence IN (1, 4)",
            ("problem", "value", "events.kind", 2),
        ),
        (
            "UPDATE events SET payload = 'text' WHERE sequence = 4",
            ("problem", "value", "events.payload", 1),
        ),
        (
            "UPDATE events SET schema_version = x'31' WHERE sequence = 4",
            ("problem", "value", "events.schema_version", 1),
        ),
        ("UPDATE events SET id = '' WHERE sequence = 4", ("problem", "value", "events.id", 1)),
        (
            "UPDATE events SET id = CAST(x'61ff' AS TEXT) WHERE sequence = 4",
            ("problem", "value", "events.id", 1),
        ),
        (
            "UPDATE events SET id = CAST(x'6100ff' AS TEXT) WHERE sequence = 4",
            ("problem", "value", "events.id", 1),
        ),
        (
            "UPDATE events SET timestamp = '2026-02-30T00:00:00.000Z' WHERE sequence = 4",
            ("problem", "value", "events.timestamp", 1),
        ),
        (
            "UPDATE cost_ledger SET input_tokens = -1",
            ("problem", "value", "cost_ledger.input_tokens", 1),
        ),
        (
            "UPDATE cost_ledger SET output_tokens = 'many'",
            ("problem", "value", "cost_ledger.output_tokens", 1),
        ),
        ("UPDATE cost_ledger SET cost_usd = -0.5", ("problem", "value", "cost_ledger.cost_usd", 1)),
        (
            "UPDATE cost_ledger SET cost_usd = 9e999",
            ("problem", "value", "cost_ledger.cost_usd", 1),
        ),
        (
            "UPDATE cost_ledger SET cost_usd = 'free'",
            ("problem", "value", "cost_ledger.cost_usd", 1),
        ),
        (
            "UPDATE plan_items SET decision = 'maybe' WHERE sequence = 2",
            ("problem", "value", "plan_items.decision", 1),
        ),
        ("UPDATE session_meta SET status = 'done'", ("problem", "value", "session_meta.status", 1)),
        (
            "UPDATE session_meta SET ended_at = 'later'",
            ("problem", "value", "session_meta.ended_at", 1),
        ),
        ("UPDATE session_meta SET parent_session_id = 'x'", ("problem", "meta", "", 1)),
        ("UPDATE session_meta SET parent_session_id = session_id", ("problem", "meta", "", 1)),
        ("UPDATE session_meta SET status = 'running'", ("problem", "meta", "", 1)),
        ("UPDATE session_meta SET ended_at = NULL", ("problem", "meta", "", 1)),
        ("DELETE FROM session_meta", ("damage", "integrity", "", 1)),
        ("UPDATE session_meta SET session_id = NULL", ("damage", "integrity", "", 1)),
        (
            (
                "INSERT INTO session_meta SELECT 'x', NULL, profile, status, depth, started_at, "
                "ended_at FROM session_meta"
            ),
            ("damage", "integrity", "", 1),
        ),
        ("UPDATE cost_ledger SET event_sequence = 4", ("problem", "ledger", "cost_ledger", 1)),
        ("UPDATE plan_items SET event_sequence = 4", ("problem", "plan", "plan_items", 2)),
        (
            "UPDATE cost_ledger SET event_sequence = 99",
            ("problem", "foreign_key", "cost_ledger", 1),
        ),
        (
            "INSERT INTO producers VALUES ('tool', 'other', '1', 4)",
            ("problem", "producer", "producers", 1),
        ),
        ("DELETE FROM producers WHERE category = 'tool'", ("problem", "producer", "producers", 1)),
        (
            "UPDATE producers SET first_seen_sequence = 1 WHERE category = 'tool'",
            ("problem", "producer", "producers", 1),
        ),
        (
            "UPDATE sqlite_sequence SET seq = 2 WHERE name = 'events'",
            ("problem", "sequence", "events", 1),
        ),
        (
            "UPDATE sqlite_sequence SET seq = 9223372036854775807 WHERE name = 'events'",
            ("problem", "sequence", "events", 1),
        ),
        (
            "UPDATE sqlite_sequence SET seq = 'x' WHERE name = 'events'",
            ("problem", "sequence", "events", 1),
        ),
        ("DELETE FROM sqlite_sequence WHERE name = 'events'", ("problem", "sequence", "events", 1)),
        (
            "UPDATE sqlite_sequence SET seq = 8 WHERE name = 'events'",
            ("problem", "gap", "events", 3),
        ),
        ("DELETE FROM plan_items WHERE sequence = 1", ("problem", "gap", "plan_items", 1)),
        ("CREATE TABLE other (x)", ("problem", "shape", "other", 1)),
        ("DROP INDEX idx_events_kind", ("problem", "shape", "idx_events_kind", 1)),
        ("DROP TABLE producers", ("damage", "integrity", "", 1)),
        ("PRAGMA user_version = 9", ("problem", "version", "", 1)),
        ("PRAGMA user_version = 0", ("damage", "integrity", "", 1)),
    ],
)
def test_what_sqlite_does_not_see_is_found(
    path: Path, statement: str, finding: tuple[str, str, str, int]
) -> None:
    """Each rule by a change that breaks it; SQLite's own check calls every one of these files ok.

    A file may break several rules at once.
    """
    change(path, statement)
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]
    assert finding in find(path)


def test_a_session_under_another_name_is_a_problem(path: Path) -> None:
    """The id in the row is the one that counts."""
    other = path.rename(path.with_name(f"{UNKNOWN_ID}.sqlite"))
    assert find(other) == [("problem", "session", "", 1)]


def test_a_file_whose_name_is_no_id_is_a_problem(path: Path) -> None:
    """It cannot be opened, so its content is not checked."""
    odd = path.with_name("junk.sqlite")
    odd.write_bytes(b"junk")
    assert find(odd) == [("problem", "file", "", 1)]


def test_gaps_of_any_number_are_counted_whole(backend: StateBackend) -> None:
    """Only so many ranges are named."""
    path = path_of(backend, new(backend, events=300))
    change(path, "DELETE FROM events WHERE sequence % 3 = 0 OR sequence BETWEEN 11 AND 14")
    (gap,) = [finding for finding in verify_file(path) if finding.what == "gap"]
    assert gap.count == _missing(path)
    assert gap.text.startswith("events: 103 sequences are missing: 3, 6, 9, 11-15, 18,")
    assert gap.text.endswith("and 79 more ranges")


def _missing(path: Path) -> int:
    ((kept,),) = sql(path, "SELECT count(*) FROM events")
    return 300 - int(kept)


def test_what_a_recovery_reported_is_a_note(path: Path) -> None:
    """Missing rows and orphans that a report explains; more than that is a problem again."""
    change(path, "DELETE FROM events WHERE sequence IN (2, 5)")
    assert ("problem", "gap", "events", 2) in find(path)
    recovery = Recovery(
        session_id=path.stem,
        path=path,
        original=Path(f"{path}.corrupt"),
        report=Path(f"{path}.corrupt.json"),
        aside=None,
        recovered_at=now(),
        reasons=("malformed",),
        tables=(
            TableRecovery(table="events", kept=3, missing=((1, 2), (5, 5)), routes={}),
            TableRecovery(table="cost_ledger", kept=1, routes={}, orphaned=1),
        ),
        derived=(),
        notes=(),
    )
    Path(f"{path}.corrupt.json").write_text(recovery_reports.to_text(recovery))
    found = find(path)
    assert ("note", "gap", "events", 2) in found
    assert ("note", "foreign_key", "cost_ledger", 1) in found
    change(path, "DELETE FROM events WHERE sequence = 3")
    assert ("problem", "gap", "events", 2) in find(path)


@pytest.mark.parametrize("page", ["events", "cost_ledger", "session_meta", 1])
def test_a_page_of_noise_is_damage(path: Path, page: int | str) -> None:
    """Whatever page it is, and the checks continue after it."""
    damage_page(path, page)
    assert find_damage(path)


def test_an_empty_index_is_damage_and_the_rows_are_read(path: Path) -> None:
    """SQLite's own lines are findings, and the rows are checked as well."""
    damage_index(path)
    sql(path, "UPDATE session_meta SET status = 'running'")
    assert find_damage(path) == {"integrity"}
    assert ("problem", "meta", "", 1) in find(path)


def test_at_most_100_findings_of_a_code(backend: StateBackend) -> None:
    """Thousands of broken index entries, and many unknown tables, are a hundred findings each."""
    path = path_of(backend, new(backend, events=3_000))
    damage_index(path)
    for number in range(120):
        sql(path, f"CREATE TABLE other{number:03} (x)")
    found = verify_file(path)
    shape = [finding for finding in found if finding.what == "shape"]
    assert len(shape) == sum(finding.what == "integrity" for finding in found) == 100
    assert sum(finding.count for finding in shape) >= 240


@pytest.mark.parametrize("size", [0, 50, 5_000, -4_096, -1])
def test_a_file_cut_short_is_damage(path: Path, size: int) -> None:
    """To nothing, inside the header, inside a page, at the end of one."""
    truncate(path, size)
    time.sleep(0.12)  # a file that has just been changed may have a writer: SQLite would ask
    before = snapshot(path.parent)
    assert find_damage(path)
    assert snapshot(path.parent) == before


def test_a_journal_is_damage_and_is_not_rolled_back(path: Path) -> None:
    """SQLite does not open the file."""
    Path(f"{path}-journal").write_bytes(b"\xd9\xd5\x05\xf9 and more")
    Path(f"{path}-journal").chmod(0o600)
    before = snapshot(path.parent)
    assert find(path) == [("damage", "header", "", 1)]
    assert snapshot(path.parent) == before


def test_flipped_bits_never_end_the_report(backend: StateBackend) -> None:
    """Whatever is flipped, there is a report, and the file stays as it is."""
    path = path_of(backend, new(backend, events=200))
    whole = path.read_bytes()
    found = 0
    for seed in range(40):
        path.write_bytes(whole)
        flip_bits(path, 60, seed=seed)
        before = path.read_bytes()
        found += bool(verify_file(path))
        assert path.read_bytes() == before
    assert found == 40


def test_links_rights_and_odd_files(path: Path, tmp_path: Path) -> None:
    """Other names, permissions for other users, and a sidecar that is a symbolic link."""
    path.chmod(0o640)
    (path.parent / "second").hardlink_to(path)
    assert find(path) == [("problem", "link", "", 1), ("problem", "rights", "", 1)]
    Path(f"{path}-shm").symlink_to(tmp_path)
    assert ("problem", "sidecar", "", 1) in find(path)


def test_what_is_not_a_regular_file_is_not_opened(path: Path) -> None:
    """A symbolic link, a folder, a file of which only the damaged original is left, and none."""
    real = path.rename(path.with_name("real"))
    path.symlink_to(real)
    assert find(path) == [("problem", "file", "", 1)]
    path.unlink()
    with pytest.raises(SessionNotFound):
        verify_file(path)
    real.rename(f"{path}.corrupt")
    assert find(path) == [("problem", "file", "", 1)]


def test_a_refusal_of_the_system_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another program keeps locked is a storage error."""
    monkeypatch.setattr(settings, "BUSY_TIMEOUT_MS", 50)
    change(path, "PRAGMA journal_mode = DELETE", "UPDATE session_meta SET status = 'running'")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageBusy):
            verify_file(path)


@pytest.fixture
def later(tmp_path: Path, backend: StateBackend) -> Chain:
    """Return a chain of a later version."""
    return make_chain(tmp_path / "program", 5)


def test_an_older_file_is_compared_with_its_own_version(
    path: Path, backend: StateBackend, later: Chain
) -> None:
    """What a later version added is not missing; that the file is older is a note."""
    with program_of(later):
        old = find(path)
        backend.open(path.stem).close()
        assert find(path) == []
    assert old == [("note", "version", "", 1)]


def test_every_column_has_rules() -> None:
    """In the order of the tables; three tables are numbered by SQLite."""
    assert {table: tuple(rules) for table, rules in row_checks.RULES.items()} == COLUMNS
    assert SEQUENCED == ("events", "cost_ledger", "plan_items")


def test_sql_and_python_agree_on_times() -> None:
    """What the check calls a time is what a reader gets as one."""
    chosen = random.Random(7)
    texts = ["now", "", "2460000.5", "2026-01-01T24:00:00.000Z", "2026-01-01 00:00:00.000Z"]
    texts += ["0000-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000+00:00", "2026-01-01"]
    texts += [
        f"{chosen.randrange(1, 10_000):04}-{chosen.randrange(14):02}-{chosen.randrange(33):02}T"
        f"{chosen.randrange(26):02}:{chosen.randrange(62):02}:{chosen.randrange(62):02}."
        f"{chosen.randrange(1000):03}Z"
        for _ in range(5_000)
    ]
    _text, condition = row_checks._time("t")[-1]
    with closing(sqlite3.connect(":memory:")) as driver:
        for text in texts:
            (wrong,) = driver.execute(
                f"SELECT {condition} FROM (SELECT ? AS t)", (text,)
            ).fetchone()
            assert bool(wrong) == isinstance(from_text(text), str), text


def test_damage_is_what_opening_recovers(backend: StateBackend, tmp_path: Path) -> None:
    """The report says damage exactly where opening for writing salvages."""
    path = path_of(backend, full(backend))
    whole, sound = path.read_bytes(), 0
    for seed in range(40):
        path.write_bytes(whole)
        flip_bits(path, 12, seed=seed)
        damaged = bool(find_damage(path))
        try:
            with backend.open(path.stem) as session:
                recovered = session.recovery is not None
        except SchemaTooNew:
            recovered = False
        except SessionUnreadable:
            recovered = Path(f"{path}.corrupt").exists()
        for name in path.parent.glob("*.corrupt*"):
            name.unlink()
        assert recovered == damaged, seed
        sound += not damaged
    assert 0 < sound < 40


def test_a_recovery_that_was_cut_off_is_damage(path: Path) -> None:
    """The damaged file has both names until the next open for writing finishes it."""
    damage_page(path, "producers")
    Path(f"{path}.corrupt").hardlink_to(path)
    Path(f"{path}.recovering").touch()
    assert find(path) == [("damage", "unfinished", "", 1)]


def test_a_wal_broken_before_its_last_commit_is_damage(backend: StateBackend) -> None:
    """SQLite would ignore the commits behind the broken frame, without an error."""
    path = path_of(backend, killed_writer(backend))
    wal = SessionFiles(path).wal
    size = wal.stat().st_size
    flip_bits(wal, 1, first=32 + 24, last=32 + 24 + 4_095)
    assert wal.stat().st_size == size
    assert find_damage(path) == {"wal"}


def test_a_file_with_a_trigger_is_not_a_session(path: Path) -> None:
    """Opening refuses it, and says the same."""
    sql(path, "CREATE TRIGGER t AFTER INSERT ON events BEGIN SELECT 1; END")
    found = find(path)
    assert ("problem", "session", "", 1) in found
    assert ("problem", "shape", "t", 1) in found


def test_a_page_that_only_a_check_of_rows_reads(backend: StateBackend) -> None:
    """It is damage, each text once."""
    path = path_of(backend, new(backend, events=400))
    damage_page(path, "events", b"\x0d\xff\xff")
    found = verify_file(path)
    assert find_damage(path)
    assert len(found) == len(set(found))


def test_the_damage_of_helpers_is_refused_where_it_cannot_be(path: Path) -> None:
    """A page, a table and a number of bits that are not there."""
    with pytest.raises(LookupError, match="no page 999"):
        damage_page(path, 999)
    with pytest.raises(LookupError, match="no table or index nothing"):
        damage_page(path, "nothing")
    with pytest.raises(ValueError, match="larger than"):
        flip_bits(path, 9, first=0, last=0)
    assert flip_bits(path, 8, first=0, last=0) == [0] * 8
