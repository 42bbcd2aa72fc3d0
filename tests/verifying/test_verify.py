"""The report on one file: what SQLite's own check does not see, and that nothing is changed."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

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
from statebackend.values.timestamps import from_text, now
from statebackend.verifying import row_checks, verify
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


@pytest.fixture
def path(backend: StateBackend) -> Path:
    """Return the file of a closed session with a row of everything."""
    return path_of(backend, full(backend))


def told(path: Path) -> list[str]:
    """Return the findings about *path*, each as one text."""
    return [
        f"{one.severity} {one.what}: {one.text} [{one.count}]" for one in verify.verify_file(path)
    ]


def change(path: Path, *statements: str) -> None:
    """Change a closed file as another program would, without its references being enforced."""
    for statement in statements:
        sql(path, statement)


def test_a_sound_session_has_no_findings_and_keeps_its_folder(path: Path) -> None:
    """Neither a byte nor a name changes, nor any time of change."""
    before = snapshot(path.parent)
    assert told(path) == []
    assert snapshot(path.parent) == before


def test_an_open_session_is_checked_beside_its_writer(backend: StateBackend, path: Path) -> None:
    """Also by the process that writes it, which keeps its claim and its locks."""
    with backend.create("default") as session:
        call(session)
        assert told(session.path) == []
        call(session)
        assert told(session.path) == []
        assert SessionFiles(session.path).wal.exists()


def test_what_a_killed_writer_left_is_sound_and_stays(backend: StateBackend) -> None:
    """Its log is read, and not folded in."""
    path = path_of(backend, killed_writer(backend))
    for file in path.parent.glob(path.name + "*"):
        file.chmod(0o600)
    before = snapshot(path.parent)
    assert told(path) == []
    # Where in the index of the log a reader stood is no part of the session.
    after = snapshot(path.parent)
    assert {name for name in before if before[name] != after.get(name)} <= {f"{path}-shm"}
    assert before.keys() == after.keys()


def test_every_kind_of_event_is_sound(backend: StateBackend) -> None:
    """An empty session, a child, many events, a batch: nothing of ours is a finding."""
    parent = new(backend)
    for session_id in (parent, new(backend, parent_session_id=parent), new(backend, events=3_000)):
        assert told(path_of(backend, session_id)) == []


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        (
            "UPDATE events SET kind = 'mesage' WHERE sequence IN (1, 4)",
            "problem value: events.kind: 2 rows with an unknown word, first row 1 [2]",
        ),
        (
            "UPDATE events SET payload = 'text' WHERE sequence = 4",
            "problem value: events.payload: 1 row with no bytes, first row 4 [1]",
        ),
        (
            "UPDATE events SET schema_version = x'31' WHERE sequence = 4",
            "problem value: events.schema_version: 1 row with no text, first row 4 [1]",
        ),
        (
            "UPDATE events SET id = '' WHERE sequence = 4",
            "problem value: events.id: 1 row with an empty text, first row 4 [1]",
        ),
        (
            "UPDATE events SET id = CAST(x'61ff' AS TEXT) WHERE sequence = 4",
            "problem value: events.id: 1 row with text that is not UTF-8, first row 4 [1]",
        ),
        (
            "UPDATE events SET id = CAST(x'6100ff' AS TEXT) WHERE sequence = 4",
            "problem value: events.id: 1 row with text that is not UTF-8, first row 4 [1]",
        ),
        (
            "UPDATE events SET timestamp = '2026-02-30T00:00:00.000Z' WHERE sequence = 4",
            (
                "problem value: events.timestamp: 1 row with no time of the stored form, first row "
                "4 [1]"
            ),
        ),
        (
            "UPDATE cost_ledger SET input_tokens = -1",
            "problem value: cost_ledger.input_tokens: 1 row with a number below 0, first row 1 [1]",
        ),
        (
            "UPDATE cost_ledger SET output_tokens = 'many'",
            "problem value: cost_ledger.output_tokens: 1 row with no integer, first row 1 [1]",
        ),
        (
            "UPDATE cost_ledger SET cost_usd = -0.5",
            "problem value: cost_ledger.cost_usd: 1 row with a negative amount, first row 1 [1]",
        ),
        (
            "UPDATE cost_ledger SET cost_usd = 9e999",
            "problem value: cost_ledger.cost_usd: 1 row with an infinite amount, first row 1 [1]",
        ),
        (
            "UPDATE cost_ledger SET cost_usd = 'free'",
            "problem value: cost_ledger.cost_usd: 1 row with no number, first row 1 [1]",
        ),
        (
            "UPDATE plan_items SET decision = 'maybe' WHERE sequence = 2",
            "problem value: plan_items.decision: 1 row with an unknown word, first row 2 [1]",
        ),
        (
            "UPDATE session_meta SET status = 'done'",
            "problem value: session_meta.status: 1 row with an unknown word, first row 1 [1]",
        ),
        (
            "UPDATE session_meta SET ended_at = 'later'",
            (
                "problem value: session_meta.ended_at: 1 row with no time of the stored form, "
                "first row 1 [1]"
            ),
        ),
        (
            "UPDATE session_meta SET parent_session_id = 'x'",
            "problem meta: its parent 'x' is no session id [1]",
        ),
        (
            "UPDATE session_meta SET parent_session_id = session_id",
            "problem meta: it is its own parent [1]",
        ),
        (
            "UPDATE session_meta SET status = 'running'",
            "problem meta: it says running, and has an end [1]",
        ),
        (
            "UPDATE session_meta SET ended_at = NULL",
            "problem meta: it does not say running, and has no end [1]",
        ),
        (
            "DELETE FROM session_meta",
            "damage integrity: session_meta holds no row [1]",
        ),
        (
            "UPDATE session_meta SET session_id = NULL",
            "damage integrity: session_meta holds no id [1]",
        ),
        (
            (
                "INSERT INTO session_meta SELECT 'x', NULL, profile, status, depth, started_at, "
                "ended_at FROM session_meta"
            ),
            "damage integrity: session_meta holds more than one row [1]",
        ),
        (
            "UPDATE cost_ledger SET event_sequence = 4",
            "problem ledger: cost_ledger: 1 row of an event that is no message [1]",
        ),
        (
            "UPDATE plan_items SET event_sequence = 4",
            "problem plan: plan_items: 2 rows of an event that is no plan [2]",
        ),
        (
            "UPDATE cost_ledger SET event_sequence = 99",
            (
                "problem foreign_key: cost_ledger: 1 row of an event that is not there, first row 1"
                " [1]"
            ),
        ),
        (
            "INSERT INTO producers VALUES ('tool', 'other', '1', 4)",
            "problem producer: producers: 1 row that no event names [1]",
        ),
        (
            "DELETE FROM producers WHERE category = 'tool'",
            "problem producer: producers: 1 row missing for producers of events [1]",
        ),
        (
            "UPDATE producers SET first_seen_sequence = 1 WHERE category = 'tool'",
            "problem producer: producers: 1 row whose first event is another producer's [1]",
        ),
        (
            "UPDATE sqlite_sequence SET seq = 2 WHERE name = 'events'",
            "problem sequence: events: its highest number is remembered as 2, but is 5 [1]",
        ),
        (
            "UPDATE sqlite_sequence SET seq = 9223372036854775807 WHERE name = 'events'",
            (
                "problem sequence: events: its highest number is remembered as "
                "9223372036854775807, but is 5 [1]"
            ),
        ),
        (
            "UPDATE sqlite_sequence SET seq = 'x' WHERE name = 'events'",
            "problem sequence: events: its highest number in sqlite_sequence is no number [1]",
        ),
        (
            "DELETE FROM sqlite_sequence WHERE name = 'events'",
            "problem sequence: events: has 0 rows in sqlite_sequence, must have one [1]",
        ),
        (
            "UPDATE sqlite_sequence SET seq = 8 WHERE name = 'events'",
            "problem gap: events: 3 sequences are missing: 6-8 [3]",
        ),
        (
            "DELETE FROM plan_items WHERE sequence = 1",
            "problem gap: plan_items: 1 sequence is missing: 1 [1]",
        ),
        (
            "CREATE TABLE other (x)",
            "problem shape: other: unexpected is table other [1]",
        ),
        (
            "DROP INDEX idx_events_kind",
            "problem shape: idx_events_kind: missing is index events [1]",
        ),
        ("DROP TABLE producers", "damage integrity: table producers is missing [1]"),
        (
            "PRAGMA user_version = 9",
            (
                "problem version: schema version 9, this program knows up to 1; update it (a "
                "damaged file header can look the same) [1]"
            ),
        ),
        (
            "PRAGMA user_version = 0",
            ("damage integrity: has no schema version (user_version 0) [1]"),
        ),
    ],
)
def test_what_sqlite_does_not_see_is_found(path: Path, statement: str, finding: str) -> None:
    """Each rule by a change that breaks it; SQLite's own check calls every one of these files ok.

    A file may break several rules at once.
    """
    change(path, statement)
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]
    assert finding in told(path)


def test_a_session_under_another_name_is_a_problem(path: Path) -> None:
    """The id in the row is the one that counts."""
    other = path.rename(path.with_name(f"{UNKNOWN_ID}.sqlite"))
    advice = "a session's file is named after its id, so rename it back"
    assert told(other) == [
        f"problem session: holds session '{path.stem}'; {advice} [1]",
    ]


def test_a_file_whose_name_is_no_id_is_a_problem(path: Path) -> None:
    """It cannot be opened, so nothing of it is called damage."""
    odd = path.with_name("junk.sqlite")
    odd.write_bytes(b"junk")
    (text,) = told(odd)
    assert text.startswith("problem file: its name is not a session id")
    assert "move it out of this folder" in text


def test_gaps_of_any_number_are_counted_whole(backend: StateBackend) -> None:
    """Only so many ranges are named."""
    path = path_of(backend, new(backend, events=300))
    change(path, "DELETE FROM events WHERE sequence % 3 = 0 OR sequence BETWEEN 11 AND 14")
    (gap,) = [one for one in verify.verify_file(path) if one.what == "gap"]
    assert gap.count == _missing(path)
    assert gap.text.startswith("events: 103 sequences are missing: 3, 6, 9, 11-15, 18,")
    assert gap.text.endswith("and 79 more ranges")


def _missing(path: Path) -> int:
    ((kept,),) = sql(path, "SELECT count(*) FROM events")
    return 300 - int(kept)


def test_what_a_recovery_reported_is_a_note(path: Path) -> None:
    """Missing rows and orphans that a report explains; more than that is a problem again."""
    change(path, "DELETE FROM events WHERE sequence IN (2, 5)")
    assert "problem gap: events: 2 sequences are missing: 2, 5 [2]" in told(path)
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
    found = told(path)
    assert "note gap: events: 2 sequences are missing: 2, 5, as a recovery reported [2]" in found
    assert (
        "note foreign_key: cost_ledger: 1 row of an event that is not there, first row 1, "
        "as a recovery reported [1]" in found
    )
    change(path, "DELETE FROM events WHERE sequence = 3")
    assert "problem gap: events: 2 sequences are missing: 2-3 [2]" in told(path)


@pytest.mark.parametrize("page", ["events", "cost_ledger", "session_meta", 1])
def test_a_page_of_noise_is_damage(path: Path, page: int | str) -> None:
    """Whatever page it is, and the checks go on after it."""
    damage_page(path, page)
    assert any(one.startswith("damage ") for one in told(path))


def test_an_empty_index_is_damage_and_the_rows_are_read(path: Path) -> None:
    """SQLite's own lines are told, and what else is wrong too."""
    damage_index(path)
    sql(path, "UPDATE session_meta SET status = 'running'")
    found = told(path)
    assert any(one.startswith("damage integrity: ") for one in found)
    assert "problem meta: it says running, and has an end [1]" in found


