"""What is saved of a damaged session: all that the damage left, and nothing that never was."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from statebackend import SessionDamaged, StateBackend, TableRecovery
from tests.damage.bases import files_of, put
from tests.damaging import (
    NOISE,
    layout_of,
    overflow_pages,
    recover,
    same_rows,
    spoil,
    told,
)
from tests.session_files import (
    MODEL,
    START,
    call,
    cost,
    damage_index,
    full,
    item,
    killed_writer,
    new,
    overwrite,
    path_of,
    root_page,
    rows_of,
    run_python,
    sql,
)

ID = "01KJMG7C000000000000000001"
OTHER_ID = "01KJMG7C000000000000000002"


def beside(path: Path, ending: str) -> Path:
    """Return a name beside a session file."""
    return path.with_name(path.name + ending)


def large(backend: StateBackend, *sizes: int) -> Path:
    """Make a session with events of these sizes (bytes), each in pages of its own."""
    with backend.create("default") as session:
        for number, size in enumerate(sizes, 1):
            call(session, bytes([64 + number]) * size)
        return path_of(backend, session.session_id)


def sequences(path: Path, table: str = "events") -> set[int]:
    """Return the sequences that a table holds."""
    return {number for (number,) in sql(path, f"SELECT sequence FROM {table}")}


# -- pages of rows ---------------------------------------------------------------------------------


def test_a_lost_page_loses_its_rows_and_names_them(backend: StateBackend) -> None:
    """Of 400 events with 900 bytes each, four are gone, and 396 are as they were."""
    session_id = new(backend, events=400, size=900)
    path = path_of(backend, session_id)
    before = rows_of(path)["events"]
    leaves = layout_of(path).with_role("leaf events")
    spoil(path, leaves[len(leaves) // 2])
    recovery = recover(backend, session_id)
    events = told(recovery, "events")
    ((first, last),) = events.missing
    assert (last - first + 1, events.lost, events.kept) == (4, 4, 396)
    assert events.routes == {"page": 396}
    assert not recovery.complete
    assert rows_of(path)["events"] == [row for row in before if not first <= row[0] <= last]
    assert (
        sum(
            f"events sequence {number} is lost" in note
            for number in range(first, last + 1)
            for note in recovery.notes
        )
        == 4
    )


@pytest.mark.parametrize("name", ["events", "idx_events_kind", "sqlite_autoindex_events_1"])
def test_a_lost_root_loses_no_row(backend: StateBackend, name: str) -> None:
    """Every page is looked at, whoever points to it."""
    session_id = new(backend, events=300, size=300)
    path = path_of(backend, session_id)
    before = rows_of(path)
    spoil(path, root_page(path, name))
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)


@pytest.mark.parametrize("content", [bytes(4096), NOISE[:4096]])
def test_a_lost_schema_loses_no_row(backend: StateBackend, content: bytes) -> None:
    """A row's own header says which table it is of."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    before = rows_of(path)
    overwrite(path, 1, content)
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)


@pytest.mark.parametrize("page_size", [512, 1024, 16384, 65536])
def test_the_page_size_is_found_without_a_header(backend: StateBackend, page_size: int) -> None:
    """By where the cells of the pages end."""
    session_id = new(backend, events=120, size=400)
    path = path_of(backend, session_id)
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        driver.execute("PRAGMA journal_mode = DELETE").fetchone()
        driver.execute(f"PRAGMA page_size = {page_size}")
        driver.execute("VACUUM")
        driver.execute("PRAGMA journal_mode = WAL").fetchone()
    before = rows_of(path)
    with path.open("r+b") as file:
        file.write(bytes(100))
    assert told(recover(backend, session_id), "events").kept == 120
    assert rows_of(path)["events"] == before["events"]


def test_a_file_cut_short_keeps_what_is_left(backend: StateBackend) -> None:
    """Its tail is missing up to the number that its counter shows."""
    session_id = new(backend, events=300, size=300)
    path = path_of(backend, session_id)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 + 100)
    events = told(recover(backend, session_id), "events")
    assert events.kept + events.lost == 300
    assert events.kept > 100


