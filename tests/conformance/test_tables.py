"""SB-09 to SB-15: the five tables, append-only, unique ids, opaque payloads, closed words."""

from __future__ import annotations

import re
import runpy
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, orm, select, text, update
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DatabaseError

from statebackend import DuplicateEvent, EventKind, InvalidValue, Producer, Session, StateBackend
from statebackend.replay import render_generic, replay
from statebackend.schema import models
from statebackend.sqlite import engine
from tests.session_files import (
    MODEL,
    TOOL,
    UNKNOWN_ID,
    call,
    cost,
    fill,
    full,
    item,
    path_of,
    rows_of,
    sql,
)

TABLES = ["cost_ledger", "events", "plan_items", "producers", "session_meta"]
LOGS = [table for table in TABLES if table != "session_meta"]
KINDS = [
    "message",
    "tool_call",
    "tool_result",
    "plan",
    "apply",
    "context_contribution",
    "memory_write",
    "memory_update",
    "memory_delete",
    "hook_error",
]


def specified_ddl(root: Path) -> list[str]:
    """Return the specification's statements, or the first revision's, which repeat them."""
    specification = root.parent / "shared" / "spec" / "state-backend.md"
    if specification.is_file():
        return re.findall(
            r"^CREATE (?:TABLE .*?^\)|INDEX [^;]*)(?=;)",
            specification.read_text(),
            re.MULTILINE | re.DOTALL,
        )
    revision = runpy.run_path(str(root / "migrations" / "sessions" / "0001_initial.py"))
    return list(revision["STATEMENTS"])


@pytest.fixture
def by_hand(backend: StateBackend, root: Path) -> str:
    """Make a session file from the specified DDL with ``sqlite3`` alone and return its id."""
    backend.directory.mkdir()
    statements = specified_ddl(root)
    assert len(statements) == 7
    with closing(sqlite3.connect(path_of(backend, UNKNOWN_ID))) as connection, connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute(
            "INSERT INTO session_meta VALUES (?, NULL, 'p', 'running', 0, ?, NULL)",
            (UNKNOWN_ID, "2026-03-01T12:00:00.000Z"),
        )
        connection.execute(
            "INSERT INTO events (id, timestamp, kind, producer_category, producer_name, "
            "producer_version, schema_version, payload) VALUES "
            "('e1', '2026-03-01T12:00:01.000Z', 'message', 'model', 'm', '1', '1', x'00ff')"
        )
        connection.execute("INSERT INTO producers VALUES ('model', 'm', '1', 1)")
        connection.execute(
            "INSERT INTO cost_ledger (event_sequence, provider_name, model_id, input_tokens, "
            "output_tokens, cost_usd) VALUES (1, 'anthropic', 'm', 7, 8, 0.5)"
        )
        connection.execute("PRAGMA user_version = 1")
    return UNKNOWN_ID


def structure(path: Path) -> dict[str, object]:
    """Return everything that SQLite knows of the structure of a file's tables and indexes."""
    found: dict[str, object] = {}
    for kind, name in sql(path, "SELECT type, name FROM sqlite_schema"):
        found[f"{kind} {name}"] = [
            sql(path, f"PRAGMA {pragma}('{name}')")
            for pragma in ("table_xinfo", "index_list", "foreign_key_list", "index_xinfo")
        ]
    return found


@pytest.mark.conformance("SB-09")
def test_sb09_a_file_holds_exactly_the_specified_objects(
    backend: StateBackend, by_hand: str
) -> None:
    """Our file has the tables, columns, keys and indexes of the DDL, and nothing else."""
    ours = path_of(backend, full(backend))
    assert structure(ours) == structure(path_of(backend, by_hand))


@pytest.mark.conformance("SB-09")
def test_sb09_the_stored_ddl_is_the_specified_text(backend: StateBackend, root: Path) -> None:
    """The statements that a file shows are the specification's, comments included."""
    stored = sql(
        path_of(backend, full(backend)),
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%'",
    )
    expected = set(specified_ddl(root))
    assert {statement for (statement,) in stored} == expected


