"""Rows of the last resorts: saved only if missing, and if nothing contradicts them.

A payload may hold bytes that look like a row.
"""

from __future__ import annotations

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.records import read_stored_row, save_unkeyed
from statebackend.recovery.salvage.shapes import Row, Shape
from statebackend.recovery.salvage.target import Target
from statebackend.recovery.salvage.texts import almost_equal, is_id


def save_if_missing(
    evidence: Evidence,
    target: Target,
    page: bytes,
    shape: Shape,
    cell: cells.Cell,
    *,
    route: str,
    sequence: int | None = None,
    must_be_indexed: bool = False,
) -> None:
    """Save the row of a cell under *sequence* (its rowid by default) if that is missing.

    A row that other evidence contradicts goes to the side file. With *must_be_indexed*, an event
    needs an entry in an index.
    """
    if shape.key is None:
        save_unkeyed(evidence, target, page, shape, cell, route=route, last_resort=True)
        return
    sequence = cell.rowid if sequence is None else sequence
    if not 0 < sequence <= evidence.max_sequence or target.has(shape, sequence):
        return
    row = read_stored_row(evidence, target, page, shape, cell)
    if row is None:
        return
    row = row.with_sequence(sequence)
    must_be_indexed = must_be_indexed or evidence.ids_complete
    if why := _contradict(evidence, target, row, sequence, must_be_indexed=must_be_indexed):
        target.set_row_aside(row, why)
    else:
        target.insert(row, route, only_if_missing=True)


def is_out_of_order(target: Target, row: Row, sequence: int) -> bool:
    """Tell whether a ledger or plan row's event is not between those of its neighbours."""
    table = row.shape.table
    if table == "events":
        return False
    event = row.values[1]
    (below, above) = target.driver.execute(
        f"SELECT (SELECT event_sequence FROM {table} WHERE sequence < :sequence "
        "ORDER BY sequence DESC LIMIT 1), "
        f"(SELECT event_sequence FROM {table} WHERE sequence > :sequence "
        "ORDER BY sequence LIMIT 1)",
        {"sequence": sequence},
    ).fetchone()
    return (below is not None and event < below) or (above is not None and event > above)


def has_indexed_kind(event: Row, texts: set[bytes]) -> bool:
    """Tell whether the indexes have an event's kind and producer under its sequence, but no id.

    Then the sequence in the index of ids is the damaged one.
    """
    kind, category = event.values[3:5]
    return {str(kind).encode(), str(category).encode()} <= texts and not any(map(is_id, texts))


def _contradict(
    evidence: Evidence, target: Target, row: Row, sequence: int, *, must_be_indexed: bool
) -> str | None:
    """Return what contradicts a row, None if nothing does."""
    if row.shape.table == "events":
        texts = set(evidence.missing_events.get(sequence, ()))
        ids = [text for text in texts if is_id(text)]
        if ids and not any(almost_equal(text, row.event_id) for text in ids):
            return "the index of ids has another event under its sequence"
        if must_be_indexed and not ids and not has_indexed_kind(row, texts):
            return "the index of ids does not have it"
        return None
    if sequence > _highest(evidence, target, row.shape.table):
        return "its sequence was never given"
    if is_out_of_order(target, row, sequence):
        return "its event does not lie between those of its neighbours"
    return None


def _highest(evidence: Evidence, target: Target, table: str) -> int:
    """Return the highest sequence that a row of *table* can have."""
    counters = evidence.counters(table)
    return max(*counters, target.highest(table)) if counters else evidence.max_sequence
