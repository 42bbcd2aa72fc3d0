"""Filling the index: from the last indexed event of each session on, in portions.

A portion is read from the session files without a lock on the catalogue, and then written in one
transaction together with how far it went. A process that finds another to have been faster drops
what it read, so no row is in the index twice; one killed at any moment leaves nothing half.
"""

from __future__ import annotations

import marshal
import sqlite3
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from statebackend.catalogue import folding
from statebackend.catalogue.extractors import Extractors
from statebackend.catalogue.file import Progress
from statebackend.catalogue.payload_text import MOST_BYTES
from statebackend.catalogue.soundness import changing
from statebackend.catalogue.text_schema import ROW_BITS
from statebackend.scanning import scan
from statebackend.scanning.scan import Listing, Reader
from statebackend.values import rows
from statebackend.values.recorded import SessionInfo
from statebackend.values.results import BadSession

_PORTION_EVENTS = 2000
_PORTION_BYTES = 4 * 1024 * 1024
_EVENTS = (
    "SELECT sequence, id, timestamp, kind, producer_category, producer_name, producer_version, "
    f"schema_version, CASE WHEN length(payload) <= {MOST_BYTES} THEN payload END "
    "FROM events WHERE sequence > ? ORDER BY sequence"
)
_INSERT = (
    "INSERT INTO texts (rowid, sequence, kind, category, name, version, timestamp, shown, folded) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_PLACE = "sequence, rows, events_sum, events_bytes"
_STORED = (
    f"SELECT {_PLACE} FROM (SELECT number FROM sessions WHERE number = ?) "
    "LEFT JOIN text_progress USING (number)"
)
_ADVANCE = (
    f"INSERT INTO text_progress (number, {_PLACE}, bytes, read_at_ns) "
    f"VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (number) DO UPDATE SET ({_PLACE}, bytes) = "
    "(excluded.sequence, excluded.rows, excluded.events_sum, excluded.events_bytes, "
    "bytes + excluded.bytes)"
)
GONE = (
    "SELECT number FROM text_progress AS p "
    "WHERE NOT EXISTS (SELECT * FROM sessions AS s WHERE s.number = p.number)"
)
"""The sessions whose rows are to be taken out of the index."""
_Row = tuple[Any, ...]


class Place(NamedTuple):
    """How far a session is in the index: its last event there, and the rows that it has.

    Of the events up to there, ``events_sum`` tells whether they are still the same; of them
    ``events_bytes`` were read.
    """

    sequence: int = 0
    rows: int = 0
    events_sum: int = 0
    events_bytes: int = 0


def place_of(row: Sequence[Any]) -> Place:
    """Return the place that the columns of ``text_progress`` give, NULL without a row there."""
    return Place() if row[0] is None else Place(*row)


class Pending(NamedTuple):
    """A session of which events up to ``goal`` are wanted in the index.

    ``read_at_ns`` is that of its entry, 0 if the entry must not be relied on.
    """

    number: int
    stem: str
    place: Place
    goal: int
    read_at_ns: int


class Outcome(NamedTuple):
    """What became of the sessions: the numbers that are done, and the files that cannot be read.

    What is in neither is at another process, or gone: look again.
    """

    done: set[int]
    unreadable: list[BadSession]


class _Read(NamedTuple):
    """Some events of a session, ``whole`` if none follow."""

    stem: str
    events: list[_Row]
    whole: bool


class _Part(NamedTuple):
    """What the events made: the rows that lead from the pending session's place to the next."""

    pending: Pending
    after: Place
    rows: list[_Row]
    text_bytes: int


def index(
    driver: sqlite3.Connection,
    directory: Path,
    sessions: Iterable[Pending],
    *,
    listed: Listing,
    extractors: Extractors,
    progress: Progress | None = None,
) -> Outcome:
    """Index the *sessions* of *directory*; *progress* hears of how many events of how many."""
    # From the end: FTS5 writes out what it has as soon as a row's number is not above the last.
    waiting = sorted(sessions, reverse=True)
    total = left = sum(map(_left, waiting))
    outcome = Outcome(set(), [])
    while waiting:
        group = {one.stem: one for one in _taken(waiting)}
        waiting_again: list[Pending] = []
        writer = _Writer(driver)
        for found in scan.read_each(directory, _reader(group), [*group], listed):
            if isinstance(found, BadSession):
                outcome.unreadable.append(found)
                continue
            part = _part(group[found.stem], found, extractors)
            writer.add(part)
            ahead = part.pending._replace(place=part.after)
            left -= _left(part.pending) - _left(ahead)
            if found.whole or not _left(ahead):
                outcome.done.add(ahead.number)
            else:
                waiting_again.append(ahead)
        writer.write()
        outcome.done.difference_update(writer.overtaken)
        waiting += [one for one in waiting_again if one.number not in writer.overtaken]
        if progress is not None:
            progress(total - left, total)
    return outcome


def _left(pending: Pending) -> int:
    return max(pending.goal - pending.place.sequence, 0)


def _taken(waiting: list[Pending]) -> Iterator[Pending]:
    """Take from the end of *waiting* as many sessions as make a portion, at least one."""
    events = 0
    while waiting and events < _PORTION_EVENTS:
        pending = waiting.pop()
        events += _left(pending)
        yield pending


def _reader(group: dict[str, Pending]) -> Reader[_Read]:
    """Return what reads the next events of one of the sessions in *group*, at most a portion."""

    def read(driver: sqlite3.Connection, info: SessionInfo) -> _Read:
        after = group[info.session_id].place.sequence
        events: list[_Row] = []
        size = 0
        with closing(_events(driver, after)) as found:
            for row in found:
                events.append(row)
                size += len(row[-1])
                if len(events) == _PORTION_EVENTS or size >= _PORTION_BYTES:
                    return _Read(info.session_id, events, whole=False)
        return _Read(info.session_id, events, whole=True)

    return read


def _events(driver: sqlite3.Connection, after: int) -> Generator[_Row]:
    """Return the events behind a sequence as rows, their payloads cut, bytes as in a replay."""
    with closing(driver.execute(_EVENTS, (after,))) as found:
        for *columns, stored in found:
            payload = _beginning(driver, columns[0]) if stored is None else stored
            yield (*columns, payload if isinstance(payload, bytes) else rows.as_bytes(payload))


def _beginning(driver: sqlite3.Connection, sequence: int) -> bytes:
    """Read as much of a large payload as is looked at; SQLite alone would read it whole."""
    # An attached file is the last one of the connection, an opened one the first and only.
    name = driver.execute("SELECT name FROM pragma_database_list ORDER BY seq DESC").fetchone()[0]
    with driver.blobopen("events", "payload", sequence, readonly=True, name=name) as blob:
        return blob.read(MOST_BYTES)


def _part(pending: Pending, read: _Read, extractors: Extractors) -> _Part:
    last, count, found_sum, read_bytes = pending.place
    made: list[_Row] = []
    size = 0
    for row in read.events:
        text = extractors.text_of_row(row)
        found_sum = _summed(row, found_sum)
        read_bytes += len(row[-1])
        last, _id, *words, _schema_version, _payload = row
        if text and not text.isspace():
            count += 1
            row_id = pending.number << ROW_BITS | count
            plain = folding.is_plain(text)
            shown, folded = (None, text) if plain else (text, folding.fold(text))
            timestamp, *words = map(rows.as_text, words)
            made.append((row_id, last, *words, timestamp, shown, folded))
            size += len(text) if text.isascii() else len(text.encode())
    return _Part(pending, Place(last, count, found_sum, read_bytes), made, size)


def _summed(row: _Row, before: int) -> int:
    return zlib.crc32(marshal.dumps(row, 2), before)


class _Writer:
    """Writes the parts of one portion in one transaction, sooner if they are large."""

    def __init__(self, driver: sqlite3.Connection) -> None:
        self.overtaken: set[int] = set()
        self._driver = driver
        self._parts: list[_Part] = []
        self._bytes = 0

    def add(self, part: _Part) -> None:
        self._parts.append(part)
        self._bytes += part.text_bytes
        if self._bytes >= _PORTION_BYTES:
            self.write()

    def write(self) -> None:
        """Write what was added; parts that do not go on from what is stored are dropped."""
        if not self._parts:
            return
        with changing(self._driver, "texts"):
            for part in self._parts:
                number = part.pending.number
                stored = self._driver.execute(_STORED, (number,)).fetchone()
                if stored is not None and place_of(stored) == part.pending.place:
                    self._advance(part)
                else:
                    self.overtaken.add(number)
        self._parts.clear()
        self._bytes = 0

    def _advance(self, part: _Part) -> None:
        number = part.pending.number
        self._driver.executemany(_INSERT, part.rows)
        self._driver.execute(
            _ADVANCE, (number, *part.after, part.text_bytes, part.pending.read_at_ns)
        )


def still_same(
    directory: Path, sessions: Iterable[Pending], listed: Listing
) -> tuple[list[Pending], list[Pending], list[BadSession]]:
    """Read again what is in the index of these sessions.

    Returns those that still have just these events, those that do not, and the bad files.
    """
    group = {one.stem: one for one in sessions}
    same: list[Pending] = []
    other: list[Pending] = []
    bad: list[BadSession] = []

    def read(driver: sqlite3.Connection, info: SessionInfo) -> tuple[str, int]:
        found = 0
        with closing(_events(driver, 0)) as events:
            for row in events:
                if row[0] > group[info.session_id].place.sequence:
                    break
                found = _summed(row, found)
        return info.session_id, found

    for one in scan.read_each(directory, read, [*group], listed):
        if isinstance(one, BadSession):
            bad.append(one)
        else:
            pending = group[one[0]]
            (same if one[1] == pending.place.events_sum else other).append(pending)
    return same, other, bad


def forget_gone(driver: sqlite3.Connection) -> None:
    """Take the rows of sessions that are gone, or were replaced, out of the index."""
    for (number,) in driver.execute(GONE).fetchall():
        while _shortened(driver, number):
            pass


def _shortened(driver: sqlite3.Connection, number: int) -> bool:
    """Take the last rows of a session away, and tell whether there were any."""
    with changing(driver, "texts"):
        query = "SELECT rows FROM text_progress WHERE number = ?"
        found = driver.execute(query, (number,)).fetchone()
        if not found or not found[0]:
            driver.execute("DELETE FROM text_progress WHERE number = ?", (number,))
            return False
        left = max(found[0] - _PORTION_EVENTS, 0)
        first = number << ROW_BITS
        driver.execute(
            "DELETE FROM texts WHERE rowid > ? AND rowid <= ?", (first | left, first | found[0])
        )
        driver.execute("UPDATE text_progress SET rows = ? WHERE number = ?", (left, number))
        return True
