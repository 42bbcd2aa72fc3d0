"""The pool of healthy sessions that are damaged: built once, through the API."""

from __future__ import annotations

import random
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from statebackend import (
    EventKind,
    PlanDecision,
    PlanItem,
    Producer,
    Session,
    SessionStatus,
    StateBackend,
)
from statebackend.recording.appends import Batch
from tests.damage import layout
from tests.damage.layout import Files, Layout, Row, Values
from tests.session_files import cost, item, killed_writer

ENDINGS = ("", "-wal", "-shm", "-journal")
_ULID = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
_WORDS = ("ls -l", "naïve café", "日本語のテキスト", "🙂🚀", "{}", "ünïcödé", "x" * 40)
_PRODUCERS = (
    Producer("model", "anthropic", "2.1.0"),
    Producer("tool", "shell", "1.0.0"),
    Producer("tool", "Werkzeug-Ü", "0.1-β"),
    Producer("memory", "notes", "3"),
    Producer("context", "文脈", "12.0"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a base is built: events, sizes of payloads in bytes, page size, and the rest."""

    events: int
    sizes: tuple[int, int]
    page_size: int = 4096
    has_wal: bool = False
    restarted: bool = False
    rebuilt: bool = False
    images: bool = False
    ended: bool = False


@dataclass(slots=True)
class Base:
    """A healthy session: its id, its files, an earlier state of them, its rows.

    ``metas`` are all rows of ``session_meta`` that were committed.
    """

    session_id: str
    plan: Plan
    files: Files
    earlier: Files
    layout: Layout
    metas: set[Values] = field(default_factory=set)

    @property
    def rows(self) -> dict[str, dict[Values, Row]]:
        """Return the rows of the five tables by their keys."""
        return {table: self.layout.rows[table] for table in layout.TABLES}


PLANS = (
    Plan(40, (0, 300)),
    Plan(60, (0, 9_000), has_wal=True),
    Plan(300, (20, 900), rebuilt=True),
    Plan(0, (0, 0)),
    Plan(25, (0, 40_000), has_wal=True, restarted=True),
    Plan(120, (0, 700), page_size=512, has_wal=True),
    Plan(500, (0, 60), ended=True),
    Plan(30, (200, 5_000), images=True),
    Plan(80, (0, 2_000), page_size=1024, rebuilt=True, ended=True),
    Plan(1, (10, 10), has_wal=True),
    Plan(200, (0, 1_500), has_wal=True, restarted=True),
    Plan(40, (0, 30_000), page_size=65536, has_wal=True),
    # Only in the long runs:
    Plan(2_000, (0, 200)),
    Plan(2_000, (0, 120), has_wal=True),
    Plan(1_000, (0, 2_000), rebuilt=True),
    Plan(1_200, (0, 500), page_size=1024, has_wal=True, restarted=True),
    Plan(100, (0, 40_000), ended=True),
    Plan(60, (0, 12_000), page_size=512),
    Plan(300, (0, 3_000), page_size=8192, has_wal=True),
    Plan(300, (0, 3_000), page_size=16384, rebuilt=True),
    Plan(400, (0, 1_000), page_size=32768),
    Plan(600, (0, 1_000), page_size=65536, rebuilt=True),
    Plan(50, (400, 8_000), images=True, has_wal=True),
    Plan(60, (400, 8_000), page_size=1024, images=True),
    Plan(80, (0, 3_000), rebuilt=True, images=True, has_wal=True),
    Plan(0, (0, 0), has_wal=True),
    Plan(5, (0, 20_000)),
    Plan(900, (0, 100), page_size=512),
    Plan(700, (0, 400), rebuilt=True, has_wal=True, restarted=True),
    Plan(3, (0, 50), page_size=2048, has_wal=True),
)
SHORT = 12
"""How many of the plans a short run uses."""


def pool(folder: Path, plans: tuple[Plan, ...], seed: int) -> list[Base]:
    """Build the bases, and that of a killed process, below *folder*."""
    dice = random.Random(seed)
    bases = [_built(folder / str(number), plan, dice) for number, plan in enumerate(plans)]
    return [*bases, _killed(folder / "killed")]


def files_of(path: Path) -> Files:
    """Return the bytes of a session file and of its sidecars."""
    found = {ending: Path(f"{path}{ending}") for ending in ENDINGS}
    return {ending: file.read_bytes() for ending, file in found.items() if file.exists()}


def without_room(files: Files) -> Files:
    """Return *files* with a WAL that ends with its last frame."""
    wal = files["-wal"]
    size = 24 + int.from_bytes(wal[8:12], "big")
    end = 32
    while any(wal[end + 8 : end + 16]):  # salts
        end += size
    return {**files, "-wal": wal[:end]}


def put(files: Files, path: Path) -> None:
    """Write the files of a session to the name *path*."""
    for ending, content in files.items():
        place = Path(f"{path}{ending}")
        place.write_bytes(content)
        place.chmod(0o600)


def _killed(folder: Path) -> Base:
    folder.mkdir(mode=0o700, parents=True)
    session_id = killed_writer(StateBackend(folder))
    files = files_of(folder / f"{session_id}.sqlite")
    return _based(session_id, Plan(5, (2, 11), has_wal=True), files, files)


def _built(folder: Path, plan: Plan, dice: random.Random) -> Base:
    backend = StateBackend(folder)
    started = _START + timedelta(seconds=dice.randrange(10**6))
    session_id = "01KJ" + "".join(dice.choices(_ULID, k=22))
    path = folder / f"{session_id}.sqlite"
    profile = dice.choice(("default", "Überprüfung"))
    backend.create(profile, session_id=session_id, started_at=started).close()
    _set_up(path, plan)
    metas = {_meta(path)}
    counts = plan.events // 2, plan.events - plan.events // 2
    with backend.open(session_id) as session:
        _fill(session, counts[0], plan, dice)
    if plan.rebuilt:
        rebuild(path, dice.choice(("events", "cost_ledger")))
    session = backend.open(session_id)
    with session:
        _fill(session, counts[1] // 2, plan, dice)
        if plan.ended:
            session.set_status(SessionStatus.COMPLETED)
            metas.add(_meta(path))
            session.set_status(SessionStatus.RUNNING)
            metas.add(_meta(path))
        earlier = files_of(path)
        if plan.restarted:
            with closing(sqlite3.connect(path)) as beside:
                beside.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        _fill(session, counts[1] - counts[1] // 2, plan, dice)
        if plan.ended:
            session.set_status(SessionStatus.COMPLETED)
        metas.add(_meta(path))
        files = files_of(path)
    if not plan.has_wal:
        files = files_of(path)
    return _based(session_id, plan, files, earlier, metas)


def _based(
    session_id: str, plan: Plan, files: Files, earlier: Files, metas: set[Values] | None = None
) -> Base:
    return Base(session_id, plan, files, earlier, layout.read(files), metas or set())


def _meta(path: Path) -> Values:
    with closing(sqlite3.connect(path)) as driver:
        return tuple(driver.execute("SELECT * FROM session_meta").fetchone())


def _set_up(path: Path, plan: Plan) -> None:
    if plan.page_size == 4096:
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        driver.execute("PRAGMA journal_mode = DELETE").fetchone()
        driver.execute(f"PRAGMA page_size = {plan.page_size}")
        driver.execute("VACUUM")
        driver.execute("PRAGMA journal_mode = WAL").fetchone()


def rebuild(path: Path, table: str) -> None:
    """Copy a table to a new one in its place, as a migration does: stale pages stay behind."""
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        driver.execute("PRAGMA legacy_alter_table = ON")
        ((ddl,),) = driver.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,))
        indexes = driver.execute(
            "SELECT sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql NOT NULL",
            (table,),
        ).fetchall()
        driver.execute("BEGIN")
        driver.execute(ddl.replace(table, f"{table}_new", 1))
        driver.execute(f"INSERT INTO {table}_new SELECT * FROM {table}")
        driver.execute(f"DROP TABLE {table}")
        driver.execute(f"ALTER TABLE {table}_new RENAME TO {table}")
        for (index,) in indexes:
            driver.execute(index)
        driver.execute("COMMIT")


def _fill(session: Session, events: int, plan: Plan, dice: random.Random) -> None:
    left = events
    while left:
        size = min(left, dice.choice((1, 1, 3, 20, 200)))
        with session.batch() as batch:
            for _number in range(size):
                _append(batch, plan, dice)
        left -= size


def _append(batch: Batch, plan: Plan, dice: random.Random) -> None:
    which = dice.random()
    given: dict[str, Any] = {
        "payload": _payload(plan, dice),
        "event_id": "01KJ" + "".join(dice.choices(_ULID, k=22)),
        "timestamp": _START + timedelta(milliseconds=dice.randrange(10**9)),
    }
    if which < 0.1:
        batch.append_prompt(schema_version="1", **given)
    elif which < 0.35:
        spent = cost(
            round(dice.uniform(0, 3), dice.randrange(8)),
            input_tokens=dice.randrange(10 ** dice.randrange(1, 10)),
            cache_read_tokens=dice.randrange(3),
            model_id=dice.choice(("m-large", "模型-1")),
        )
        batch.append_message(
            producer=_PRODUCERS[0], cost=dice.choice((spent, spent, None)), **given
        )
    elif which < 0.45:
        items = [_item(dice) for _number in range(dice.randrange(5))]
        batch.append_plan(producer=_PRODUCERS[0], items=items, **given)
    else:
        kind = dice.choice((EventKind.TOOL_CALL, EventKind.TOOL_RESULT, EventKind.MEMORY_WRITE))
        batch.append(
            kind,
            producer=dice.choice(_PRODUCERS),
            schema_version=dice.choice(("1", "2.0")),
            **given,
        )


def _item(dice: random.Random) -> PlanItem:
    return item(
        dice.choice(list(PlanDecision)),
        turn_id=f"turn-{dice.randrange(99)}",
        tool_call_id="".join(dice.choices(_ULID, k=12)),
        decided_by=dice.choice(("policy:default", "règle:été")),
    )


def _payload(plan: Plan, dice: random.Random) -> bytes:
    least, most = plan.sizes
    size = dice.choice((least, most, dice.randint(least, most), dice.randint(least, most)))
    if plan.images and dice.random() < 0.6:
        return _image(dice)
    if dice.random() < 0.2:
        return dice.randbytes(size)
    text = " ".join(dice.choices(_WORDS, k=size // 6 + 1))
    return text.encode()[:size]


def _image(dice: random.Random) -> bytes:
    """Return a payload that holds whole pages and cells of another session, made up here."""
    with closing(sqlite3.connect(":memory:")) as driver:
        driver.execute(f"PRAGMA page_size = {dice.choice((512, 1024, 4096))}")
        driver.execute(
            "CREATE TABLE events (sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL "
            "UNIQUE, timestamp TEXT NOT NULL, kind TEXT NOT NULL, producer_category TEXT NOT NULL, "
            "producer_name TEXT NOT NULL, producer_version TEXT NOT NULL, "
            "schema_version TEXT NOT NULL, payload BLOB NOT NULL)"
        )
        first = dice.randrange(1, 60)
        for number in range(first, first + 4):
            driver.execute(
                "INSERT INTO events VALUES (?, ?, '2026-03-01T12:00:00.000Z', 'tool_call', 'tool', "
                "'shell', '1.0.0', '1', ?)",
                (number, "01KJ" + "".join(dice.choices(_ULID, k=22)), b"never was"),
            )
        image = driver.serialize()
    start = dice.choice((0, 512, 1024, len(image) // 2))
    return dice.randbytes(dice.randrange(3)) + image[start : start + 9_000]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for base in pool(Path(name), PLANS, 1):
            sizes = {ending: len(content) for ending, content in base.files.items()}
            rows = {table: len(found) for table, found in base.rows.items()}
            sys.stdout.write(f"{base.plan} {sizes} {rows}\n")
