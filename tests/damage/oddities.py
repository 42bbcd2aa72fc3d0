"""Unusual but healthy files: they must be opened as they are, or refused as always."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.damage import bases
from tests.damage.bases import Base
from tests.damage.kinds import Unfit
from tests.damage.layout import Files


def as_it_is(base: Base, dice: random.Random) -> Files:
    """Leave it: any page size, a killed writer's WAL, stale pages, payloads like pages."""
    return dict(base.files)


def out_of_wal_mode(base: Base, dice: random.Random) -> Files:
    """Say in the header that a rollback journal is used."""
    return _changed(base, "PRAGMA journal_mode = DELETE")


def vacuumed(base: Base, dice: random.Random) -> Files:
    """Rewrite it with pages of another size."""
    size = dice.choice((4096, 8192, 65536))
    return _changed(base, "PRAGMA journal_mode = DELETE", f"PRAGMA page_size = {size}", "VACUUM")


def auto_vacuum(base: Base, dice: random.Random) -> Files:
    """Add pages that map pages."""
    mode = dice.choice(("FULL", "INCREMENTAL"))
    return _changed(base, "PRAGMA journal_mode = DELETE", f"PRAGMA auto_vacuum = {mode}", "VACUUM")


def more_indexes(base: Base, dice: random.Random) -> Files:
    """Add indexes by hand."""
    return _changed(
        base,
        "CREATE INDEX mine ON events (timestamp)",
        "CREATE INDEX cheap ON cost_ledger (model_id) WHERE cost_usd < 1",
    )


def more_tables(base: Base, dice: random.Random) -> Files:
    """Add tables by hand, one with a copy of the events."""
    return _changed(
        base,
        "CREATE TABLE copied AS SELECT * FROM events",
        "CREATE TABLE notes (a PRIMARY KEY, b) WITHOUT ROWID",
        "INSERT INTO notes VALUES (1, 'é')",
        "ANALYZE",
    )


def freed_pages(base: Base, dice: random.Random) -> Files:
    """Add a freelist with old rows on its pages."""
    return _changed(base, "CREATE TABLE copied AS SELECT * FROM events", "DROP TABLE copied")


def power_cut(base: Base, dice: random.Random) -> Files:
    """Write the last transaction only in part: it was not acknowledged."""
    if not base.layout.commits:
        raise Unfit
    start, end = base.layout.commits[-1]
    wal = base.files["-wal"]
    at = dice.randrange(start, end)
    rest = dice.choice((b"", bytes(len(wal) - at), dice.randbytes(end - at)))
    return {"": base.files[""], "-wal": wal[:at] + rest}


def empty_wal(base: Base, dice: random.Random) -> Files:
    """Add an empty WAL, as a reader leaves it, and a shm."""
    if base.files.get("-wal"):
        raise Unfit
    return {"": base.files[""], "-wal": b"", "-shm": bytes(32768)}


def journal_done(base: Base, dice: random.Random) -> Files:
    """Add a journal whose header was zeroed: its transaction was committed."""
    if base.files.get("-wal"):
        raise Unfit
    return {"": base.files[""], "-journal": bytes(512) + dice.randbytes(3000)}


ODDITIES: dict[str, Callable[[Base, random.Random], Files]] = {
    function.__name__.replace("_", " "): function
    for function in (
        as_it_is,
        out_of_wal_mode,
        vacuumed,
        auto_vacuum,
        more_indexes,
        more_tables,
        freed_pages,
        power_cut,
        empty_wal,
        journal_done,
    )
}


def _changed(base: Base, *statements: str) -> Files:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sqlite"
        bases.put(base.files, path)
        with closing(sqlite3.connect(path, isolation_level=None)) as driver:
            for statement in statements:
                driver.execute(statement).fetchall()
        return bases.files_of(path)