def test_a_page_without_its_header_is_carved(backend: StateBackend) -> None:
    """The rows lie in it all the same."""
    session_id = new(backend, events=300, size=300)
    path = path_of(backend, session_id)
    before = rows_of(path)
    leaves = layout_of(path).with_role("leaf events")
    overwrite(path, leaves[4], NOISE[:40])
    events = told(recover(backend, session_id), "events")
    assert events.routes["carved"] > 5
    assert (events.kept, events.lost) == (300, 0)
    assert same_rows(backend, session_id, before)


def test_two_leaves_in_each_others_place_lose_nothing(backend: StateBackend) -> None:
    """The numbers of their rows tell."""
    session_id = new(backend, events=300, size=300)
    path = path_of(backend, session_id)
    before = rows_of(path)
    one, other = layout_of(path).with_role("leaf events")[3:5]
    swap(path, one, other)
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)


def swap(path: Path, one: int, other: int) -> None:
    """Write two pages in each other's place."""
    content = path.read_bytes()
    first = content[(one - 1) * 4096 : one * 4096]
    overwrite(path, one, content[(other - 1) * 4096 : other * 4096])
    overwrite(path, other, first)


def test_a_damaged_row_number_is_put_right(backend: StateBackend) -> None:
    """The index of ids knows it."""
    session_id = new(backend, events=100, size=300)
    path = path_of(backend, session_id)
    before = rows_of(path)
    row = layout_of(path).rows["events"][50,]
    _name, start, end = row.columns[0].pieces[0]
    assert end - start == 1
    content = bytearray(path.read_bytes())
    content[start] = 7
    path.write_bytes(content)
    recovery = recover(backend, session_id)
    assert told(recovery, "events").repaired == 1
    assert any("sequence (was 7)" in note for note in recovery.notes)
    assert same_rows(backend, session_id, before)


def test_a_page_written_twice_gives_no_row_twice(backend: StateBackend) -> None:
    """A misdirected write: the rows of the page that it hid are lost, no others are doubled."""
    session_id = new(backend, events=300, size=300)
    path = path_of(backend, session_id)
    leaves = layout_of(path).with_role("leaf events")
    content = path.read_bytes()
    overwrite(path, leaves[3], content[(leaves[6] - 1) * 4096 : leaves[6] * 4096])
    events = told(recover(backend, session_id), "events")
    assert (events.kept + events.lost, len(events.missing), events.set_aside) == (300, 1, 0)


# -- overflow pages --------------------------------------------------------------------------------


def test_a_zeroed_overflow_page_loses_its_row_only(backend: StateBackend) -> None:
    """A payload with a hole is not given out as whole."""
    path = large(backend, 9000, 9000, 9000, 20)
    row = layout_of(path).rows["events"][2,]
    overwrite(path, overflow_pages(row, 4096)[0], bytes(4096))
    assert told(recover(backend, path.stem), "events").missing == ((2, 2),)
    assert sequences(path) == {1, 3, 4}


def test_an_overflow_page_that_is_cut_off_loses_its_row_only(backend: StateBackend) -> None:
    """The end of its payload would be zeros."""
    path = large(backend, 9000, 9000, 9000)
    last = overflow_pages(layout_of(path).rows["events"][3,], 4096)[-1]
    assert last * 4096 == path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(last * 4096 - 4000)
    assert told(recover(backend, path.stem), "events").missing == ((3, 3),)
    assert sequences(path) == {1, 2}


@pytest.mark.parametrize("pointer", [b"\0\7\7\7", b"\0\0\0\1"])
def test_a_pointer_behind_the_last_overflow_page_does_no_harm(
    backend: StateBackend, pointer: bytes
) -> None:
    """Nobody follows it."""
    path = large(backend, 9000, 9000, 9000)
    before = rows_of(path)
    last = overflow_pages(layout_of(path).rows["events"][2,], 4096)[-1]
    overwrite(path, last, pointer)
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert told(recovery, "events").doubtful == 1  # the rest of that page may be hit as well
    assert not recovery.partial
    assert same_rows(backend, path.stem, before)


