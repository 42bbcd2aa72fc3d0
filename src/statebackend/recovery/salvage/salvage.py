"""What can be saved of a damaged session file, into a new one; the damaged one is only read.

SQLite follows pointers, and a wrong pointer gives it other rows or none. Here every page is read,
with or without a pointer to it. A row counts only if its header, its lengths and the types of its
values fit one of the five tables, and no other row owns its overflow pages (SB-34; specification,
"Corruption recovery").
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from statebackend.recovery.salvage.evidence import Evidence, gather
from statebackend.recovery.salvage.images import Images
from statebackend.recovery.salvage.passes import (
    carved_cells,
    counters,
    event_columns,
    event_ids,
    missing_events,
    older_images,
    producers,
    session_meta,
    swapped_pages,
    table_pages,
    unconfirmed_rowids,
)
from statebackend.recovery.salvage.shapes import REFERENCES
from statebackend.recovery.salvage.sidecars import apply_sidecars
from statebackend.recovery.salvage.target import Target
from statebackend.schema.migrate import SESSIONS, Chain, schema_image
from statebackend.sqlite.faults import storage_error
from statebackend.values.recorded import SCHEMA_VERSION
from statebackend.values.reports import TableRecovery
from statebackend.values.tables import COLUMNS


class Pass(NamedTuple):
    """One pass: its name and its function. A last resort runs only if something is missing."""

    name: str
    run: Callable[[Evidence, Target], None]
    last_resort: bool = False


PASSES = (
    Pass("swapped pages", swapped_pages.run),
    Pass("table pages", table_pages.run),
    Pass("unconfirmed rowids", unconfirmed_rowids.run),
    Pass("event ids", event_ids.run),
    Pass("event columns", event_columns.run),
    Pass("missing events", missing_events.run),
    Pass("older images", older_images.run, last_resort=True),
    Pass("carved cells", carved_cells.run, last_resort=True),
    Pass("event ids", event_ids.run, last_resort=True),
    Pass("event columns", event_columns.run, last_resort=True),
    Pass("session_meta", session_meta.run),
    Pass("producers", producers.run),
    Pass("counters", counters.run),
)
"""All passes, in the order in which they run: from the most reliable source to the last resort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """What was saved: by table, which columns of ``session_meta`` were derived, and notes.

    ``uncounted`` says why rows may be lost that cannot be counted, ``has_aside`` whether there is
    a side file.
    """

    tables: tuple[TableRecovery, ...]
    derived: tuple[str, ...]
    notes: tuple[str, ...]
    uncounted: tuple[str, ...]
    has_aside: bool

    @property
    def empty(self) -> bool:
        """Whether no row was saved."""
        return not any(table.routes.keys() - {"derived"} for table in self.tables)


def salvage(
    source: Path, target: Path, aside: Path, session_id: str, *, descriptor: int | None = None
) -> Salvage:
    """Save what can be read of the session file *source* into the new file *target*.

    Rows that break the schema or contradict others go to *aside*, as lines of JSON. Neither file
    may exist. Reads *source*, its WAL and its journal with plain file calls: only while this
    process has no connection on them. A *descriptor* of the file is used in place of a new one, and
    left open. Raises :class:`OSError` as the system does, and the storage errors about *target*.
    """
    try:
        with Images(source, descriptor) as images:
            notes, uncounted = apply_sidecars(images, session_id)
            known = (number for number in images.user_versions() if 0 < number <= SCHEMA_VERSION)
            image = schema_image(Chain(SESSIONS.versions, next(known, SCHEMA_VERSION)))
            with closing(Target(target, aside, image)) as new:
                new.notes += notes
                evidence = gather(images, new.shapes, session_id)
                for step in PASSES:
                    if evidence.incomplete or not step.last_resort:
                        step.run(evidence, new)
                return Salvage(
                    tables=tuple(_count(new, table) for table in COLUMNS),
                    derived=new.derived,
                    notes=tuple(new.notes),
                    uncounted=uncounted,
                    has_aside=new.finish(),
                )
    except sqlite3.Error as error:  # about the new file, the only one that SQLite opens here
        raise storage_error(target, error) from error


def _count(new: Target, table: str) -> TableRecovery:
    (kept,) = new.driver.execute(f"SELECT count(*) FROM {table}").fetchone()
    orphaned = 0
    if column := REFERENCES.get(table):
        (orphaned,) = new.driver.execute(
            f"SELECT count(*) FROM {table} WHERE {column} NOT IN (SELECT sequence FROM events)"
        ).fetchone()
    return TableRecovery(
        table=table,
        kept=kept,
        missing=new.missing_ranges.get(table, ()),
        routes=dict(new.routes[table]),
        repaired=new.repaired[table],
        doubtful=new.doubtful[table],
        orphaned=orphaned,
        set_aside=new.set_aside[table],
    )
