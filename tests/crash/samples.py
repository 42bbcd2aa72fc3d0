"""What the crash tests append, and what they look at afterwards."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from statebackend import Cost, Event, PlanItem, Producer, Session, StateBackend

MODEL = Producer("model", "anthropic", "2.1.0")
TOOL = Producer("tool", "shell", "1.0.0")


def cost(cost_usd: float = 0.5) -> Cost:
    """Return the spend of a turn."""
    return Cost(
        provider_name="anthropic",
        model_id="m-large",
        input_tokens=100,
        output_tokens=10,
        cache_write_tokens=3,
        cache_read_tokens=5,
        cost_usd=cost_usd,
    )


def item(call: str = "call-1") -> PlanItem:
    """Return a planned call."""
    return PlanItem(
        turn_id="t1",
        tool_call_id=call,
        provider_name="shell",
        tool_name="run",
        decision="allow",
        decided_by="policy",
    )


def append(session: Session, event_id: str | None = None, payload: bytes = b"{}") -> Event:
    """Append a message with its cost."""
    return session.append_message(producer=MODEL, payload=payload, cost=cost(), event_id=event_id)


def new_session(backend: StateBackend, events: int = 0) -> str:
    """Make a closed session with so many messages and return its id."""
    with backend.create("default") as session:
        with session.batch() as batch:
            for _ in range(events):
                batch.append_message(producer=MODEL, payload=b"{}", cost=cost())
        return session.session_id


def session_file(backend: StateBackend, session_id: str) -> Path:
    """Return the file of a session."""
    return backend.directory / f"{session_id}.sqlite"


def litter(backend: StateBackend) -> set[str]:
    """Return the names in the folder, and in that of the locks, that are no session file."""
    names = {path.name for path in backend.directory.iterdir() if path.suffix != ".sqlite"}
    return (names - {".locks"}) | {path.name for path in backend.directory.glob(".locks/*")}


def assert_whole(path: Path) -> None:
    """Assert what holds for every session file, whatever happened to its writer.

    The integrity and the references are sound, the sequences have no gap, each message of MODEL
    has its cost row, each plan its one item, and every producer has the row of its first event.
    Only for a file that nobody has open. Nothing is left behind.
    """
    assert not Path(f"{path}-wal").exists()
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as driver:
        assert driver.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert driver.execute("PRAGMA foreign_key_check").fetchall() == []
        for table in ("events", "cost_ledger", "plan_items"):
            count, last = driver.execute(
                f"SELECT count(*), coalesce(max(sequence), 0) FROM {table}"
            ).fetchone()
            assert count == last, f"{table}: {count} rows up to {last}"
        assert driver.execute(_WRONG_CHILDREN).fetchall() == []
        assert driver.execute(_PRODUCERS).fetchall() == driver.execute(_FIRST_SEEN).fetchall()


_WRONG_CHILDREN = """
    SELECT sequence, kind,
        (SELECT count(*) FROM cost_ledger WHERE event_sequence = events.sequence) AS costs,
        (SELECT count(*) FROM plan_items WHERE event_sequence = events.sequence) AS items
    FROM events
    WHERE costs <> (kind = 'message' AND producer_category = 'model')
        OR items <> (kind = 'plan')
"""
_PRODUCERS = "SELECT category, name, version, first_seen_sequence FROM producers ORDER BY 1, 2, 3"
_FIRST_SEEN = """
    SELECT producer_category, producer_name, producer_version, min(sequence)
    FROM events GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
