"""Filling the full-text index, in portions, from the last indexed event of each session on.

A portion is read from the session files without a lock on the catalogue, and then written in one
transaction together with its last event. A process that finds the portion already written by
another drops what it read, so no row is in the index twice. A process killed at any moment leaves
whole portions.
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
from statebackend.catalogue.schema import ROW_BITS, CatalogueDamaged, transaction
from statebackend.scanning import scan
from statebackend.scanning.connections import Reader
from statebackend.scanning.listing import Listing
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
"""The sessions whose rows are to be deleted from the index."""
_Row = tuple[Any, ...]


class Place(NamedTuple):
    """The last indexed event of a session, and the rows that the session has in the index.

    ``events_sum`` is a checksum of the events up to there, ``events_bytes`` what was read of them.
    """

    sequence: int = 0
    rows: int = 0
    events_sum: int = 0
    events_bytes: int = 0


def place_of(row: Sequence[Any]) -> Place:
    """Return the place in the columns of ``text_progress``, which are NULL without a row."""
    if row[0] is None:
        return Place()
    if not all(type(value) is int for value in row):
        raise CatalogueDamaged("a session has no place in the index")
    return Place(*row)


class Pending(NamedTuple):
    """A session whose events up to ``goal`` are to be in the index.

    ``read_at_ns`` is that of its entry, 0 if the entry must not be relied on.
    """

    number: int
    stem: str
    place: Place
    goal: int
    read_at_ns: int


class _EventsRead(NamedTuple):
    """Some events of a session, ``whole`` if none follow."""

    stem: str
    events: list[_Row]
    whole: bool


class _Part(NamedTuple):
    """The rows of some events, which advance the session from its place to the one ``after``."""

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
) -> tuple[set[int], list[BadSession]]:
    """Index the *sessions*; *progress* is called with how many events are done, and of how many.

    Returns the numbers of the sessions that are done, and the bad files. A session in neither was
    indexed by another process, or is gone: check again.
    """
    # Taken from the end: FTS5 writes to the file once a row id is not above the last one.
    waiting = sorted(sessions, reverse=True)
    total = remaining = sum(map(_remaining, waiting))
    done: set[int] = set()
    unreadable: list[BadSession] = []
    while waiting:
        group = {pending.stem: pending for pending in _take_portion(waiting)}
        unfinished: list[Pending] = []
        writer = _PartWriter(driver)
        for read in scan.read_each(directory, _reader(group), [*group], listed):
            if isinstance(read, BadSession):
                unreadable.append(read)
                continue
            part = _part(group[read.stem], read, extractors)
            writer.add(part)
            ahead = part.pending._replace(place=part.after)
            remaining -= _remaining(part.pending) - _remaining(ahead)
            if read.whole or not _remaining(ahead):
                done.add(ahead.number)
            else:
                unfinished.append(ahead)
        writer.write()
        done -= writer.overtaken
        waiting += [ahead for ahead in unfinished if ahead.number not in writer.overtaken]
        if progress is not None:
            progress(total - remaining, total)
    return done, unreadable


def _remaining(pending: Pending) -> int:
    return max(pending.goal - pending.place.sequence, 0)


def _take_portion(waiting: list[Pending]) -> Iterator[Pending]:
    """Take the sessions of one portion from the end of *waiting*, at least one."""
    events = 0
    while waiting and events < _PORTION_EVENTS:
        pending = waiting.pop()
        events += _remaining(pending)
        yield pending


def _reader(group: dict[str, Pending]) -> Reader[_EventsRead]:
    """Return what reads the next events of a session in *group*, at most a portion."""

    def read(driver: sqlite3.Connection, info: SessionInfo) -> _EventsRead:
        after = group[info.session_id].place.sequence
        events: list[_Row] = []
        size = 0
        with closing(_events(driver, after)) as rows_after:
            for row in rows_after:
                events.append(row)
                size += len(row[-1])
                if len(events) == _PORTION_EVENTS or size >= _PORTION_BYTES:
                    return _EventsRead(info.session_id, events, whole=False)
        return _EventsRead(info.session_id, events, whole=True)

    return read


def _events(driver: sqlite3.Connection, after: int) -> Generator[_Row]:
    """Return the events after a sequence as rows, their payloads truncated and always bytes."""
    with closing(driver.execute(_EVENTS, (after,))) as cursor:
        for *columns, stored in cursor:
            payload = _read_beginning(driver, columns[0]) if stored is None else stored
            yield (*columns, payload if isinstance(payload, bytes) else rows.as_bytes(payload))


def _read_beginning(driver: sqlite3.Connection, sequence: int) -> bytes:
    """Read the beginning of a large payload; a SELECT would read all of it."""
    # An attached file is the last database of the connection, an opened one the only one.
    name = driver.execute("SELECT name FROM pragma_database_list ORDER BY seq DESC").fetchone()[0]
    with driver.blobopen("events", "payload", sequence, readonly=True, name=name) as blob:
        return blob.read(MOST_BYTES)


def _part(pending: Pending, read: _EventsRead, extractors: Extractors) -> _Part:
    last, count, events_sum, read_bytes = pending.place
    texts: list[_Row] = []
    size = 0
    for row in read.events:
        text = extractors.text_of_row(row)
        events_sum = _checksum(row, events_sum)
        read_bytes += len(row[-1])
        last, _id, *words, _schema_version, _payload = row
        if text and not text.isspace():
            count += 1
            row_id = pending.number << ROW_BITS | count
            plain = folding.is_plain(text)
            shown, folded = (None, text) if plain else (text, folding.fold(text))
            timestamp, *words = map(rows.as_text, words)
            texts.append((row_id, last, *words, timestamp, shown, folded))
            size += len(text) if text.isascii() else len(text.encode())
    return _Part(pending, Place(last, count, events_sum, read_bytes), texts, size)


def _checksum(row: _Row, before: int) -> int:
    return zlib.crc32(marshal.dumps(row, 2), before)


class _PartWriter:
    """Writes the parts of one portion in one transaction, or in several if they are large."""

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
        """Write what was added; drop parts that do not continue what is stored."""
        if not self._parts:
            return
        with transaction(self._driver, "BEGIN IMMEDIATE"):
            for part in self._parts:
                number, place = part.pending.number, part.pending.place
                stored = self._driver.execute(_STORED, (number,)).fetchone()
                if stored is None or place_of(stored) != place:
                    self.overtaken.add(number)
                    continue
                self._advance(part)
        self._parts.clear()
        self._bytes = 0

    def _advance(self, part: _Part) -> None:
        advance = (part.pending.number, *part.after, part.text_bytes, part.pending.read_at_ns)
        self._driver.executemany(_INSERT, part.rows)
        self._driver.execute(_ADVANCE, advance)


def compare_indexed(
    directory: Path, sessions: Iterable[Pending], listed: Listing
) -> tuple[list[Pending], list[Pending], list[BadSession]]:
    """Read the indexed events of these sessions again.

    Returns the sessions whose events are unchanged, those whose events are not, and the bad files.
    """
    group = {pending.stem: pending for pending in sessions}
    unchanged: list[Pending] = []
    changed: list[Pending] = []
    bad: list[BadSession] = []

    def read(driver: sqlite3.Connection, info: SessionInfo) -> tuple[str, int]:
        events_sum = 0
        with closing(_events(driver, 0)) as events:
            for row in events:
                if row[0] > group[info.session_id].place.sequence:
                    break
                events_sum = _checksum(row, events_sum)
        return info.session_id, events_sum

    for answer in scan.read_each(directory, read, [*group], listed):
        if isinstance(answer, BadSession):
            bad.append(answer)
        else:
            stem, events_sum = answer
            pending = group[stem]
            (unchanged if events_sum == pending.place.events_sum else changed).append(pending)
    return unchanged, changed, bad


def delete_gone(driver: sqlite3.Connection) -> None:
    """Delete the rows of sessions that are gone, or were replaced, from the index."""
    for (number,) in driver.execute(GONE).fetchall():
        while _delete_portion(driver, number):
            pass


def _delete_portion(driver: sqlite3.Connection, number: int) -> bool:
    """Delete the last rows of a session, and return whether there were any."""
    with transaction(driver, "BEGIN IMMEDIATE"):
        query = "SELECT rows FROM text_progress WHERE number = ?"
        stored = driver.execute(query, (number,)).fetchone()
        if not stored or not stored[0]:
            driver.execute("DELETE FROM text_progress WHERE number = ?", (number,))
            return False
        kept = max(stored[0] - _PORTION_EVENTS, 0)
        first = number << ROW_BITS
        driver.execute(
            "DELETE FROM texts WHERE rowid > ? AND rowid <= ?", (first | kept, first | stored[0])
        )
        driver.execute("UPDATE text_progress SET rows = ? WHERE number = ?", (kept, number))
        return True
