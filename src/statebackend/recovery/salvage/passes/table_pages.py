"""Rows in the table leaves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from statebackend.recovery.salvage.cells import Cell
from statebackend.recovery.salvage.evidence import Evidence, UnconfirmedRow
from statebackend.recovery.salvage.images import WAL, Place
from statebackend.recovery.salvage.records import read_stored_row, save_unkeyed
from statebackend.recovery.salvage.shapes import is_sequence
from statebackend.recovery.salvage.survey import judge_rowids
from statebackend.recovery.salvage.target import Target
from statebackend.values.tables import SEQUENCED, TABLES


def run(evidence: Evidence, target: Target) -> None:
    """Save the rows of every table leaf, whether or not an interior page points to it.

    Answers damage to interior pages, to roots and to ``sqlite_schema``, and pages in the place of
    others. Pages whose rows are not those that the page above them states are read last: each is a
    copy of another page, or holds rows that no other page has.
    """
    wal = evidence.images.wal
    behind_break = {Place(WAL, frame.offset) for frame in wal.behind} if wal else set()
    unreached, misplaced = [], []
    for page in evidence.survey.leaves:
        if not evidence.survey.is_reached(page):
            unreached.append(page)
            continue
        if _is_misplaced(evidence, page, list(evidence.leaf_cells(page))):
            misplaced.append(page)
        else:
            _save_page(evidence, target, page, behind_break)
    for page in unreached + misplaced:
        _save_page(evidence, target, page, behind_break)


def _save_page(evidence: Evidence, target: Target, page: int, behind_break: set[Place]) -> None:
    place = evidence.images.place(page)
    route = "wal" if place in behind_break else "page"
    bounds = evidence.survey.bounds.get(page, (None, None))
    for shape, group in evidence.group_by_table(evidence.leaf_cells(page)):
        for cell, rowid in zip(group, judge_rowids([c.rowid for c in group], bounds), strict=True):
            if shape.key is None:
                save_unkeyed(evidence, target, shape, cell, route=route)
            elif (row := read_stored_row(evidence, target, shape, cell)) is None:
                continue
            elif rowid.confirmed and is_sequence(rowid.value):
                target.insert(row, route)
            else:
                evidence.unconfirmed.append(
                    UnconfirmedRow(place, cell.start, shape, row.event_id, rowid, route)
                )


def _is_misplaced(evidence: Evidence, page: int, page_cells: Sequence[Cell]) -> bool:
    """Return whether the rows of a page are not those that the page above it states."""
    table = evidence.survey.roots.get(page)
    if table in TABLES:
        rowids = {cell.rowid for cell in page_cells if _table_of(evidence, cell) == table}
        return not rowids or _has_other_leaf(evidence, page, table, rowids)
    lower, upper = evidence.survey.bounds.get(page, (None, None))
    outside = sum(
        (lower is not None and cell.rowid <= lower) or (upper is not None and cell.rowid > upper)
        for cell in page_cells
    )
    return outside * 2 > len(page_cells)


def _has_other_leaf(evidence: Evidence, root: int, table: str, rowids: set[int]) -> bool:
    """Return whether another leaf has other rows of *table* than its *root*, also a leaf."""
    # A root is a leaf only while it is the whole table, so this one is a copy or an older image.
    return table in SEQUENCED and any(
        cell.rowid not in rowids and _table_of(evidence, cell) == table
        for page in evidence.survey.leaves
        if page != root
        for cell in islice(evidence.leaf_cells(page), 1)
    )


def _table_of(evidence: Evidence, cell: Cell) -> str | None:
    shape = evidence.find_shape(cell)
    return shape.table if shape is not None else None
