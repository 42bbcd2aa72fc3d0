"""Whole rows out of cells: their records, and to whom the overflow pages belong."""

from __future__ import annotations

from typing import Any

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.evidence import Evidence, UnconfirmedRow
from statebackend.recovery.salvage.images import Place
from statebackend.recovery.salvage.overflow import CONTESTED, OverflowChain, Owner
from statebackend.recovery.salvage.rowids import judge_rowids
from statebackend.recovery.salvage.shapes import Shape, is_sequence, read_row
from statebackend.recovery.salvage.survey import Bounds
from statebackend.recovery.salvage.target import Target
from statebackend.recovery.salvage.texts import almost_equal


def save_cells(
    evidence: Evidence,
    target: Target,
    place: Place,
    group: tuple[Shape, list[cells.Cell]],
    *,
    route: str,
    bounds: Bounds = (None, None),
) -> None:
    """Save the rows of one table in a page; those with an unconfirmed rowid are left to a pass."""
    page = evidence.images.image(place)
    shape, page_cells = group
    if shape.key is None:
        for cell in page_cells:
            save_unkeyed(evidence, target, page, shape, cell, route=route)
        return
    rowids = judge_rowids([cell.rowid for cell in page_cells], bounds)
    for cell, rowid in zip(page_cells, rowids, strict=True):
        record = read_record(evidence, target, page, shape, cell)
        if record is None:
            continue
        row = read_row(shape, rowid.value, cell.types, record)
        if rowid.confirmed and is_sequence(rowid.value):
            target.insert(row, route)
        else:
            evidence.unconfirmed.append(
                UnconfirmedRow(place, shape, cell, row.event_id, rowid, route)
            )


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
    record = read_record(evidence, target, page, shape, cell)
    if record is None:
        return
    row = read_row(shape, cell.rowid, cell.types, record)
    if shape.table == "session_meta":
        evidence.metas.append((row, route))
    elif not last_resort:
        target.insert(row, route)
    elif row.unfit is None and _is_named_by_event(target, row.values):
        target.insert(row, route, only_if_missing=True)


def read_record(
    evidence: Evidence, target: Target, page: bytes, shape: Shape, cell: cells.Cell
) -> bytes | None:
    """Return the whole record of *cell*, None if its overflow chain is not valid or not its own."""
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
