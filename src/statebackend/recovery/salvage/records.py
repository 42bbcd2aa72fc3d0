"""Whole rows out of cells: overflow pages settled, checked against other evidence, saved.

A payload may hold bytes that look like a row. So a row of a last resort is saved only if it is
missing and nothing contradicts it.
"""

from __future__ import annotations

from typing import Any

from statebackend.recovery.salvage.cells import Cell, first_text
from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.overflow import CONTESTED, OverflowChain, Owner
from statebackend.recovery.salvage.shapes import Row, Shape, almost_equal, is_id, read_row
from statebackend.recovery.salvage.target import Target


def save_if_missing(
    evidence: Evidence,
    target: Target,
    shape: Shape,
    cell: Cell,
    *,
    route: str,
    sequence: int,
    must_be_indexed: bool = False,
) -> None:
    """Save the row of a cell, a last resort's, under *sequence* if that is missing.

    A row that other evidence contradicts goes to the side file. With *must_be_indexed*, an event
    needs an entry in an index.
    """
    if shape.key is None:
        save_unkeyed(evidence, target, shape, cell, route=route, last_resort=True)
        return
    if not 0 < sequence <= evidence.max_sequence or target.has(shape, sequence):
        return
    row = read_stored_row(evidence, target, shape, cell)
    if row is None:
        return
    row = row.with_sequence(sequence)
    must_be_indexed = must_be_indexed or evidence.ids_complete
    if why := _contradict(evidence, target, row, sequence, must_be_indexed=must_be_indexed):
        target.set_row_aside(row, why)
    else:
        target.insert(row, route, only_if_missing=True)


def save_unkeyed(
    evidence: Evidence,
    target: Target,
    shape: Shape,
    cell: Cell,
    *,
    route: str,
    last_resort: bool = False,
) -> None:
    """Save a row of ``producers``; leave one of ``session_meta`` to its pass.

    A producer out of a last resort counts only if an event names it.
    """
    row = read_stored_row(evidence, target, shape, cell)
    if row is None:
        return
    if shape.table == "session_meta":
        evidence.metas.append((row, route))
    elif not last_resort:
        target.insert(row, route)
    elif row.unfit is None and _is_named_by_event(target, row.values):
        target.insert(row, route, only_if_missing=True)


def read_stored_row(evidence: Evidence, target: Target, shape: Shape, cell: Cell) -> Row | None:
    """Return the row of *cell*, None if its overflow chain is not valid or not its own."""
    if len(cell.record) == cell.payload:
        return read_row(shape, cell, cell.record)
    chain = evidence.chains.follow(cell)
    if chain is None or evidence.chains.may_continue(chain):
        return None
    owner = (shape.table, cell.rowid)
    if others := evidence.chains.other_owners(chain, owner):
        if len(others) == 1 and _is_copy(target, shape, cell, *others):
            return None
        if not _win_pages(evidence, target, chain, others):
            target.note(f"{shape.table} {cell.rowid}: its overflow pages are another row's")
            return None
    evidence.chains.claim(chain, owner)
    if chain.next_page:
        target.note_doubtful(
            shape.table,
            f"{shape.table} {cell.rowid}: its last overflow page {chain.pages[-1]} was damaged",
        )
    return read_row(shape, cell, cell.record + chain.content)


def is_out_of_order(target: Target, row: Row, sequence: int) -> bool:
    """Return whether a ledger or plan row's event is not between those of its neighbours."""
    table, event = row.shape.table, row.values[1]
    below, above = target.driver.execute(
        f"SELECT (SELECT event_sequence FROM {table} WHERE sequence < :sequence "
        "ORDER BY sequence DESC LIMIT 1), "
        f"(SELECT event_sequence FROM {table} WHERE sequence > :sequence "
        "ORDER BY sequence LIMIT 1)",
        {"sequence": sequence},
    ).fetchone()
    return (below is not None and event < below) or (above is not None and event > above)


def has_indexed_kind(event: Row, texts: set[bytes]) -> bool:
    """Return whether the indexes have an event's kind and producer under its sequence, but no id.

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
    counters = evidence.counters(row.shape.table)
    if counters and sequence > max(*counters, target.highest(row.shape.table)):
        return "its sequence was never given"
    if is_out_of_order(target, row, sequence):
        return "its event does not lie between those of its neighbours"
    return None


def _win_pages(
    evidence: Evidence, target: Target, chain: OverflowChain, others: set[Owner]
) -> bool:
    """Return whether *chain* owns the pages that *others* own too, and remove rows that do not."""
    # Where nothing decides, none of them does.
    claims = [evidence.chains.has_better_claim(chain, other) for other in others]
    if False in claims:
        return False
    for table, sequence in others - {CONTESTED}:
        target.remove(table, sequence, "its overflow pages are claimed by another row")
    if None not in claims:
        return True
    evidence.chains.claim(chain, CONTESTED)
    return False


def _is_copy(target: Target, shape: Shape, cell: Cell, other: Owner) -> bool:
    """Return whether a cell is a copy, under another number, of a saved event."""
    if shape.table != "events" or other[0] != "events":
        return False
    saved = target.event_id(other[1])
    return saved is not None and almost_equal(saved.encode(), first_text(cell))


def _is_named_by_event(target: Target, producer: tuple[Any, ...]) -> bool:
    query = (
        "SELECT 1 FROM events WHERE "
        "(producer_category, producer_name, producer_version) = (?, ?, ?) LIMIT 1"
    )
    return target.driver.execute(query, producer[:3]).fetchone() is not None
