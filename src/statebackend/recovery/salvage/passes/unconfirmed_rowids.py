"""Rows whose rowid their page does not confirm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from statebackend.recovery.salvage.cells import read_cell
from statebackend.recovery.salvage.evidence import Evidence, UnconfirmedRow
from statebackend.recovery.salvage.records import (
    has_indexed_kind,
    is_out_of_order,
    read_stored_row,
)
from statebackend.recovery.salvage.shapes import Row, Shape, almost_equal, is_id, is_sequence
from statebackend.recovery.salvage.survey import PageRowid
from statebackend.recovery.salvage.target import Target


@dataclass(slots=True)
class _Indexed:
    """What the indexes say about the unconfirmed rows.

    ``rowids`` are those that unconfirmed rows have themselves, with their tables.
    """

    by_id: dict[bytes, int] = field(default_factory=dict)
    by_sequence: defaultdict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    rowids: set[tuple[str, int]] = field(default_factory=set)


def run(evidence: Evidence, target: Target) -> None:
    """Give each unconfirmed row the sequence that an index or its neighbours have for it.

    Answers damage to a rowid, and table leaves of a single row whose interior page is lost.
    """
    rows, evidence.unconfirmed = evidence.unconfirmed, []
    if not rows:
        return
    indexed = _Indexed(rowids={(row.shape.table, row.rowid.value) for row in rows})
    ids = {row.event_id for row in rows}
    sequences = {number for row in rows for number in (row.rowid.value, row.rowid.expected)}
    for text, sequence in evidence.first_index_texts():
        if text in ids:
            indexed.by_id[text] = sequence
        if sequence in sequences:
            indexed.by_sequence[sequence].add(text)
    for row in rows:
        _settle(evidence, target, row, indexed)


def _settle(
    evidence: Evidence, target: Target, unconfirmed: UnconfirmedRow, indexed: _Indexed
) -> None:
    shape, rowid = unconfirmed.shape, unconfirmed.rowid
    page = evidence.images.image(unconfirmed.place)
    cell = read_cell(page, unconfirmed.start, evidence.images.usable)
    assert cell is not None
    row = read_stored_row(evidence, target, shape, cell)
    if row is None:
        return  # another row owns its overflow pages by now
    known = _find_sequence(evidence, target, row, indexed)
    texts = indexed.by_sequence.get(rowid.value, set())
    confirmed = shape.table == "events" and has_indexed_kind(row, texts)
    plausible = _is_plausible(evidence, target, shape, rowid.value, indexed)
    for sequence in _candidates(rowid, known, confirmed=confirmed, plausible=plausible):
        if target.has(shape, sequence):
            continue
        if sequence == known or _is_possible(target, row, sequence, indexed):
            target.insert(row.with_sequence(sequence), unconfirmed.route)
            return
    if target.has(shape, rowid.value):
        target.insert(row, unconfirmed.route)  # the same row twice, or one that contradicts it
    else:
        target.set_row_aside(row, "nothing confirms its sequence")


def _candidates(
    rowid: PageRowid, known: int | None, *, confirmed: bool, plausible: bool
) -> Iterator[int]:
    """Return the sequences that a row may have, the most likely first."""
    for sequence in (
        rowid.value if confirmed or rowid.value in {known, rowid.expected} else None,
        known,
        rowid.expected if not rowid.ascending else None,
        rowid.value if plausible and rowid.ascending else None,
        rowid.expected,
        rowid.value if plausible else None,
    ):
        if sequence is not None and is_sequence(sequence):
            yield sequence


def _is_possible(target: Target, row: Row, sequence: int, indexed: _Indexed) -> bool:
    """Return whether neither the neighbours nor the index of ids contradict a sequence."""
    if row.shape.table != "events":
        return not is_out_of_order(target, row, sequence)
    ids = [text for text in indexed.by_sequence.get(sequence, ()) if is_id(text)]
    return not ids or any(almost_equal(text, row.event_id) for text in ids)


def _find_sequence(evidence: Evidence, target: Target, row: Row, indexed: _Indexed) -> int | None:
    """Return the sequence that other evidence has for a row, None if that was never given."""
    if row.shape.table == "events":
        known = indexed.by_id.get(row.event_id)
    else:
        known = _find_by_event(evidence, target, row)
    plausible = known is not None and _is_plausible(evidence, target, row.shape, known, indexed)
    return known if plausible else None


def _is_plausible(
    evidence: Evidence, target: Target, shape: Shape, sequence: int, indexed: _Indexed
) -> bool:
    """Return whether a sequence may have been given, though its page does not confirm it."""
    # The counter may be lost, or older than the rows: a neighbour above it confirms the sequence
    # too.
    if not is_sequence(sequence):
        return False
    highest = max([*evidence.counters(shape.table), target.highest(shape.table)])
    return sequence <= (highest or evidence.max_sequence) or any(
        (shape.table, neighbour) in indexed.rowids
        or (is_sequence(neighbour) and target.has(shape, neighbour))
        for neighbour in (sequence - 1, sequence + 1)
    )


def _find_by_event(evidence: Evidence, target: Target, row: Row) -> int | None:
    """Return the sequence of a ledger or plan row if its event leaves only one free, else None."""
    # Sequences rise with those of the events.
    table, event = row.shape.table, row.values[1]
    below, above = _rows_around(target, table, event)
    if above is None:
        above = max(evidence.counters(table), default=below) + 1
    free = (n for n in range(below + 1, above) if not target.has(row.shape, n))
    candidates = [*islice(free, 2)]
    return candidates[0] if len(candidates) == 1 else None


def _rows_around(target: Target, table: str, event: int) -> tuple[int, int | None]:
    """Return the last sequence of earlier events (or 0) and the first of later ones (or None)."""
    at = f"SELECT event_sequence FROM {table} WHERE sequence <= ? ORDER BY sequence DESC LIMIT 1"
    below, last = 0, target.highest(table)
    while below < last:
        middle = (below + last + 1) // 2
        row = target.driver.execute(at, (middle,)).fetchone()
        if row is None or row[0] < event:
            below = middle
        else:
            last = middle - 1
    (above,) = target.driver.execute(
        f"SELECT min(sequence) FROM {table} WHERE sequence > ? AND event_sequence > ?",
        (below, event),
    ).fetchone()
    return below, above
