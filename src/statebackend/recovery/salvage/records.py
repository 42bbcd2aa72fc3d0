"""Whole rows out of cells, and the owners of their overflow pages."""

from __future__ import annotations

from typing import Any

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.overflow import CONTESTED, OverflowChain, Owner
from statebackend.recovery.salvage.shapes import Row, Shape, read_row
from statebackend.recovery.salvage.target import Target
from statebackend.recovery.salvage.texts import almost_equal


def save_unkeyed(
    evidence: Evidence,
    target: Target,
    page: bytes,
    shape: Shape,
    cell: cells.Cell,
    *,
    route: str,
    last_resort: bool = False,
) -> None:
    """Save a row of ``producers``; hand one of ``session_meta`` on to its pass.

    A producer out of a last resort counts only if an event names it.
    """
    row = read_stored_row(evidence, target, page, shape, cell)
    if row is None:
        return
    if shape.table == "session_meta":
        evidence.metas.append((row, route))
    elif not last_resort:
        target.insert(row, route)
    elif row.unfit is None and _is_named_by_event(target, row.values):
        target.insert(row, route, only_if_missing=True)


def read_stored_row(
    evidence: Evidence, target: Target, page: bytes, shape: Shape, cell: cells.Cell
) -> Row | None:
    """Return the row of *cell*, None if its overflow chain is not valid or not its own."""
    record = _read_record(evidence, target, page, shape, cell)
    return None if record is None else read_row(shape, cell.rowid, cell.types, record)


def _read_record(
    evidence: Evidence, target: Target, page: bytes, shape: Shape, cell: cells.Cell
) -> bytes | None:
    local = page[cell.header : cell.header + cell.local]
    if cell.local == cell.payload:
        return local
    chain = evidence.chains.follow(cell, local[-1:])
    if chain is None or evidence.chains.may_continue(chain):
        return None
    owner = (shape.table, cell.rowid)
    others = evidence.chains.other_owners(chain, owner)
    if others:
        if len(others) == 1 and _is_copy(target, shape, cell, local, *others):
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
    return local + chain.content


def _win_pages(
    evidence: Evidence, target: Target, chain: OverflowChain, others: set[Owner]
) -> bool:
    """Settle which row owns the pages of *chain* that *others* own too; tell if it is this one.

    Rows that lose are removed. Where nothing decides, all of them lose.
    """
    claims = [evidence.chains.has_better_claim(chain, other) for other in others]
    if False in claims:
        return False
    for table, sequence in others - {CONTESTED}:
        target.remove(table, sequence, "its overflow pages are claimed by another row")
    if None not in claims:
        return True
    evidence.chains.claim(chain, CONTESTED)
    return False


def _is_copy(target: Target, shape: Shape, cell: cells.Cell, local: bytes, other: Owner) -> bool:
    """Tell whether a cell is a copy, under another number, of a saved event."""
    if shape.table != "events" or other[0] != "events":
        return False
    event_id = cells.first_text(local, cell.types)
    query = "SELECT CAST(id AS BLOB) FROM events WHERE sequence = ?"
    saved = target.driver.execute(query, (other[1],)).fetchone()
    return saved is not None and almost_equal(saved[0], event_id)


def _is_named_by_event(target: Target, producer: tuple[Any, ...]) -> bool:
    query = (
        "SELECT 1 FROM events WHERE "
        "(producer_category, producer_name, producer_version) = (?, ?, ?) LIMIT 1"
    )
    return target.driver.execute(query, producer[:3]).fetchone() is not None