@pytest.mark.conformance("SB-09")
def test_sb09_five_tables_two_indexes_and_nothing_else(backend: StateBackend) -> None:
    """There is no sixth table, trigger, view or extra index in a file that was in use."""
    objects = sql(path_of(backend, full(backend)), "SELECT type, name FROM sqlite_schema")
    own = {(kind, name) for kind, name in objects if not name.startswith("sqlite_")}
    assert own == {("table", name) for name in TABLES} | {
        ("index", "idx_events_kind"),
        ("index", "idx_events_producer"),
    }


@pytest.mark.conformance("SB-09")
def test_sb09_a_file_made_by_hand_is_read(backend: StateBackend, by_hand: str) -> None:
    """A session that another program wrote by the specification is listed, read and costed."""
    with backend.read(by_hand) as view:
        (event,) = view.events()
        assert (event.id, event.payload) == ("e1", b"\x00\xff")
        assert view.info.cost_usd == 0.5
        assert view.cost_totals().cache_read_tokens == 0
    assert [one.session_id for one in backend.list()] == [by_hand]


@pytest.mark.conformance("SB-09")
def test_sb09_a_file_made_by_hand_goes_on_being_written(
    backend: StateBackend, by_hand: str
) -> None:
    """Such a session is opened, appended to and closed like one of our own."""
    with backend.open(by_hand) as session:
        fill(session)
        session.set_status("completed")
    stored = rows_of(path_of(backend, by_hand))
    assert [row[0] for row in stored["events"]] == [1, 2, 3, 4, 5, 6]
    assert len(stored["cost_ledger"]) == len(stored["plan_items"]) == 2


# -- SB-10 -----------------------------------------------------------------------------------------

FORBIDDEN = [
    *(f"DELETE FROM {table}" for table in TABLES),
    "UPDATE events SET payload = x'00'",
    "UPDATE events SET sequence = sequence + 10",
    "UPDATE cost_ledger SET cost_usd = 0",
    "UPDATE plan_items SET decision = 'allow'",
    "UPDATE producers SET version = '0'",
    "UPDATE OR REPLACE producers SET version = '0'",
    "INSERT OR REPLACE INTO events SELECT * FROM events",
    "REPLACE INTO cost_ledger SELECT * FROM cost_ledger",
    "REPLACE INTO plan_items SELECT * FROM plan_items",
    "REPLACE INTO producers SELECT * FROM producers",
    "REPLACE INTO session_meta SELECT * FROM session_meta",
    "INSERT INTO session_meta SELECT 'x', NULL, 'p', 'running', 0, '', NULL",
    "INSERT INTO producers SELECT * FROM producers WHERE true ON CONFLICT DO UPDATE SET name = 'x'",
    "INSERT INTO events SELECT * FROM events WHERE true ON CONFLICT (id) DO UPDATE SET kind = 'x'",
    "CREATE TABLE extra (x)",
    "CREATE TEMP TABLE extra (x)",
    "CREATE INDEX extra ON events (id)",
    "CREATE VIEW extra AS SELECT 1",
    "CREATE TRIGGER extra AFTER INSERT ON events BEGIN SELECT 1; END",
    "CREATE TEMP TRIGGER extra AFTER INSERT ON events BEGIN DELETE FROM events; END",
    "CREATE VIRTUAL TABLE extra USING fts5(x)",
    "ALTER TABLE events ADD COLUMN trace_id TEXT",
    "ALTER TABLE events RENAME TO old",
    "DROP TABLE plan_items",
    "DROP INDEX idx_events_kind",
    "DROP TRIGGER temp.events_is_append_only",
    "ATTACH ':memory:' AS other",
    "VACUUM",
    "VACUUM INTO 'elsewhere'",
    "REINDEX",
    "ANALYZE",
    "UPDATE sqlite_sequence SET seq = 0",
    "DELETE FROM sqlite_sequence",
    "UPDATE sqlite_schema SET sql = ''",
    "PRAGMA writable_schema = ON",
    "PRAGMA writable_schema",
    "PRAGMA recursive_triggers = OFF",
    "PRAGMA main.recursive_triggers(0)",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA ignore_check_constraints = ON",
    "PRAGMA user_version = 2",
    "PRAGMA main.user_version = 2",
    "PRAGMA schema_version = 2",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA synchronous = OFF",
    "PRAGMA query_only = OFF",
    "PRAGMA defer_foreign_keys = ON",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA legacy_alter_table = ON",
    "PRAGMA optimize",
    "PRAGMA incremental_vacuum",
    "PRAGMA shrink_memory",
    "PRAGMA data_store_directory = '/'",
]
READ_ONLY = [
    "INSERT INTO producers VALUES ('tool', 'x', '1', 1)",
    "UPDATE session_meta SET status = 'failed'",
]