def test_at_most_100_findings_of_a_kind(backend: StateBackend) -> None:
    """Thousands of broken entries, and of tables nobody knows, are a hundred findings."""
    path = path_of(backend, new(backend, events=3_000))
    damage_index(path)
    for number in range(120):
        sql(path, f"CREATE TABLE other{number:03} (x)")
    found = verify.verify_file(path)
    for what in ("integrity", "shape"):
        assert sum(one.what == what for one in found) == 100
    assert [one for one in found if one.what == "shape"][-1].text.endswith(" more)")
    assert sum(one.count for one in found if one.what == "shape") >= 240


@pytest.mark.parametrize("size", [0, 50, 5_000, -4_096, -1])
def test_a_file_cut_short_is_damage(path: Path, size: int) -> None:
    """To nothing, inside the header, inside a page, at the end of one."""
    truncate(path, size)
    time.sleep(0.12)  # a file that has just been changed may have a writer: SQLite would ask
    before = snapshot(path.parent)
    assert any(one.startswith("damage ") for one in told(path))
    assert snapshot(path.parent) == before


def test_a_journal_is_damage_and_is_not_rolled_back(path: Path) -> None:
    """SQLite is not let near it."""
    Path(f"{path}-journal").write_bytes(b"\xd9\xd5\x05\xf9 and more")
    Path(f"{path}-journal").chmod(0o600)
    before = snapshot(path.parent)
    assert told(path) == ["damage header: has a hot rollback journal, and no session uses one [1]"]
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
        found += bool(verify.verify_file(path))
        assert path.read_bytes() == before
    assert found == 40


