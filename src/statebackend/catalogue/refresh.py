"""Making the catalogue current: what it lacks is read from the files, what is gone is dropped.

An entry holds as long as its file's signature does, provided that the file had been quiet for
longer than the clock's grain when it was read: a later change must then show. All else is read
again each time. A file that cannot be read in full has no entry, so it is never taken for good.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from statebackend.catalogue import schema
from statebackend.catalogue.file import Progress
from statebackend.catalogue.look import Look, Signature, is_quiet, look, signatures
from statebackend.catalogue.reading import Last, Reading, Row, reader
from statebackend.catalogue.soundness import changing, check, sign, transaction
from statebackend.errors import StorageBusy
from statebackend.files.paths import SessionFiles
from statebackend.scanning import scan
from statebackend.values.ids import is_session_id
from statebackend.values.results import BadSession
from statebackend.values.timestamps import to_text

_T = TypeVar("_T")
_ATTEMPTS = 5
_PORTION = 500
_UNSIGNED = "SELECT stem FROM sessions WHERE mtime_ns IS NULL"
_STORED = "SELECT stem, inode, size, mtime_ns, ctime_ns, log FROM sessions"
_COLUMNS = (
    "stem, inode, size, mtime_ns, ctime_ns, log, read_at_ns, "
    "parent_session_id, profile, status, depth, started_at, ended_at, live, incomplete, "
    f"{schema.TOTALS}, title, events, last_sequence, last_event_id"
)
_MARKS = ", ".join("?" * len(_COLUMNS.split(",")))
_UPDATE = f"UPDATE sessions SET ({_COLUMNS}) = ({_MARKS}) WHERE number = ?"
_INSERT = f"INSERT INTO sessions ({_COLUMNS}) VALUES ({_MARKS})"
_DETAILS = {"costs": 14, "plan_rules": 4, "producers": 4}


class Current(NamedTuple):
    """A transaction in which the catalogue shows the folder as *look* found it, or later.

    ``unread`` are the sessions of the folder without an entry, since they could not be read in
    full, in the order of the listing.
    """

    driver: sqlite3.Connection
    look: Look
    unread: list[str]


class _Found(NamedTuple):
    """A reading, and what its entry says of the file: no signature if that may not be relied on."""

    reading: Reading
    inode: int
    signature: Signature | None
    read_at_ns: int


_Again = dict[str, _Found | None]
"""What was read for this answer alone; None is a file that could not be read in full."""


class _Difference(NamedTuple):
    """What differs from the folder: ``stale`` is to be read, ``gone`` to be dropped.

    ``unread`` are the signed files without a good entry; None if they are those that are stored.
    """

    stale: list[str]
    gone: list[str]
    unread: list[str] | None


def answer(
    driver: sqlite3.Connection,
    directory: Path,
    query: Callable[[Current], _T],
    progress: Progress | None = None,
) -> _T:
    """Return what *query* says of the catalogue while it is current.

    *progress* hears how many sessions of how many have been read.

    Raises :class:`StorageError` and SQLite's errors.
    """
    seen = look(directory)
    again: _Again = {}
    writing = False
    for _ in range(_ATTEMPTS):
        with transaction(driver, "BEGIN IMMEDIATE" if writing else "BEGIN"):
            check(driver, "entries")
            stale, gone, unread = _compare(driver, seen, again)
            changed = bool(gone) or unread is not None or any(again.values())
            if not stale and (writing or not changed):
                if changed:
                    _write(driver, seen, again, gone, unread)
                    sign(driver, "entries")
                return query(Current(driver, seen, _without_entry(again)))
        if stale:
            _read(driver, directory, seen, stale, again=again, progress=progress)
        writing = changed or any(again.values())
    raise StorageBusy(directory, "changes faster than the catalogue follows; try again")


def _without_entry(again: _Again) -> list[str]:
    return sorted(
        [stem for stem, found in again.items() if not found], key=scan.in_order, reverse=True
    )


def _compare(driver: sqlite3.Connection, seen: Look, again: _Again) -> _Difference:
    (digest, bad) = driver.execute("SELECT digest, unread FROM folder").fetchone()
    if digest == seen.digest:
        unread = None
        stale = seen.unsigned.union(json.loads(bad))
        other = [stem for (stem,) in driver.execute(_UNSIGNED)]
    else:
        signature = seen.signatures.get
        other = []
        valid = set()
        for row in driver.execute(_STORED):
            if signature(row[0]) == row[1:]:
                valid.add(row[0])
            else:
                other.append(row[0])
        unread = [stem for stem in seen.signatures if stem not in valid]
        stale = seen.unsigned.union(unread)
    gone = [stem for stem in other if stem not in seen or again.get(stem, seen) is None]
    return _Difference(
        sorted(stale.difference(again), key=scan.in_order, reverse=True), gone, unread
    )


def _write(
    driver: sqlite3.Connection,
    seen: Look,
    again: _Again,
    gone: list[str],
    unread: list[str] | None,
) -> None:
    _forget(driver, gone)
    for found in again.values():
        if found is not None:
            _put(driver, found)
    if unread is not None:
        driver.execute(
            "UPDATE folder SET digest = ?, unread = ?", (seen.digest, json.dumps(unread))
        )


def _read(
    driver: sqlite3.Connection,
    directory: Path,
    seen: Look,
    stems: list[str],
    *,
    again: _Again,
    progress: Progress | None,
) -> None:
    """Read these sessions: what may be relied on becomes an entry, all else goes to *again*."""
    for start in range(0, len(stems), _PORTION):
        portion = stems[start : start + _PORTION]
        again.update(dict.fromkeys(portion))
        with transaction(driver):
            known = dict(_known(driver, portion))
        found = list(_read_portion(directory, seen, portion, known))
        with changing(driver, "entries"):
            for one in found:
                stem = one.reading.info.session_id
                if one.signature is None:
                    again[stem] = one
                else:
                    _put(driver, one)
                    del again[stem]
        if progress is not None:
            progress(start + len(portion), len(stems))


def _known(driver: sqlite3.Connection, stems: list[str]) -> Iterator[tuple[str, Last]]:
    query = "SELECT events, last_sequence, last_event_id FROM sessions WHERE stem = ?"
    for stem in filter(is_session_id, stems):  # another name has no entry, and may be no UTF-8
        if (row := driver.execute(query, (stem,)).fetchone()) is not None:
            yield stem, Last(*row)


def _read_portion(
    directory: Path, seen: Look, stems: list[str], known: dict[str, Last]
) -> Iterator[_Found]:
    started_ns = time.time_ns()
    read = [
        one
        for one in scan.read_each(directory, reader(known), stems, seen.listed)
        if not isinstance(one, BadSession)
    ]
    after = signatures(directory, [one.info.session_id for one in read])
    for one in read:
        stem = one.info.session_id
        before = seen.signatures.get(stem)
        doubtful = one.info.live or one.info.incomplete
        if before is not None and before == after.get(stem) and not doubtful:
            relied_on = before if is_quiet(before, started_ns) else None
            yield _Found(one, before[0], relied_on, started_ns)
        else:
            inode = _inode(SessionFiles.of(directory, stem).path)
            yield _Found(one, inode, None, started_ns)


def _inode(path: Path) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def _put(driver: sqlite3.Connection, found: _Found) -> None:
    """Make or change the entry of a session; one that is not the same file gets a new number."""
    reading = found.reading
    stem = reading.info.session_id
    query = "SELECT number, inode, mtime_ns FROM sessions WHERE stem = ?"
    stored = driver.execute(query, (stem,)).fetchone()
    if found.signature is not None or (stored is not None and stored[2] is not None):
        driver.execute("UPDATE folder SET digest = NULL")
    signature = found.signature or (found.inode, None, None, None, None)
    info = reading.info
    values = (
        *(stem, *signature, found.read_at_ns),
        *(info.parent_session_id, info.profile, info.status, info.depth),
        *(_moment(info.started_at), None if info.ended_at is None else _moment(info.ended_at)),
        *(info.live, info.incomplete),
        *(*reading.totals, reading.title, *reading.last),
    )
    if stored is not None and reading.goes_on and stored[1] == found.inode:
        number = stored[0]
        _forget_details(driver, number)
        driver.execute(_UPDATE, (*values, number))
    else:
        _forget(driver, [stem])
        number = driver.execute(_INSERT, values).lastrowid
    details: list[tuple[str, Sequence[Row]]] = [
        ("costs", reading.costs),
        ("plan_rules", reading.plan_rules),
        ("producers", reading.producers),
    ]
    for table, rows in details:
        marks = ", ".join("?" * _DETAILS[table])
        driver.executemany(
            f"INSERT INTO {table} VALUES ({marks})", [(number, *row) for row in rows]
        )


def renumber(driver: sqlite3.Connection, number: int) -> None:
    """Give a session another number, as if its file were another; inside a transaction."""
    driver.execute("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'sessions'")
    for table in ("sessions", *_DETAILS):
        driver.execute(
            f"UPDATE {table} SET number = (SELECT seq FROM sqlite_sequence "
            "WHERE name = 'sessions') WHERE number = ?",
            (number,),
        )


def _moment(value: datetime | str) -> str | bytes:
    """Return a time as text, and a text that is no time of ours as bytes: it need not be parsed."""
    return to_text(value) if isinstance(value, datetime) else value.encode()


def _forget(driver: sqlite3.Connection, stems: list[str]) -> None:
    if stems:
        driver.execute("UPDATE folder SET digest = NULL")
    for stem in stems:
        query = "SELECT number FROM sessions WHERE stem = ?"
        for (number,) in driver.execute(query, (stem,)).fetchall():
            _forget_details(driver, number)
            driver.execute("DELETE FROM sessions WHERE number = ?", (number,))


def _forget_details(driver: sqlite3.Connection, number: int) -> None:
    for table in _DETAILS:
        driver.execute(f"DELETE FROM {table} WHERE number = ?", (number,))