@pytest.fixture
def session(backend: StateBackend) -> Iterator[Session]:
    """Return an open session with one turn of everything."""
    with backend.create("default") as session:
        fill(session)
        yield session


@contextmanager
def unchanged(session: Session) -> Iterator[None]:
    """Check that what the file holds is the same afterwards, looked at from outside."""
    before = rows_of(session.path)
    yield
    assert rows_of(session.path) == before


@pytest.mark.conformance("SB-10")
@pytest.mark.parametrize("statement", FORBIDDEN)
def test_sb10_raw_sql_cannot_rewrite_through_the_writing_connection(
    session: Session, statement: str
) -> None:
    """UPDATE, DELETE, REPLACE, DDL, ATTACH and the switches fail on the driver's connection."""
    with unchanged(session), pytest.raises(sqlite3.DatabaseError):
        engine.driver_of(session._held.connection).execute(statement)


@pytest.mark.conformance("SB-10")
@pytest.mark.parametrize("statement", [*FORBIDDEN, *READ_ONLY])
def test_sb10_a_reading_connection_cannot_write_at_all(session: Session, statement: str) -> None:
    """Everything that writes or switches fails on the connection of view.orm()."""
    with unchanged(session), session.orm() as reading, pytest.raises(DatabaseError):
        reading.execute(text(statement))


_Change = Callable[[orm.Session], object]


def _changed_row(model: type[models.Base], **values: object) -> _Change:
    def change(session: orm.Session) -> None:
        row = session.scalars(select(model)).first()
        assert row is not None
        for name, value in values.items():
            setattr(row, name, value)
        session.flush()

    return change


def _deleted_row(session: orm.Session) -> None:
    session.delete(session.scalars(select(models.PlanItem)).first())
    session.flush()


ORM_CHANGES: dict[str, _Change] = {
    "a changed event": _changed_row(models.Event, payload=b"other"),
    "a changed cost": _changed_row(models.CostLedger, cost_usd=0.0),
    "a changed plan item": _changed_row(models.PlanItem, decision="allow", decided_by="x"),
    "a changed producer": _changed_row(models.Producer, first_seen_sequence=5),
    "a deleted row": _deleted_row,
    "a bulk update": lambda orm: orm.execute(update(models.Event).values(kind="plan")),
    "a bulk delete": lambda orm: orm.execute(delete(models.CostLedger)),
    "a core replace": lambda orm: orm.execute(
        insert(models.Producer)
        .prefix_with("OR REPLACE")
        .values(category="tool", name="shell", version="1.0.0", first_seen_sequence=1)
    ),
    "a core upsert": lambda orm: orm.execute(
        insert(models.Producer)
        .values(category="tool", name="shell", version="1.0.0", first_seen_sequence=1)
        .on_conflict_do_update(set_={"first_seen_sequence": 1})
    ),
}