def test_links_rights_and_odd_files(path: Path, tmp_path: Path) -> None:
    """What the folder shows."""
    path.chmod(0o640)
    (path.parent / "second").hardlink_to(path)
    assert told(path) == [
        (
            "problem link: has a second name (a hard link), under which it could be written as well"
            " [1]"
        ),
        f"problem rights: others may open {path.name} (mode 0640); chmod 600 it [1]",
    ]
    Path(f"{path}-shm").symlink_to(tmp_path)
    assert any(one.startswith("problem sidecar: ") for one in told(path))


def test_what_is_no_file_is_told_and_not_opened(path: Path) -> None:
    """A symbolic link, a folder, a file of which only the damaged original is left, and none."""
    real = path.rename(path.with_name("real"))
    path.symlink_to(real)
    assert told(path) == ["problem file: is a symbolic link; a session must be a regular file [1]"]
    path.unlink()
    with pytest.raises(SessionNotFound):
        verify.verify_file(path)
    real.rename(f"{path}.corrupt")
    assert told(path) == [
        "problem file: the file is missing, only its damaged original is left (.sqlite.corrupt) [1]"
    ]


def test_a_refusal_of_the_system_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another program keeps locked is a storage error."""
    monkeypatch.setattr(settings, "BUSY_TIMEOUT_MS", 50)
    change(path, "PRAGMA journal_mode = DELETE", "UPDATE session_meta SET status = 'running'")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageBusy):
            verify.verify_file(path)


@pytest.fixture
def later(tmp_path: Path, backend: StateBackend) -> Chain:
    """Return a chain of a later version."""
    return make_chain(tmp_path / "program", 5)


def test_an_older_file_is_compared_with_its_own_version(
    path: Path, backend: StateBackend, later: Chain
) -> None:
    """It is no finding that it lacks what came later, only a note that it is old."""
    with program_of(later):
        old = told(path)
        backend.open(path.stem).close()
        assert told(path) == []
    assert old == ["note version: schema version 1; opening it brings it to 5 [1]"]


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
    (_told, condition) = row_checks._time("t")[-1]
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
        damaged = any(one.severity == "damage" for one in verify.verify_file(path))
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
    assert told(path) == [
        "damage unfinished: its recovery was interrupted; open it for writing to finish it [1]"
    ]


def test_a_log_broken_before_its_last_commit_is_damage(backend: StateBackend) -> None:
    """SQLite would leave the commits behind the broken frame out, and say nothing."""
    path = path_of(backend, killed_writer(backend))
    log = SessionFiles(path).wal
    size = log.stat().st_size
    flip_bits(log, 1, first=32 + 24, last=32 + 24 + 4_095)
    assert log.stat().st_size == size
    assert any(one.startswith("damage log: ") for one in told(path))


def test_no_name_but_that_of_a_session(path: Path) -> None:
    """Another database, and a trigger, are told as what opening refuses."""
    sql(path, "CREATE TRIGGER t AFTER INSERT ON events BEGIN SELECT 1; END")
    found = told(path)
    assert "problem session: has a trigger (t), which no session file has [1]" in found
    assert "problem shape: t: unexpected is trigger events [1]" in found


def test_a_page_that_only_a_check_of_rows_reads(backend: StateBackend) -> None:
    """A check that meets a broken page is told as damage, each text once."""
    path = path_of(backend, new(backend, events=400))
    damage_page(path, "events", b"\x0d\xff\xff")
    found = told(path)
    assert any(one.startswith("damage ") for one in found)
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