def test_a_last_pointer_into_another_rows_pages_does_no_harm(backend: StateBackend) -> None:
    """When all is known, that page is seen to be another's."""
    path = large(backend, 9000, 9000, 9000)
    before = rows_of(path)
    rows = layout_of(path).rows["events"]
    last = overflow_pages(rows[2,], 4096)[-1]
    overwrite(path, last, overflow_pages(rows[3,], 4096)[1].to_bytes(4, "big"))
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert told(recovery, "events").doubtful == 1  # the rest of that page may be hit as well
    assert not recovery.partial
    assert same_rows(backend, path.stem, before)


def test_of_two_rows_with_one_overflow_page_neither_is_believed(backend: StateBackend) -> None:
    """One of them points wrongly, and nothing says which; the first is in the side file."""
    path = large(backend, 9000, 9000, 9000)
    rows = layout_of(path).rows["events"]
    _name, _start, end = rows[3,].own[0]
    content = bytearray(path.read_bytes())
    content[end - 4 : end] = overflow_pages(rows[1,], 4096)[0].to_bytes(4, "big")
    path.write_bytes(content)
    recovery = recover(backend, path.stem)
    events = told(recovery, "events")
    assert (events.missing, events.set_aside) == (((1, 1), (3, 3)), 1)
    (line,) = aside(path)
    assert line["why"] == "its overflow pages are claimed by another row"
    assert line["row"]["sequence"] == 1


def test_swapped_overflow_pages_are_put_back(backend: StateBackend) -> None:
    """SQLite would give out both payloads with the other's piece in it."""
    path = large(backend, 20_000, 20_000, 20_000)
    before = rows_of(path)
    rows = layout_of(path).rows["events"]
    one, other = overflow_pages(rows[1,], 4096)[2], overflow_pages(rows[3,], 4096)[2]
    swap(path, one, other)
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert recovery.notes == (f"pages {one} and {other} were in each other's place",)
    assert same_rows(backend, path.stem, before)


def test_chains_through_pages_that_were_freed_are_left_alone(backend: StateBackend) -> None:
    """They go back and forth, and so two of them may look as if they had been swapped."""
    path = large(backend, 20_000, 20_000, 20_000)
    before = rows_of(path)
    rows = layout_of(path).rows["events"]
    (one_head, one, *_), (other_head, other, *_) = (
        overflow_pages(rows[number,], 4096) for number in (1, 3)
    )
    swap(path, one, other)
    with path.open("r+b") as file:
        for head, page in ((one_head, other), (other_head, one)):
            file.seek((head - 1) * 4096)
            file.write(page.to_bytes(4, "big"))
    assert rows_of(path) == before
    damage_index(path)
    assert not any("in each other's place" in note for note in recover(backend, path.stem).notes)
    assert same_rows(backend, path.stem, before)


@pytest.mark.parametrize("pointer", [0, 1, 1 << 20])
def test_a_chain_that_leads_nowhere_loses_its_row(backend: StateBackend, pointer: int) -> None:
    """To no page, to the schema, behind the end of the file."""
    path = large(backend, 9000, 9000, 9000)
    first = overflow_pages(layout_of(path).rows["events"][2,], 4096)[0]
    overwrite(path, first, pointer.to_bytes(4, "big"))
    assert told(recover(backend, path.stem), "events").missing == ((2, 2),)


def test_a_chain_that_leads_round_loses_its_row(backend: StateBackend) -> None:
    """A pointer to its own page."""
    path = large(backend, 9000, 12_000, 9000)
    first = overflow_pages(layout_of(path).rows["events"][2,], 4096)[0]
    overwrite(path, first, first.to_bytes(4, "big"))
    assert told(recover(backend, path.stem), "events").missing == ((2, 2),)