@pytest.mark.conformance("SB-10")
@pytest.mark.parametrize("name", ORM_CHANGES)
def test_sb10_the_orm_cannot_rewrite_through_the_writing_connection(
    session: Session, name: str
) -> None:
    """Changed and deleted objects, and Core statements, fail on the writer's own connection."""
    with (
        unchanged(session),
        orm.Session(session._held.connection) as writing,
        pytest.raises(DatabaseError),
    ):
        ORM_CHANGES[name](writing)


@pytest.mark.conformance("SB-10")
@pytest.mark.parametrize("name", ORM_CHANGES)
def test_sb10_the_orm_of_a_view_cannot_write(session: Session, name: str) -> None:
    """The same fail on the session that view.orm() hands out."""
    with (
        unchanged(session),
        StateBackend(session.path.parent).read(session.session_id) as view,
        view.orm() as reading,
        pytest.raises(DatabaseError),
    ):
        ORM_CHANGES[name](reading)


@pytest.mark.conformance("SB-10")
def test_sb10_the_guard_leaves_no_trace_in_the_file(session: Session) -> None:
    """Appends are still possible, and what guards them lives in the connection alone."""
    call(session)
    assert not sql(session.path, "SELECT name FROM sqlite_schema WHERE type = 'trigger'")


# -- SB-11 to SB-15 --------------------------------------------------------------------------------


@pytest.mark.conformance("SB-11")
def test_sb11_a_repeated_id_is_refused_and_changes_nothing(session: Session) -> None:
    """The second event of an id is an error with the first one's sequence; no row is added."""
    session.append_message(producer=MODEL, payload=b"x", cost=cost(), event_id="turn")
    new_build = Producer("model", "anthropic", "9")
    with unchanged(session), pytest.raises(DuplicateEvent) as caught:
        session.append_message(producer=new_build, payload=b"y", cost=cost(9.0), event_id="turn")
    assert (caught.value.event_id, caught.value.sequence) == ("turn", 6)
    assert caught.value.same_content is False


@pytest.mark.conformance("SB-11")
def test_sb11_a_retry_can_tell_success_from_conflict(session: Session) -> None:
    """Equal content, cost and items included, is told apart from any difference."""
    items = [item("deny")]
    session.append_plan(producer=MODEL, payload=b"p", items=items, event_id="plan")
    with pytest.raises(DuplicateEvent) as same:
        session.append_plan(producer=MODEL, payload=b"p", items=items, event_id="plan")
    with pytest.raises(DuplicateEvent) as other:
        session.append_plan(producer=MODEL, payload=b"p", items=[item("ask")], event_id="plan")
    assert (same.value.same_content, other.value.same_content) == (True, False)


PAYLOADS = [
    b"",
    b"\0",
    b"\xff\xfe\x00",
    b'{"broken": ',
    b"\xed\xa0\xbd half a pair",
    b"'); DROP TABLE events; --",
    bytes(range(256)) * 300,
]


@pytest.mark.conformance("SB-12")
@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_sb12_payloads_come_back_byte_for_byte(session: Session, payload: bytes) -> None:
    """What was appended is what is stored, read, and handed to a renderer."""
    call(session, payload, event_id="one")
    event = session.event("one")
    assert event is not None
    assert event.payload == payload
    assert sql(session.path, "SELECT payload, typeof(payload) FROM events WHERE id = 'one'") == [
        (payload, "blob")
    ]


@pytest.mark.conformance("SB-12")
def test_sb12_a_payload_of_a_message_is_not_parsed_for_its_cost(session: Session) -> None:
    """Numbers inside a payload are the producer's business: the ledger has what was passed."""
    payload = b'{"usage": {"input_tokens": 1}, "cost_usd": 99}'
    session.append_message(producer=MODEL, payload=payload, cost=cost(0.5, input_tokens=7))
    assert [(one.cost.input_tokens, one.cost.cost_usd) for one in session.costs()][-1] == (7, 0.5)


@pytest.mark.conformance("SB-13")
def test_sb13_the_kinds_are_exactly_these() -> None:
    """The enum is the specification's, word for word."""
    assert [kind.value for kind in EventKind] == KINDS


