"""Rows of ``producers``, which repeat columns of the events."""

from __future__ import annotations

from typing import Any

from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.shapes import Row, almost_equal
from statebackend.recovery.salvage.target import Target


def run(_evidence: Evidence, target: Target) -> None:
    """Complete ``producers`` from the events.

    Answers a lost or damaged row of a producer.
    """
    shape = target.shapes["producers"]
    rows = target.driver.execute(
        "SELECT producer_category, producer_name, producer_version, min(sequence), count(*) "
        "FROM events GROUP BY 1, 2, 3 HAVING NOT EXISTS (SELECT 1 FROM producers WHERE "
        "category = producer_category AND name = producer_name AND version = producer_version)"
    ).fetchall()
    for *producer, events in rows:
        values = tuple(producer)
        # With one event alone, that event may be the damaged one.
        if events == 1 or not _repair(target, values):
            target.insert(Row(shape, values, (), None), "derived")


def _repair(target: Target, producer: tuple[Any, ...]) -> bool:
    """Correct a row that differs from *producer* in damaged characters only; return whether any."""
    # Its first event is the producer's, or lost. No other event names the damaged row.
    unnamed = target.driver.execute(
        "SELECT rowid, category, name, version FROM producers WHERE (first_seen_sequence = :first "
        "OR first_seen_sequence < :first AND first_seen_sequence NOT IN "
        "(SELECT sequence FROM events)) "
        "AND NOT EXISTS (SELECT 1 FROM events WHERE producer_category = category "
        "AND producer_name = name AND producer_version = version)",
        {"first": producer[3]},
    )
    wanted = "\0".join(producer[:3])
    similar = [row for row in unnamed if almost_equal("\0".join(row[1:]), wanted)]
    if len(similar) != 1:
        return False
    rowid, *stored = similar[0]
    target.driver.execute(
        "UPDATE producers SET category = ?, name = ?, version = ? WHERE rowid = ?",
        (*producer[:3], rowid),
    )
    target.repaired["producers"] += 1
    was = " ".join(map(repr, stored))
    target.note(f"producers name {producer[1]}: put right from its events (was {was})")
    return True