# -- the row of the session ------------------------------------------------------------------------


def test_a_lost_row_of_the_session_is_derived(backend: StateBackend) -> None:
    """The id is the name, the times are the events', and the rest is what is unknown."""
    with backend.create("default", session_id=ID, started_at=START) as session:
        for minute in (3, 1, 2):
            call(session, timestamp=START.replace(minute=minute))
    path = path_of(backend, ID)
    spoil(path, root_page(path, "session_meta"))
    recovery = recover(backend, ID)
    columns = [name for (name,) in sql(path, "SELECT name FROM pragma_table_info('session_meta')")]
    assert list(recovery.derived) == columns
    assert told(recovery, "session_meta").routes == {"derived": 1}
    assert sql(path, "SELECT * FROM session_meta") == [
        (ID, None, "unknown", "failed", 0, "2026-03-01T12:03:00.000Z", "2026-03-01T12:02:00.000Z")
    ]


def test_an_id_with_a_damaged_character_is_the_sessions(backend: StateBackend) -> None:
    """The name of the file says what it was."""
    backend.create("default", session_id=ID).close()
    path = path_of(backend, ID)
    content = path.read_bytes()
    leaf = (root_page(path, "session_meta") - 1) * 4096
    at = content.index(ID.encode(), leaf, leaf + 4096)
    path.write_bytes(content[: at + 9] + b"Q" + content[at + 10 :])
    recovery = recover(backend, ID)
    assert recovery.derived == ()
    assert told(recovery, "session_meta").repaired == 1
    assert sql(path, "SELECT session_id, profile FROM session_meta") == [(ID, "default")]


# -- numbers ---------------------------------------------------------------------------------------


def test_the_numbers_of_a_lost_tail_are_not_given_again(backend: StateBackend) -> None:
    """The next event goes on behind the last one that there ever was."""
    session_id = new(backend, events=100, size=900)
    path = path_of(backend, session_id)
    spoil(path, layout_of(path).with_role("leaf events")[-1])
    ((first, last),) = told(recover(backend, session_id), "events").missing
    assert (last, max(sequences(path))) == (100, first - 1)
    with backend.open(session_id) as session:
        assert call(session) == 101


def test_without_a_counter_the_index_knows_the_last_number(backend: StateBackend) -> None:
    """Counter and tail are both lost."""
    session_id = new(backend, events=100, size=900)
    path = path_of(backend, session_id)
    spoil(path, layout_of(path).with_role("leaf events")[-1])
    spoil(path, root_page(path, "sqlite_sequence"))
    assert told(recover(backend, session_id), "events").missing[-1][1] == 100
    with backend.open(session_id) as session:
        assert call(session) == 101


@pytest.mark.parametrize("counter", [(1 << 63) - 1, 1 << 62, "many"])
def test_an_absurd_counter_is_not_believed(backend: StateBackend, counter: object) -> None:
    """It would leave no number to the next event."""
    session_id = new(backend, events=30)
    path = path_of(backend, session_id)
    sql(path, "UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'", counter)
    assert recover(backend, session_id).complete
    with backend.open(session_id) as session:
        assert call(session) == 31


# -- rows that do not fit --------------------------------------------------------------------------