@pytest.mark.conformance("SB-13")
@pytest.mark.parametrize("kind", KINDS)
def test_sb13_every_kind_is_stored_as_its_word(session: Session, kind: str) -> None:
    """Each kind can be appended, and its stored word is the specified one."""
    if kind == "message":
        session.append_message(producer=MODEL, payload=b"", cost=None, event_id="one")
    elif kind == "plan":
        session.append_plan(producer=MODEL, payload=b"", items=[], event_id="one")
    else:
        session.append(kind, producer=TOOL, payload=b"", schema_version="1", event_id="one")
    assert sql(session.path, "SELECT kind FROM events WHERE id = 'one'") == [(kind,)]


@pytest.mark.conformance("SB-13")
@pytest.mark.parametrize(
    "kind",
    [
        *("", "KIND_UNSPECIFIED", "kind_unspecified", "render", "session_start", "session_end"),
        *("usage", "Message", "message ", 0, None),
    ],
)
def test_sb13_any_other_kind_is_refused(session: Session, kind: Any) -> None:
    """The zero value and every other word are refused, in a batch too, before any write."""
    with unchanged(session):
        with pytest.raises(InvalidValue) as caught:
            session.append(kind, producer=TOOL, payload=b"", schema_version="1")
        with session.batch() as batch, pytest.raises(InvalidValue):
            batch.append(kind, producer=TOOL, payload=b"", schema_version="1")
    assert caught.value.field == "kind"


@pytest.mark.conformance("SB-14")
@pytest.mark.parametrize(
    "category", ["model", "tool", "context", "memory", "frontend", "widget", "slashcommand"]
)
def test_sb14_the_plugin_categories_are_stored(session: Session, category: str) -> None:
    """Each of the seven categories can write, under its own word."""
    call(session, producer=Producer(category, "x", "1"))
    assert sql(
        session.path, "SELECT producer_category FROM events ORDER BY sequence DESC LIMIT 1"
    ) == [(category,)]


@pytest.mark.conformance("SB-14")
@pytest.mark.parametrize("category", ["", "Tool", "plugin", "user", "kernel", "PRODUCER", None])
def test_sb14_any_other_category_is_refused(session: Session, category: Any) -> None:
    """Unknown categories, and the reserved one for an ordinary kind, write nothing."""
    with unchanged(session), pytest.raises(InvalidValue):
        call(session, producer=Producer(category, "x", "1"))


@pytest.mark.conformance("SB-14")
def test_sb14_a_hook_error_keeps_the_failing_subscriber(session: Session) -> None:
    """The kernel writes it, but the event's producer is the subscriber that failed."""
    failing = Producer("memory", "notes", "0.3")
    event = session.append(
        EventKind.HOOK_ERROR, producer=failing, payload=b"boom", schema_version="1"
    )
    assert event.producer == failing
    assert failing in [entry.producer for entry in session.producers()]


@pytest.mark.conformance("SB-15")
def test_sb15_no_trace_or_span_id_in_the_schema(backend: StateBackend) -> None:
    """No table or column is there for telemetry, in a file or in the models."""
    path = path_of(backend, full(backend))
    columns = [
        row[1]
        for table in TABLES
        for row in sql(path, f"SELECT * FROM pragma_table_info('{table}')")
    ]
    mapped = [column.name for table in models.Base.metadata.sorted_tables for column in table.c]
    assert sorted(columns) == sorted(mapped)
    assert not [name for name in columns if "trace" in name or "span" in name]


@pytest.mark.conformance("SB-12", "SB-23")
def test_sb12_replay_hands_over_what_nothing_could_parse(session: Session) -> None:
    """A payload that is no JSON and no text is shown, not stumbled over."""
    call(session, b"\xff\xfe\x00")
    *_, last = replay(session)
    assert last.text == render_generic(last.event)
    assert last.event.payload == b"\xff\xfe\x00"
