"""What follows from other rows, where its own could not be read: session_meta and producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from statebackend.recovery.salvage.shapes import Column, Row
from statebackend.recovery.salvage.survey import is_near
from statebackend.recovery.salvage.target import Target
from statebackend.values import ids, timestamps
from statebackend.values.recorded import SessionStatus


def save_meta(new: Target, found: Sequence[tuple[Row, str]], session_id: str) -> tuple[str, ...]:
    """Save the one row of ``session_meta``; return the columns that had to be derived.

    *found* are rows of that table with what saved them, the surest first.
    """
    shape = new.shapes["session_meta"]
    names = [column.name for column in shape.columns]
    derived = _meta(new, session_id)
    own = session_id.encode()
    usable = [one for one in found if is_near(str(one[0].values[0]).encode(), own)]
    if not usable:
        new.insert(Row(shape, derived, (), None), "derived")
        return tuple(names)
    one, route = min(
        usable, key=lambda one: (one[0].unfit is not None, one[0].values[0] != session_id)
    )
    values = list(one.values)
    wrong = [at for at, value in enumerate(values) if not _suits(shape.columns[at], value)]
    for at in wrong:
        values[at] = derived[at]
    renamed = () if values[0] == session_id else ("session_id",)
    values[0] = session_id
    repaired = (*one.repaired, *renamed)
    marred = tuple(name for name in one.marred if name not in renamed)
    new.insert(Row(shape, tuple(values), repaired, None, marred), route)
    return tuple(names[at] for at in wrong)


def _suits(column: Column, value: object) -> bool:
    if value is None:
        return column.nullable
    return isinstance(value, str if column.kind == "TEXT" else int)


def _meta(new: Target, session_id: str) -> tuple[Any, ...]:
    first, last = new.driver.execute(
        "SELECT (SELECT timestamp FROM events ORDER BY sequence LIMIT 1), "
        "(SELECT timestamp FROM events ORDER BY sequence DESC LIMIT 1)"
    ).fetchone()
    made = timestamps.to_text(ids.session_time(session_id))
    failed = str(SessionStatus.FAILED)
    return (session_id, None, "unknown", failed, 0, first or made, last or made)


def derive_producers(new: Target) -> None:
    """Complete ``producers`` from the events, whose columns it repeats."""
    shape = new.shapes["producers"]
    rows = new.driver.execute(
        "SELECT producer_category, producer_name, producer_version, min(sequence), count(*) "
        "FROM events GROUP BY 1, 2, 3 HAVING NOT EXISTS (SELECT 1 FROM producers WHERE "
        "category = producer_category AND name = producer_name AND version = producer_version)"
    ).fetchall()
    for *producer, events in rows:
        values = tuple(producer)
        # Of one event alone, it may as well be the event that was hit.
        if events == 1 or not _put_right(new, values):
            new.insert(Row(shape, values, (), None), "derived")


def _put_right(new: Target, producer: tuple[Any, ...]) -> bool:
    """Put the row right that is this producer's but for some damaged characters, if there is one.

    Of its first event, which may be lost, there is one producer: a row of another that no event
    names was hit.
    """
    unnamed = new.driver.execute(
        "SELECT rowid, category, name, version FROM producers WHERE (first_seen_sequence = :first "
        "OR first_seen_sequence < :first AND first_seen_sequence NOT IN "
        "(SELECT sequence FROM events)) "
        "AND NOT EXISTS (SELECT 1 FROM events WHERE producer_category = category "
        "AND producer_name = name AND producer_version = version)",
        {"first": producer[3]},
    )
    found = [row for row in unnamed if is_near("\0".join(row[1:]), "\0".join(producer[:3]))]
    if len(found) != 1:
        return False
    new.driver.execute(
        "UPDATE producers SET category = ?, name = ?, version = ? WHERE rowid = ?",
        (*producer[:3], found[0][0]),
    )
    new.repaired["producers"] += 1
    was = " ".join(map(repr, found[0][1:]))
    new.note(f"producers name {producer[1]}: put right from its events (was {was})")
    return True