def aside(path: Path, ending: str = ".corrupt") -> list[dict[str, Any]]:
    """Return the lines of the side file."""
    text = beside(path, f"{ending}.aside.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def without_not_null(path: Path, statement: str) -> None:
    """Run a statement on a session file whose schema forbids no NULL, and put the schema back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        ((ddl,),) = driver.execute("SELECT sql FROM sqlite_schema WHERE name = 'events'")
        write = "UPDATE sqlite_schema SET sql = ? WHERE name = 'events'"
        driver.execute("PRAGMA writable_schema = ON")
        driver.execute(write, (ddl.replace("NOT NULL", ""),))
        driver.execute("PRAGMA writable_schema = RESET")
        driver.execute(statement)
        driver.execute("PRAGMA writable_schema = ON")
        driver.execute(write, (ddl,))
        driver.execute("PRAGMA writable_schema = RESET")


def test_a_null_where_none_may_be_is_set_aside(backend: StateBackend) -> None:
    """Not into the table, and not away."""
    session_id = new(backend, events=5, size=3)
    path = path_of(backend, session_id)
    row = rows_of(path)["events"][2]
    without_not_null(path, "UPDATE events SET kind = NULL WHERE sequence = 3")
    recovery = recover(backend, session_id)
    events = told(recovery, "events")
    assert (events.kept, events.set_aside, events.missing) == (4, 1, ((3, 3),))
    assert recovery.aside == beside(path, ".corrupt.aside.jsonl")
    names = [name for (name,) in sql(path, "SELECT name FROM pragma_table_info('events')")]
    assert row[-1] == b"2:."
    values = dict(zip(names, row, strict=True)) | {"kind": None, "payload": {"base64": "Mjou"}}
    assert aside(path) == [{"table": "events", "why": "kind is NULL", "row": values}]


def test_rows_of_a_lost_event_are_kept_and_counted(backend: StateBackend) -> None:
    """What was spent was spent."""
    with backend.create("default") as session, session.batch() as batch:
        for _number in range(40):
            batch.append_message(producer=MODEL, payload=b"x" * 900, cost=cost())
            batch.append_plan(producer=MODEL, payload=b"y" * 900, items=[item()])
    path = path_of(backend, session.session_id)
    spoil(path, layout_of(path).with_role("leaf events")[5])
    recovery = recover(backend, session.session_id)
    assert told(recovery, "events").lost == 4
    ledger, plan = told(recovery, "cost_ledger"), told(recovery, "plan_items")
    assert (ledger.kept, ledger.orphaned) == (40, 2)
    assert (plan.kept, plan.orphaned) == (40, 2)


def test_text_that_is_not_utf8_is_repaired_and_noted(backend: StateBackend) -> None:
    """With a mark where the bytes were."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    leaf = (root_page(path, "events") - 1) * 4096
    content = path.read_bytes()
    found = re.compile(rb"20\d\d-\d\d-\d\dT").search(content, leaf, leaf + 4096)
    assert found is not None
    at = found.start()
    path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    damage_index(path)
    recovery = recover(backend, session_id)
    assert told(recovery, "events").repaired == 1
    ((number,),) = sql(path, "SELECT sequence FROM events WHERE timestamp LIKE '\ufffd0%'")
    assert (
        f"events sequence {number}: timestamp holds U+FFFD for what was not UTF-8" in recovery.notes
    )


def test_a_producer_that_is_not_utf8_is_put_right_from_the_index(backend: StateBackend) -> None:
    """No other producer is invented."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    leaf = (root_page(path, "events") - 1) * 4096
    content = path.read_bytes()
    at = content.index(b"shell", leaf, leaf + 4096)
    path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    damage_index(path)
    recovery = recover(backend, session_id)
    assert told(recovery, "events").repaired == 1
    assert sql(path, "SELECT sequence FROM events WHERE producer_name = '\ufffdhell'") == []
    assert not any("U+FFFD" in note for note in recovery.notes)
    assert "derived" not in told(recovery, "producers").routes


# -- logs and journals -----------------------------------------------------------------------------


LOG_IS_GONE = (
    "its own write-ahead log is gone; of what that held and the file does not, nothing tells"
)


def session_with_log(
    backend: StateBackend, folder: Path, session_id: str, events: int, size: int = 300
) -> Path:
    """Return a session as a killed writer leaves it, with all but its first event in the log."""
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / f"{session_id}.sqlite"
    backend.create("default", session_id=session_id).close()
    with backend.open(session_id) as session:
        for number in range(events):
            call(session, f"{number}".encode() * size)
        put(files_of(path_of(backend, session_id)), path)
    return path


def test_another_sessions_log_is_kept_and_not_used(backend: StateBackend, tmp_path: Path) -> None:
    """Its rows are not this session's."""
    new(backend, session_id=ID, events=20)
    path = path_of(backend, ID)
    before = rows_of(path)
    other = session_with_log(backend, tmp_path / "left", OTHER_ID, 20)
    log = beside(other, "-wal").read_bytes()
    beside(path, "-wal").write_bytes(log)
    recovery = recover(backend, ID)
    assert "the write-ahead log is another session's; kept, not used" in recovery.notes
    assert recovery.uncounted == (LOG_IS_GONE,)  # the same bytes as in the middle of its life
    assert same_rows(backend, ID, before)
    assert beside(path, ".corrupt-wal").read_bytes() == log


def test_a_log_that_shares_no_page_of_events_is_known_by_their_numbers(
    backend: StateBackend, tmp_path: Path
) -> None:
    """The file was cut; the root of its index of ids is left, which the other's log did not change.

    Ids of any order, as other programs may give, so the log has many pages of the other's index.
    """
    path = large(backend, *[3000] * 30)
    before = rows_of(path)["events"]
    os.truncate(path, root_page(path, "sqlite_autoindex_producers_1") * 4096 + 1)
    ids = random.Random(1)
    with backend.create("default") as session:
        other_id = session.session_id
        for _ in range(200):
            call(session, event_id=str(uuid.UUID(int=ids.getrandbits(128), version=4)))
    with backend.open(other_id) as session:
        for _ in range(20):
            call(session, event_id=str(uuid.UUID(int=ids.getrandbits(128), version=4)))
        put(files_of(path_of(backend, other_id)), tmp_path / f"{other_id}.sqlite")
    shutil.copy(tmp_path / f"{other_id}.sqlite-wal", beside(path, "-wal"))
    recovery = recover(backend, path.stem)
    assert "the write-ahead log is another session's; kept, not used" in recovery.notes
    assert set(rows_of(path)["events"]) <= set(before)
    assert (
        f"events sequence 30 is lost; known of it: {before[29][1]}, tool_call, tool"
        in recovery.notes
    )


def test_a_log_in_the_place_of_its_own_leaves_a_loss_that_nobody_can_count(
    backend: StateBackend, tmp_path: Path
) -> None:
    """All its events were in the log that is gone."""
    path = session_with_log(backend, tmp_path / "left", ID, 10)
    other = session_with_log(backend, tmp_path / "left", OTHER_ID, 10)
    beside(path, "-wal").write_bytes(beside(other, "-wal").read_bytes())
    there = StateBackend(path.parent)
    recovery = recover(there, ID)
    assert told(recovery, "events") == TableRecovery(table="events", kept=0, routes={})
    assert recovery.uncounted == (LOG_IS_GONE,)
    assert (recovery.complete, recovery.partial) == (False, True)
    assert there.recoveries() == [recovery]
    with there.read(ID) as view:
        assert view.info.incomplete


def test_an_older_log_of_its_own_hides_nothing(backend: StateBackend, tmp_path: Path) -> None:
    """Applied to the file, it would take the newest events away."""
    path = session_with_log(backend, tmp_path / "left", ID, 10)
    with backend.open(ID) as session:
        for _number in range(30):
            call(session, b"later" * 100)
    made = path_of(backend, ID)
    before = rows_of(made)
    beside(made, "-wal").write_bytes(beside(path, "-wal").read_bytes())
    recovery = recover(backend, ID)
    assert "the write-ahead log is older than the file; used for lost rows only" in recovery.notes
    assert recovery.uncounted == (LOG_IS_GONE,)  # the same bytes as in the middle of its life
    assert same_rows(backend, ID, before)


def test_an_older_log_gives_rows_that_the_file_lost(backend: StateBackend, tmp_path: Path) -> None:
    """Of an early page that is noise now."""
    path = session_with_log(backend, tmp_path / "left", ID, 10)
    with backend.open(ID) as session:
        for _number in range(30):
            call(session, b"later" * 100)
    made = path_of(backend, ID)
    spoil(made, layout_of(made).with_role("leaf events")[0])
    beside(made, "-wal").write_bytes(beside(path, "-wal").read_bytes())
    events = told(recover(backend, ID), "events")
    assert events.routes["older image"] > 0
    assert 1 in sequences(made)


def test_an_older_row_under_a_number_that_was_never_given_is_set_aside(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Its number was hit: with it, the next row would get one far above, and many look lost."""
    with backend.create("default", session_id=ID) as session:
        for _number in range(3):
            session.append_message(producer=MODEL, payload=b"early", cost=cost())
    made, old = path_of(backend, ID), tmp_path / "old.sqlite"
    put(files_of(made), old)
    with closing(sqlite3.connect(old)) as driver, driver:
        driver.execute("UPDATE cost_ledger SET sequence = 65 WHERE sequence = 3")
        driver.execute("UPDATE events SET schema_version = '10' WHERE sequence = 3")
        driver.commit()
        log = beside(old, "-wal").read_bytes()
    with backend.open(ID) as session:
        for _number in range(30):
            call(session, b"later" * 100)
    spoil(made, root_page(made, "cost_ledger"))
    beside(made, "-wal").write_bytes(log)
    ledger = told(recover(backend, ID), "cost_ledger")
    assert ledger.routes == {"older image": 2}
    assert ledger.missing == ((3, 3),)
    assert {line["why"] for line in aside(made)} == {"its sequence was never given"}


def test_transactions_behind_a_broken_frame_are_used(backend: StateBackend, tmp_path: Path) -> None:
    """SQLite would leave all of them out; only what the broken frame alone held is lost."""
    path = session_with_log(backend, tmp_path / "left", ID, 30)
    with StateBackend(path.parent).read(ID):
        pass
    start, _end = layout_of(path).commits[5]
    with beside(path, "-wal").open("r+b") as file:
        file.seek(start + 200)
        file.write(b"noise")
    recovery = recover(StateBackend(path.parent), ID)
    assert any("transactions behind a broken frame" in note for note in recovery.notes)
    assert told(recovery, "events").kept == 30
    assert told(recovery, "events").routes.keys() <= {"log", "page", "older image"}


def test_an_overflow_page_in_a_broken_frame_loses_its_row_only(
    backend: StateBackend, tmp_path: Path
) -> None:
    """What the page was before is no part of it."""
    path = session_with_log(backend, tmp_path / "left", ID, 12, size=4000)
    row = layout_of(path).rows["events"][5,]
    _name, start, _end = row.own[1]
    with beside(path, "-wal").open("r+b") as file:
        file.seek(start + 1000)
        file.write(NOISE[:8])
    events = told(recover(StateBackend(path.parent), ID), "events")
    assert (events.kept, events.missing) == (11, ((5, 5),))


def test_the_numbers_of_a_torn_last_transaction_are_not_given_again(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Nobody can tell whether it was acknowledged, so it is not taken, and is told as lost."""
    path = session_with_log(backend, tmp_path / "left", ID, 10)
    start, _end = layout_of(path).commits[-1]
    with beside(path, "-wal").open("r+b") as file:
        file.seek(start + 30)
        file.write(NOISE[:8])
    overwrite(path, 1, NOISE[:16])
    beside(path, "-shm").unlink()  # it knows
    there = StateBackend(path.parent)
    events = told(recover(there, ID), "events")
    assert (events.kept, events.missing) == (9, ((10, 10),))
    with there.open(ID) as session:
        assert call(session) == 11


@pytest.mark.parametrize(("offset", "route"), [(100, "older image"), (0, "carved")])
def test_rows_of_a_broken_frame_are_saved(
    backend: StateBackend, tmp_path: Path, offset: int, route: str
) -> None:
    """Of a page that is nowhere else, since one transaction filled it; also without its header."""
    folder = tmp_path / "left"
    folder.mkdir(mode=0o700)
    path = folder / f"{ID}.sqlite"
    backend.create("default", session_id=ID).close()
    with backend.open(ID) as session:
        with session.batch() as batch:
            for number in range(40):
                payload = b"%d" % number * 300
                batch.append("tool_call", producer=MODEL, payload=payload, schema_version="1")
        for _number in range(3):
            call(session)
        put(files_of(path_of(backend, ID)), path)
    layout = layout_of(path)
    _name, start = layout.pages[layout.with_role("leaf events")[2]]
    with beside(path, "-wal").open("r+b") as file:
        file.seek(start + offset)
        file.write(NOISE[:8])
    events = told(recover(StateBackend(path.parent), ID), "events")
    assert events.routes[route] > 3
    assert (events.kept, events.lost) == (43, 0)


def test_an_empty_file_beside_a_log_gives_what_the_log_has(backend: StateBackend) -> None:
    """Which is nearly all of a young session."""
    session_id = killed_writer(backend)
    path = path_of(backend, session_id)
    path.write_bytes(b"")
    recovery = recover(backend, session_id)
    assert told(recovery, "events").kept == 5
    assert told(recovery, "cost_ledger").kept == 1
    assert told(recovery, "plan_items").kept == 2
    assert sequences(path) == {1, 2, 3, 4, 5}


_KILLED = """
    import os, signal, sqlite3, sys
    driver = sqlite3.connect(sys.argv[1], isolation_level=None)
    driver.execute("PRAGMA journal_mode = DELETE")
    driver.execute("PRAGMA cache_size = 1")
    driver.execute("BEGIN")
    driver.execute(sys.argv[2])
    os.kill(os.getpid(), signal.SIGKILL)
"""


UPDATE = "UPDATE events SET payload = zeroblob(length(payload)), timestamp = 'wrong'"
INSERT = """
    INSERT INTO events SELECT sequence + 100, 'made up ' || sequence, 'wrong', kind,
    producer_category, producer_name, producer_version, schema_version, payload FROM events
"""
DELETE = "DELETE FROM events WHERE sequence > 50"


def killed_in_a_transaction(backend: StateBackend, session_id: str, statement: str) -> bytes:
    """Leave half a transaction of another program in the file; return the journal it left."""
    path = path_of(backend, session_id)
    before = path.read_bytes()
    run_python(_KILLED, path, statement, check=False)
    assert path.read_bytes() != before
    return beside(path, "-journal").read_bytes()


@pytest.mark.crash
@pytest.mark.parametrize("statement", [INSERT, UPDATE, DELETE])
def test_its_own_journal_takes_half_a_transaction_back(
    backend: StateBackend, statement: str
) -> None:
    """As SQLite would have."""
    session_id = new(backend, events=100, size=900)
    before = rows_of(path_of(backend, session_id))
    killed_in_a_transaction(backend, session_id, statement)
    with pytest.raises(SessionDamaged, match="rollback journal"):
        backend.read(session_id)
    recovery = recover(backend, session_id)
    assert "a rollback journal was laid over the file" in recovery.notes
    assert recovery.complete
    assert same_rows(backend, session_id, before)


@pytest.mark.crash
def test_another_sessions_journal_is_kept_and_not_used(backend: StateBackend) -> None:
    """SQLite would roll it back into this file."""
    new(backend, session_id=ID, events=100, size=900)
    new(backend, session_id=OTHER_ID, events=100, size=900)
    path = path_of(backend, ID)
    before = rows_of(path)
    journal = killed_in_a_transaction(backend, OTHER_ID, UPDATE)
    beside(path, "-journal").write_bytes(journal)
    recovery = recover(backend, ID)
    assert "the rollback journal is another session's; kept, not used" in recovery.notes
    assert same_rows(backend, ID, before)
    assert beside(path, ".corrupt-journal").read_bytes() == journal
