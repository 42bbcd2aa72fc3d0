"""Rows whose numbers, texts or places are in doubt, and bytes that only look like rows."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from statebackend import Producer, SessionStatus, StateBackend
from statebackend.recovery.salvage import cells, salvage
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
    call,
    cost,
    damage_index,
    full,
    item,
    new,
    overwrite,
    path_of,
    root_page,
    rows_of,
    sql,
)


def aside(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the side file."""
    text = Path(f"{path}.corrupt.aside.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def change(path: Path, start: int, content: bytes) -> None:
    """Overwrite some bytes of a file."""
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


def number_at(path: Path, sequence: int) -> int:
    """Return where the number of an event lies, which takes one byte."""
    _name, start, end = layout_of(path).rows["events"][sequence,].columns[0].pieces[0]
    assert end - start == 1
    return start


def spending(backend: StateBackend) -> str:
    """Make a session with 100 messages that cost, and 100 plans."""
    with backend.create("default") as session, session.batch() as batch:
        for _number in range(100):
            batch.append_message(producer=MODEL, payload=b"x", cost=cost())
            batch.append_plan(producer=MODEL, payload=b"y", items=[item()])
    return session.session_id


# -- numbers ---------------------------------------------------------------------------------------


def one_a_page(backend: StateBackend) -> Path:
    """Make 20 events that have a page each, so that no neighbour confirms their numbers."""
    path = path_of(backend, new(backend, events=20, size=3000))
    assert len(layout_of(path).with_role("leaf events")) == 20
    return path


@pytest.mark.parametrize("indexed", [True, False])
def test_lone_rows_are_believed(backend: StateBackend, indexed: bool) -> None:
    """By the index of ids, or without one as long as their numbers can be."""
    path = one_a_page(backend)
    before = rows_of(path)
    spoil(path, root_page(path, "events"))
    if not indexed:
        spoil(path, root_page(path, "sqlite_autoindex_events_1"))
    assert told(recover(backend, path.stem), "events").kept == 20
    assert same_rows(backend, path.stem, before)


def test_a_lone_row_with_a_damaged_number_is_known_by_its_id(backend: StateBackend) -> None:
    """The index gives the number that it had."""
    path = one_a_page(backend)
    before = rows_of(path)
    change(path, number_at(path, 7), b"\x09")
    spoil(path, root_page(path, "events"))
    events = told(recover(backend, path.stem), "events")
    assert (events.kept, events.repaired) == (20, 1)
    assert same_rows(backend, path.stem, before)


def test_of_two_lone_rows_with_one_number_one_is_set_aside(backend: StateBackend) -> None:
    """Where nothing else knows either of them."""
    path = one_a_page(backend)
    change(path, number_at(path, 7), b"\x09")
    for name in ("events", "sqlite_autoindex_events_1"):
        spoil(path, root_page(path, name))
    events = told(recover(backend, path.stem), "events")
    assert (events.kept, events.set_aside) == (19, 1)
    assert aside(path)[0]["why"].startswith("another row contradicts it")


def test_a_lone_row_whose_number_cannot_be_is_set_aside(backend: StateBackend) -> None:
    """No row has the number 0."""
    path = one_a_page(backend)
    change(path, number_at(path, 7), b"\0")
    for name in ("events", "sqlite_autoindex_events_1"):
        spoil(path, root_page(path, name))
    events = told(recover(backend, path.stem), "events")
    assert (events.kept, events.set_aside, events.missing) == (19, 1, ((7, 7),))
    assert aside(path)[0]["why"] == "nothing confirms its sequence"


def test_two_rows_with_one_id_contradict_each_other(backend: StateBackend) -> None:
    """The second is set aside: an id is of one event."""
    path = path_of(backend, new(backend, events=10))
    rows = layout_of(path).rows["events"]
    _name, start, _end = rows[6,].columns[1].pieces[0]
    change(path, start, rows[5,].values[1].encode())
    events = told(recover(backend, path.stem), "events")
    assert (events.kept, events.set_aside, events.missing) == (9, 1, ((6, 6),))


# -- values ----------------------------------------------------------------------------------------


def test_text_and_blob_in_each_others_place_are_put_right(backend: StateBackend) -> None:
    """They differ by one bit of the header, and the column says which it is."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    before = rows_of(path)
    sql(path, "UPDATE events SET payload = CAST(payload AS TEXT) WHERE sequence = 4")
    sql(path, "UPDATE events SET timestamp = CAST(timestamp AS BLOB) WHERE sequence = 3")
    damage_index(path)
    recovery = recover(backend, session_id)
    assert told(recovery, "events").repaired == 2
    assert "events sequence 4: put right payload" in recovery.notes
    assert "events sequence 3: put right timestamp" in recovery.notes
    assert same_rows(backend, session_id, before)


def test_a_cost_that_is_no_number_is_set_aside(backend: StateBackend) -> None:
    """SQLite reads it as NULL."""
    path = path_of(backend, full(backend))
    row = layout_of(path).rows["cost_ledger"][1,]
    at = next(number for number, value in enumerate(row.values) if value == 0.25)
    _name, start, end = row.columns[at].pieces[0]
    assert end - start == 8
    change(path, start, bytes.fromhex("7ff8000000000001"))
    damage_index(path)
    ledger = told(recover(backend, path.stem), "cost_ledger")
    assert (ledger.kept, ledger.set_aside, ledger.missing) == (0, 1, ((1, 1),))
    assert aside(path)[0]["why"] == "cost_usd is not a number"


def test_a_report_has_at_most_a_hundred_notes(backend: StateBackend) -> None:
    """Of damage all over a file, the count tells enough."""
    path = path_of(backend, new(backend, events=120))
    sql(path, "UPDATE events SET timestamp = CAST(x'ff' || timestamp AS TEXT)")
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert told(recovery, "events").repaired == 120
    assert len(recovery.notes) == 100


# -- rows without numbers --------------------------------------------------------------------------


def long_named(backend: StateBackend) -> Path:
    """Make a session whose producer's name reaches into an overflow page."""
    with backend.create("default") as session, session.batch() as batch:
        for number in range(60):
            batch.append(
                "tool_call",
                producer=Producer("tool", "long" * 2000 if number == 59 else "short", "1"),
                payload=b"x" * 6000,
                schema_version="1",
            )
    return path_of(backend, session.session_id)


def test_a_producer_with_a_lost_page_is_derived(backend: StateBackend) -> None:
    """The events repeat it."""
    path = long_named(backend)
    before = rows_of(path)
    rows = layout_of(path).rows["producers"]
    row = next(row for key, row in rows.items() if "long" in key[1])
    overwrite(path, overflow_pages(row, 4096)[0], bytes(4096))
    producers = told(recover(backend, path.stem), "producers")
    assert producers.routes == {"page": 1, "derived": 1}
    assert same_rows(backend, path.stem, before)


def test_an_event_that_claims_a_producers_page_is_not_believed(backend: StateBackend) -> None:
    """The producer has no number to be taken out by, and may stay."""
    path = long_named(backend)
    layout = layout_of(path)
    row = next(row for key, row in layout.rows["producers"].items() if "long" in key[1])
    _name, _start, end = layout.rows["events"][50,].own[0]
    change(path, end - 4, overflow_pages(row, 4096)[0].to_bytes(4, "big"))
    recovery = recover(backend, path.stem)
    assert told(recovery, "events").missing == ((50, 50),)
    assert told(recovery, "producers").kept == 2


def test_a_page_of_producers_written_twice_gives_no_row_twice(backend: StateBackend) -> None:
    """Its second copy lies where an index was."""
    path = path_of(backend, full(backend))
    before = rows_of(path)
    content = path.read_bytes()
    start = (root_page(path, "producers") - 1) * 4096
    overwrite(path, root_page(path, "idx_events_kind"), content[start : start + 4096])
    assert recover(backend, path.stem).complete
    assert same_rows(backend, path.stem, before)


def test_a_carved_producer_must_be_an_events(backend: StateBackend) -> None:
    """A page with rows of producers is easily imitated by a payload."""
    path = path_of(backend, full(backend))
    before = rows_of(path)
    overwrite(path, root_page(path, "producers"), NOISE[:8])
    spoil(path, root_page(path, "idx_events_kind"))
    assert told(recover(backend, path.stem), "producers").kept == len(before["producers"])
    assert sorted(rows_of(path)["producers"]) == sorted(before["producers"])


# -- bytes that look like rows ---------------------------------------------------------------------


@pytest.mark.parametrize("table", ["cost_ledger", "plan_items"])
def test_rows_of_the_ledger_are_carved_like_events(backend: StateBackend, table: str) -> None:
    """From a page without its header."""
    session_id = spending(backend)
    path = path_of(backend, session_id)
    before = rows_of(path)
    leaves = layout_of(path).with_role(f"leaf {table}")
    overwrite(path, leaves[len(leaves) // 2], NOISE[:8])
    found = told(recover(backend, session_id), table)
    assert found.routes["carved"] > 5
    assert same_rows(backend, session_id, before)


def test_a_number_that_was_never_given_is_not_believed_of_an_index(backend: StateBackend) -> None:
    """Row and index lost the number both; the neighbours of the row know it."""
    path = path_of(backend, new(backend, events=100, size=300))
    before = rows_of(path)
    at = number_at(path, 50)
    event_id = before["events"][49][1].encode()
    for page in layout_of(path).with_role("index sqlite_autoindex_events_1"):
        entry = path.read_bytes().find(event_id + b"2", (page - 1) * 4096, page * 4096)
        if entry > 0:
            change(path, entry + 36, b"\x78")
    change(path, at, b"\x7f")
    assert told(recover(backend, path.stem), "events").missing == ()
    assert same_rows(backend, path.stem, before)


def test_the_end_of_a_size_is_no_size(backend: StateBackend) -> None:
    """A bit of the payload's size is gone; the record fits a size without its first byte."""
    with backend.create("default") as session:
        for _number in range(3):
            call(session, b"p" * 134)
    path = path_of(backend, session.session_id)
    before = rows_of(path)["events"]
    row = layout_of(path).rows["events"][2,]
    _name, start, _end = row.own[0]
    content = path.read_bytes()
    assert content[start] == 0x81  # a size of two bytes
    at = content.index(b"\x82\x18", start)
    change(path, at, b"\x80")
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert told(recovery, "events").missing == ((2, 2),)
    assert rows_of(path)["events"] == [before[0], before[2]]


def test_the_sessions_own_id_with_a_hit_character_is_no_event(backend: StateBackend) -> None:
    """Its index has entries like those of the events' ids."""
    path = path_of(backend, new(backend))
    root = root_page(path, "sqlite_autoindex_session_meta_1")
    at = path.read_bytes().index(path.stem.encode(), (root - 1) * 4096)
    change(path, at + 22, b"@")
    recovery = recover(backend, path.stem)
    assert told(recovery, "events").missing == ()
    assert recovery.complete


@pytest.mark.parametrize(
    ("sequence", "why"),
    [
        (5, "the index of ids knows another event under its sequence"),
        (50, "the index of ids does not know it"),
    ],
)
def test_a_row_inside_a_payload_is_no_row(backend: StateBackend, sequence: int, why: str) -> None:
    """An agent that reads session files has their bytes in its results."""
    other = path_of(backend, new(backend, events=60))
    ((_name, start, end),) = layout_of(other).rows["events"][sequence,].own
    payload = other.read_bytes()[start:end]
    with backend.create("default") as session:
        for _number in range(10):
            call(session, b"read: " + payload)
    path = path_of(backend, session.session_id)
    before = rows_of(path)
    overwrite(path, root_page(path, "events"), NOISE[:4])
    recovery = recover(backend, session.session_id)
    assert told(recovery, "events").routes == {"carved": 10}
    assert {line["why"] for line in aside(path)} == {why}
    assert same_rows(backend, session.session_id, before)


@pytest.mark.parametrize(
    ("sequence", "why"),
    [
        (50, "its event does not lie between those of its neighbours"),
        (100, "its sequence was never given"),
    ],
)
def test_a_row_of_the_ledger_inside_a_payload_is_no_row(
    backend: StateBackend, sequence: int, why: str
) -> None:
    """No index knows the ledger's rows, but counter and neighbours do."""
    other = path_of(backend, spending(backend))
    ((_name, start, end),) = layout_of(other).rows["cost_ledger"][sequence,].own
    foreign = other.read_bytes()[start:end]
    with backend.create("default") as session, session.batch() as batch:
        for number in range(99):
            batch.append_message(
                producer=MODEL, payload=foreign if number < 4 else b"x", cost=cost()
            )
    path = path_of(backend, session.session_id)
    before = rows_of(path)
    layout = layout_of(path)
    for table in ("events", "cost_ledger"):
        overwrite(path, layout.with_role(f"leaf {table}")[0], NOISE[:4])
    recover(backend, session.session_id)
    assert {line["why"] for line in aside(path)} == {why}
    assert same_rows(backend, session.session_id, before)


def test_tables_of_somebody_elses_are_not_taken(backend: StateBackend) -> None:
    """A copy of the events has no row numbers that count, and two columns are no counter."""
    session_id = new(backend, events=50, size=200)
    path = path_of(backend, session_id)
    before = rows_of(path)
    for statement in (
        "CREATE TABLE copied AS SELECT * FROM events",
        "CREATE TABLE pairs (a, b)",
        "INSERT INTO pairs VALUES (1, 2), ('events', 'x'), ('other', 7)",
    ):
        sql(path, statement)
    damage_index(path)
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)


@pytest.mark.parametrize("damage", [None, (32, b"\xff\0\0\0"), (36, b"\0\0\0\1")])
def test_rows_on_free_pages_are_not_taken(
    backend: StateBackend, damage: tuple[int, bytes] | None
) -> None:
    """Whether the list of free pages is whole or not."""
    session_id = new(backend, events=50, size=200)
    path = path_of(backend, session_id)
    before = rows_of(path)
    sql(path, "CREATE TABLE copied AS SELECT * FROM events")
    sql(path, "DROP TABLE copied")
    if damage:
        change(path, *damage)
    damage_index(path)
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)


def test_a_free_list_with_an_impossible_page_is_not_believed(backend: StateBackend) -> None:
    """It would have all pages behind it be free."""
    session_id = new(backend, events=50, size=200)
    path = path_of(backend, session_id)
    before = rows_of(path)
    sql(path, "CREATE TABLE copied AS SELECT * FROM events")
    sql(path, "DROP TABLE copied")
    trunk = int.from_bytes(path.read_bytes()[32:36], "big")
    overwrite(path, trunk, b"\xff\xff", offset=4)
    assert recover(backend, session_id).complete
    assert same_rows(backend, session_id, before)


# -- whose log -------------------------------------------------------------------------------------


def log_of_a_status(backend: StateBackend, folder: Path) -> Path:
    """Return a session without events whose log holds the row of session_meta alone."""
    with backend.create("default") as session:
        session.set_status(SessionStatus.COMPLETED)
        path = path_of(backend, session.session_id)
        folder.mkdir()
        put(files_of(path), folder / path.name)
    return folder / path.name


def test_a_log_that_names_the_session_is_its_own(backend: StateBackend, tmp_path: Path) -> None:
    """Also when no event can tell."""
    path = log_of_a_status(backend, tmp_path / "left")
    overwrite(path, 1, NOISE[:16])
    assert recover(StateBackend(path.parent), path.stem).complete
    assert sql(path, "SELECT status FROM session_meta") == [("completed",)]


def test_a_log_that_names_another_session_is_not_used(
    backend: StateBackend, tmp_path: Path
) -> None:
    """It would make this session the other one."""
    other = log_of_a_status(backend, tmp_path / "left")
    path = path_of(backend, new(backend))
    Path(f"{path}-wal").write_bytes(Path(f"{other}-wal").read_bytes())
    recovery = recover(backend, path.stem)
    assert recovery.notes == ("the write-ahead log is another session's; kept, not used",)
    assert recovery.uncounted
    assert not recovery.complete
    assert sql(path, "SELECT status FROM session_meta") == [("running",)]


# -- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(cells.TREE_PAGES))
def test_noise_is_read_without_an_error(kind: int) -> None:
    """Whatever a page says, nothing is read behind its end."""
    dice = random.Random(kind)
    for _round in range(300):
        page = bytes([kind, 0, 0, 0, dice.randrange(1, 250)]) + dice.randbytes(507)
        for start in cells.pointers(page, 0, 512):
            found = cells.cell(page, start, 512)
            assert found is None or found.end <= 512
        assert all(isinstance(one, list) for one in cells.index_records(page, 0, 512))
        assert cells.children(page, 0, 512)


def test_a_source_that_cannot_be_read_leaves_nothing(tmp_path: Path) -> None:
    """Neither a file, nor an open descriptor of what could be opened."""
    source, target = tmp_path / "source.sqlite", tmp_path / "target"
    with pytest.raises(FileNotFoundError):
        salvage(source, target, tmp_path / "aside", "x")
    source.write_bytes(NOISE)
    Path(f"{source}-wal").symlink_to(source)
    with pytest.raises(OSError, match="symbolic"):
        salvage(source, target, tmp_path / "aside", "x")
    assert not target.exists()
