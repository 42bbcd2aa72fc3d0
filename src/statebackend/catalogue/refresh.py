"""Bringing the catalogue up to date with the session files.

An entry is valid while its file's signature is unchanged, provided that the file had been quiet for
longer than the clock's grain when it was read: a later change must then show. All other sessions
are read each time. A file that cannot be read completely has no entry, so it is never taken for
sound.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from statebackend.catalogue import folder_state, schema
from statebackend.catalogue.entries import Last, Row, SessionEntry, entry_reader
from statebackend.catalogue.file import Progress
from statebackend.catalogue.folder_state import FolderState, Signature
from statebackend.catalogue.schema import CatalogueDamaged, transaction, value_errors_are_damage
from statebackend.errors import StorageBusy
from statebackend.files.paths import SUFFIX
from statebackend.scanning import scan
from statebackend.scanning.listing import newest_first
from statebackend.values.ids import is_session_id
from statebackend.values.results import BadSession
from statebackend.values.timestamps import to_text

_ATTEMPTS = 5
_PORTION = 500
_UNSIGNED = "SELECT stem FROM sessions WHERE mtime_ns IS NULL"
_STORED = "SELECT stem, inode, size, mtime_ns, ctime_ns, wal FROM sessions"
_COLUMNS = (
    "stem, inode, size, mtime_ns, ctime_ns, wal, read_at_ns, "
    "parent_session_id, profile, status, depth, started_at, ended_at, live, incomplete, "
    f"{schema.TOTALS}, title, events, last_sequence, last_event_id"
)
_MARKS = ", ".join("?" * len(_COLUMNS.split(",")))
_UPDATE = f"UPDATE sessions SET ({_COLUMNS}) = ({_MARKS}) WHERE number = ?"
_INSERT = f"INSERT INTO sessions ({_COLUMNS}) VALUES ({_MARKS})"
_DETAILS = {"costs": 14, "plan_rules": 4, "producers": 4}
"""The tables of details, fields of :class:`SessionEntry`, and how many columns each has."""


class Current(NamedTuple):
    """The *state* of the folder that the catalogue shows, and its sessions without an entry.

    These ``unread`` ones could not be read completely; the newest is first.
    """

    state: FolderState
    unread: list[str]


class _FileEntry(NamedTuple):
    """An entry, and the file that it was read from: no signature if that must not be relied on."""

    entry: SessionEntry
    inode: int
    signature: Signature | None
    read_at_ns: int


_Unreliable = dict[str, _FileEntry | None]
"""The entries read for this use alone; None for a file that could not be read completely."""


@contextmanager
def current(
    driver: sqlite3.Connection, directory: Path, progress: Progress | None = None
) -> Iterator[Current]:
    """Run the block in a transaction in which the catalogue shows the folder, or a later state.

    *progress* is called with how many sessions have been read, and of how many. Raises
    :class:`StorageError`, SQLite's errors and :class:`CatalogueDamaged`.
    """
    state = folder_state.read_state(directory)
    unreliable: _Unreliable = {}
    writing = False
    for _ in range(_ATTEMPTS):
        with transaction(driver, "BEGIN IMMEDIATE" if writing else "BEGIN"):
            stale, gone, unread = _compare(driver, state, unreliable)
            changed = bool(gone) or unread is not None or any(unreliable.values())
            if not stale and (writing or not changed):
                if changed:
                    _write(driver, state, unreliable, gone, unread)
                bad = newest_first(stem for stem, entry in unreliable.items() if entry is None)
                _check_entry_count(driver, state.sessions - len(bad))
                yield Current(state, bad)
                return
        if stale:
            _read(driver, directory, state, stale, unreliable=unreliable, progress=progress)
        writing = changed or any(unreliable.values())
    raise StorageBusy(directory, "changes faster than the catalogue can be updated; try again")


def _check_entry_count(driver: sqlite3.Connection, sessions: int) -> None:
    """Refuse a catalogue that lost entries: a part of the sessions is never returned as all."""
    (entries,) = driver.execute("SELECT count(*) FROM sessions").fetchone()
    if entries != sessions:
        raise CatalogueDamaged(f"{entries:,} entries for {sessions:,} sessions")


@value_errors_are_damage()
def _compare(
    driver: sqlite3.Connection, state: FolderState, unreliable: _Unreliable
) -> tuple[list[str], list[str], list[str] | None]:
    """Return the sessions to read, those to drop, and the signed files without a good entry.

    The last is None if they are those that are stored.
    """
    (digest, bad) = driver.execute("SELECT digest, unread FROM folder").fetchone()
    if digest == state.digest:
        unread = None
        stale = state.unsigned.union(json.loads(bad))
        other = [stem for (stem,) in driver.execute(_UNSIGNED)]
    else:
        signature = state.signatures.get
        other = []
        valid = set()
        for row in driver.execute(_STORED):
            if signature(row[0]) == row[1:]:
                valid.add(row[0])
            else:
                other.append(row[0])
        unread = [stem for stem in state.signatures if stem not in valid]
        stale = state.unsigned.union(unread)
    gone = [stem for stem in other if stem not in state or unreliable.get(stem, state) is None]
    return newest_first(stale.difference(unreliable)), gone, unread


def _write(
    driver: sqlite3.Connection,
    state: FolderState,
    unreliable: _Unreliable,
    gone: list[str],
    unread: list[str] | None,
) -> None:
    _forget(driver, gone)
    for entry in unreliable.values():
        if entry is not None:
            _put(driver, entry)
    if unread is not None:
        driver.execute(
            "UPDATE folder SET digest = ?, unread = ?", (state.digest, json.dumps(unread))
        )


def _read(
    driver: sqlite3.Connection,
    directory: Path,
    state: FolderState,
    stems: list[str],
    *,
    unreliable: _Unreliable,
    progress: Progress | None,
) -> None:
    """Read these sessions: what may be relied on is stored, all else goes to *unreliable*."""
    for start in range(0, len(stems), _PORTION):
        portion = stems[start : start + _PORTION]
        unreliable.update(dict.fromkeys(portion))
        with transaction(driver):
            known = dict(_known(driver, portion))
        entries = list(_read_portion(directory, state, portion, known))
        with transaction(driver, "BEGIN IMMEDIATE"):
            for entry in entries:
                stem = entry.entry.info.session_id
                if entry.signature is None:
                    unreliable[stem] = entry
                else:
                    _put(driver, entry)
                    del unreliable[stem]
        if progress is not None:
            progress(start + len(portion), len(stems))


def _known(driver: sqlite3.Connection, stems: list[str]) -> Iterator[tuple[str, Last]]:
    query = "SELECT events, last_sequence, last_event_id FROM sessions WHERE stem = ?"
    for stem in filter(is_session_id, stems):  # another name has no entry, and may not be UTF-8
        if (row := driver.execute(query, (stem,)).fetchone()) is not None:
            yield stem, Last(*row)


def _read_portion(
    directory: Path, state: FolderState, stems: list[str], known: dict[str, Last]
) -> Iterator[_FileEntry]:
    started_ns = time.time_ns()
    entries = [
        entry
        for entry in scan.read_each(directory, entry_reader(known), stems, state.listed)
        if not isinstance(entry, BadSession)
    ]
    after = folder_state.signatures(directory, [entry.info.session_id for entry in entries])
    for entry in entries:
        stem = entry.info.session_id
        before = state.signatures.get(stem)
        doubtful = entry.info.live or entry.info.incomplete
        if before is not None and before == after.get(stem) and not doubtful:
            signature = before if folder_state.is_quiet(before, started_ns) else None
            yield _FileEntry(entry, before[0], signature, started_ns)
        else:
            inode = 0
            with suppress(OSError):
                inode = os.lstat(directory / (stem + SUFFIX)).st_ino
            yield _FileEntry(entry, inode, None, started_ns)


def _put(driver: sqlite3.Connection, read: _FileEntry) -> None:
    """Insert or update the entry of a session; one that is not the same file gets a new number."""
    entry, info, stem = read.entry, read.entry.info, read.entry.info.session_id
    query = "SELECT number, inode, mtime_ns FROM sessions WHERE stem = ?"
    stored = driver.execute(query, (stem,)).fetchone()
    if read.signature is not None or (stored is not None and stored[2] is not None):
        driver.execute("UPDATE folder SET digest = NULL")
    signature = read.signature or (read.inode, None, None, None, None)
    values = (
        *(stem, *signature, read.read_at_ns),
        *(info.parent_session_id, info.profile, info.status, info.depth),
        *(_stored_time(info.started_at), _stored_time(info.ended_at)),
        *(info.live, info.incomplete),
        *(*entry.totals, entry.title, *entry.last),
    )
    if stored is not None and entry.is_continued and stored[1] == read.inode:
        number = stored[0]
        _forget_details(driver, number)
        driver.execute(_UPDATE, (*values, number))
    else:
        _forget(driver, [stem])
        number = driver.execute(_INSERT, values).lastrowid
    for table, width in _DETAILS.items():
        details: Sequence[Row] = getattr(entry, table)
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * width)})"
        driver.executemany(insert, [(number, *row) for row in details])


def renumber(driver: sqlite3.Connection, number: int) -> None:
    """Give a session another number, as if its file were another, inside a transaction."""
    driver.execute("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'sessions'")
    for table in ("sessions", *_DETAILS):
        driver.execute(
            f"UPDATE {table} SET number = (SELECT seq FROM sqlite_sequence "
            "WHERE name = 'sessions') WHERE number = ?",
            (number,),
        )


def _stored_time(value: datetime | str | None) -> str | bytes | None:
    """Return a time as text, and a text that is not a time as bytes: it need not be parsed."""
    if isinstance(value, str):
        return value.encode()
    return None if value is None else to_text(value)


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
