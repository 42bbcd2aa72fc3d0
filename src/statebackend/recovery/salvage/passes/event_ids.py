"""Ids of events, which the index of ids has as well as the row.

The index has every id with its sequence, in the order of the ids. Of two different ids, that is
wrong which no program stored, or which does not fit its place in the order.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from statebackend.recovery.salvage.evidence import Evidence, IdEntries
from statebackend.recovery.salvage.shapes import MAX_DAMAGED_CHARACTERS, REPLACEMENT, Row
from statebackend.recovery.salvage.target import Target

_LEAST_COMPARED = 12


@dataclass(frozen=True, slots=True)
class _Entry:
    """The entry at position *at* of a page of the index."""

    page: IdEntries
    at: int

    @property
    def id(self) -> bytes:
        return self.page[self.at][0]

    def is_in_order(self, event_id: bytes) -> bool:
        """Return whether *event_id* could stand here, by the entries beside it."""
        above = self.at == 0 or self.page[self.at - 1][0] < event_id
        return above and (self.at + 1 == len(self.page) or event_id < self.page[self.at + 1][0])

    def is_usual(self, event_id: bytes, differing: Sequence[int]) -> bool:
        """Return whether *event_id* has the usual characters at the positions *differing*."""
        others = [
            other
            for at, (other, _sequence) in enumerate(self.page)
            if at != self.at and len(other) == len(event_id)
        ]
        if len(others) < _LEAST_COMPARED:
            return True
        alphabet = set(b"".join(others))
        for at in differing:
            here = {other[at] for other in others}
            if event_id[at] not in (here if len(here) == 1 else alphabet):
                return False
        return True


@dataclass(slots=True)
class _Conflict:
    """An event whose id differs from the id that the index has for its sequence.

    ``elsewhere`` tells whether the index has the stored id for another event.
    """

    stored: str
    entries: list[_Entry] = field(default_factory=list)
    elsewhere: bool = False


def run(evidence: Evidence, target: Target) -> None:
    """Give each event the id that the index has, if the row's is wrong.

    Answers a damaged id in a row, so that a repeated append finds its event; and inserts the rows
    that were held back because another row has their id. Where nothing decides, the row's id is
    kept and the event is doubtful.
    """
    contested = {row.values[0]: row for row, _route in target.contested}
    conflicts = _find_conflicts(evidence, target, contested)
    right: dict[int, str] = {}
    for sequence, conflict in sorted(conflicts.items()):
        choice = _choose(target, conflict, conflicts)
        if isinstance(choice, bytes):
            right[sequence] = choice.decode()
        elif choice is not None and sequence not in contested:
            _note_doubtful(target, sequence, conflict.stored, choice.id)
    stored = {n: event_id for n, event_id in right.items() if n not in contested}
    for sequence in _set_ids(target, stored):
        _note_doubtful(target, sequence, conflicts[sequence].stored, right[sequence].encode())
    for row, route in target.release_contested():
        sequence = row.values[0]
        if sequence in right and not _is_copy(target, row):
            row = _with_id(row, right[sequence])  # noqa: PLW2901 - the same row, corrected
        target.insert(row, route)


def _find_conflicts(
    evidence: Evidence, target: Target, contested: dict[int, Row]
) -> dict[int, _Conflict]:
    """Return the events whose id the index does not have for them, with the entries about them."""
    conflicts = {sequence: _Conflict(row.values[1]) for sequence, row in contested.items()}
    for event_id, sequence in chain.from_iterable(evidence.id_entries()):
        if sequence not in conflicts:
            stored = target.event_id(sequence)
            if stored is not None and stored.encode() != event_id:
                conflicts[sequence] = _Conflict(stored)
    if not conflicts:
        return conflicts
    by_id: defaultdict[bytes, list[int]] = defaultdict(list)
    for sequence, conflict in conflicts.items():
        by_id[conflict.stored.encode()].append(sequence)
    for page in evidence.id_entries():
        for at, (event_id, sequence) in enumerate(page):
            if sequence in conflicts:
                conflicts[sequence].entries.append(_Entry(page, at))
            for other in by_id.get(event_id, ()):
                conflicts[other].elsewhere |= other != sequence
    return conflicts


def _choose(
    target: Target, conflict: _Conflict, conflicts: dict[int, _Conflict]
) -> bytes | _Entry | None:
    """Return the right id if it is the index's, None if it is the row's."""
    # An entry of the index if nothing decides between its id and the row's.
    stored = conflict.stored.encode()
    if any(entry.id == stored for entry in conflict.entries):
        return None
    similar = {
        entry.id: entry
        for entry in conflict.entries
        if _may_have_been(conflict.stored, entry.id) and not _has_owner(target, entry.id, conflicts)
    }
    if not similar:
        return _find_other_id(target, conflict, conflicts)
    entry = next(iter(similar.values()))
    if len(similar) > 1:
        return entry
    same_length = len(stored) == len(entry.id)
    differing = [at for at, (a, b) in enumerate(zip(stored, entry.id, strict=False)) if a != b]
    for row_passes, index_passes in (
        (_is_valid(conflict.stored), True),
        (not conflict.elsewhere, True),
        (entry.is_in_order(stored), entry.is_in_order(entry.id)),
        (
            not same_length or entry.is_usual(stored, differing),
            not same_length or entry.is_usual(entry.id, differing),
        ),
    ):
        if row_passes != index_passes:
            return entry.id if index_passes else None
    return entry


def _find_other_id(
    target: Target, conflict: _Conflict, conflicts: dict[int, _Conflict]
) -> _Entry | None:
    """Return an entry with a quite different id, if no other event has either of them."""
    for entry in conflict.entries:
        same_length = len(entry.id) == len(conflict.stored.encode())
        valid = _is_valid(entry.id.decode(errors="replace"))
        if same_length and not conflict.elsewhere and valid:
            return None if _has_owner(target, entry.id, conflicts) else entry
    return None


def _may_have_been(stored: str, event_id: bytes) -> bool:
    """Return whether damage may have made *stored* out of *event_id*, which is a valid id."""
    try:
        other = event_id.decode()
    except UnicodeDecodeError:
        return False
    if not _is_valid(other):
        return False
    broken = stored.count(REPLACEMENT) + stored.count("\0")
    if len(stored) != len(other):  # a broken byte may break the whole character it is part of
        return (
            0 < len(event_id) - len(stored) <= 3 * broken or 0 < len(stored) - len(other) <= broken
        )
    differing = sum(a != b for a, b in zip(stored, other, strict=True))
    return broken > 0 or differing <= min(MAX_DAMAGED_CHARACTERS, max(1, len(other) // 2))


def _is_valid(event_id: str) -> bool:
    return bool(event_id) and not {"\0", REPLACEMENT} & set(event_id)


def _has_owner(target: Target, event_id: bytes, conflicts: dict[int, _Conflict]) -> bool:
    """Return whether an event without a conflict has this id."""
    query = "SELECT sequence FROM events WHERE id = ?"
    row = target.driver.execute(query, (event_id.decode(),)).fetchone()
    return row is not None and row[0] not in conflicts


def _is_copy(target: Target, event: Row) -> bool:
    """Return whether the event with the id of *event* equals it in all but its sequence."""
    query = "SELECT * FROM events WHERE id = ?"
    other = target.driver.execute(query, event.values[1:2]).fetchone()
    return other is not None and tuple(other[1:]) == event.values[1:]


def _set_ids(target: Target, right: dict[int, str]) -> list[int]:
    """Give the events their right ids; return those whose id another event keeps."""
    waiting = list(right)
    while waiting:
        refused = [n for n in waiting if not _set_id(target, n, right[n])]
        if len(refused) == len(waiting):
            break
        waiting = refused  # an id may be free now that another event has its own
    return waiting


def _set_id(target: Target, sequence: int, event_id: str) -> bool:
    """Set the id of an event; return whether no other event has it."""
    stored = target.event_id(sequence)
    try:
        target.driver.execute("UPDATE events SET id = ? WHERE sequence = ?", (event_id, sequence))
    except sqlite3.IntegrityError:
        return False
    target.note_index_repair(sequence, ("id",), stored)
    return True


def _with_id(row: Row, event_id: str) -> Row:
    values = (row.values[0], event_id, *row.values[2:])
    not_utf8 = tuple(name for name in row.not_utf8 if name != "id")
    repaired = (*row.repaired, f"id, from the index (was {row.values[1]!r})")
    return replace(row, values=values, repaired=repaired, not_utf8=not_utf8)


def _note_doubtful(target: Target, sequence: int, stored: str, indexed: bytes) -> None:
    target.note_doubtful(
        "events",
        f"events sequence {sequence}: its id is {stored!r} in its row and {indexed.decode()!r} in "
        "the index, and nothing shows which is right; the row's is kept",
    )
