"""The counters in ``sqlite_sequence``."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.images import WAL, Place
from statebackend.recovery.salvage.shapes import REFERENCES
from statebackend.recovery.salvage.target import Target
from statebackend.values.tables import SEQUENCED

_MAX_NOTES = 50


def run(evidence: Evidence, target: Target) -> None:
    """Set each counter to the highest sequence that any evidence shows, and note lost events.

    Answers a lost or older counter, so that no sequence is given twice and the report counts every
    missing row.
    """
    for table, highest in _find_highest(evidence, target).items():
        target.driver.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        if highest:
            target.driver.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, highest))
        target.missing_ranges[table] = tuple(target.missing(table, highest))
    numbers = (
        number
        for first, last in target.missing_ranges["events"]
        for number in range(first, last + 1)
        if number in evidence.missing_events
    )
    for number in islice(numbers, _MAX_NOTES):
        texts = (text.decode(errors="replace") for text in evidence.missing_events[number])
        target.note(f"events sequence {number} is lost; the indexes have: {', '.join(texts)}")


def _find_highest(evidence: Evidence, target: Target) -> dict[str, int]:
    highest = {
        table: max([target.highest(table), *evidence.counters(table)]) for table in SEQUENCED
    }
    events = highest["events"]
    references = Counter(
        {number: len(texts) for number, texts in evidence.missing_events.items() if number > events}
    )
    for table, column in REFERENCES.items():
        query = f"SELECT {column} FROM {table} WHERE {column} > ? AND {column} <= ?"
        parameters = (events, evidence.max_sequence)
        references.update(number for (number,) in target.driver.execute(query, parameters))
    # A single reference may be damaged itself.
    confirmed = [number for number, count in references.items() if count > 1]
    events = max([events, *confirmed])
    while events + 1 in evidence.missing_events:
        events += 1
    highest["events"] = events
    for table, sequences in _read_tail(evidence).items():
        while highest[table] + 1 in sequences:
            highest[table] += 1
    return highest


def _read_tail(evidence: Evidence) -> dict[str, set[int]]:
    """Return the sequences, by table, in a last transaction that may have been committed."""
    # Its rows are not saved, since the transaction may also have been torn. But their sequences may
    # be in use, so they count as missing.
    sequences: defaultdict[str, set[int]] = defaultdict(set)
    for frame in evidence.images.wal.tail if evidence.images.wal else ():
        page = evidence.images.image(Place(WAL, frame.offset))
        if frame.page == 1 or page[0] != cells.LEAF_TABLE:
            continue
        for cell in cells.leaf_cells(page, 0, evidence.images.usable):
            shape = evidence.find_shape(cell)
            if shape is not None and shape.key is not None:
                sequences[shape.table].add(cell.rowid)
    return sequences
