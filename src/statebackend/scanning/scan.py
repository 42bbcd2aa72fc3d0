"""Reading many session files, with ``sqlite3`` alone and without ever writing (SB-27).

A file without a WAL is read in SQLite's immutable mode, which is fast and leaves nothing behind,
with a check before and after that nobody changed it: a small file as bytes that SQLite takes for a
database in memory, a larger one attached to a connection that serves all of them. Any other file is
read the ordinary way.

A path is a ``str`` here until there is an error to report: one ``Path`` a file is a good part of
what a scan adds to SQLite's own work.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TypeVar

from statebackend import telemetry
from statebackend.errors import SessionDamaged, SessionUnreadable, StateBackendError
from statebackend.files import claim, open_files
from statebackend.files.header import (
    check_sidecars,
    describe_leftover,
    irregular_file_error,
    read_header,
    refuse_unfinished,
)
from statebackend.files.paths import SUFFIX, FileSignature
from statebackend.scanning import connections, listing
from statebackend.scanning.connections import ImmutableReader, Reader, Surroundings
from statebackend.scanning.listing import Listing
from statebackend.sqlite.faults import os_error
from statebackend.sqlite.read_mode import checked_read_mode
from statebackend.sqlite.wal_check import check_wal
from statebackend.values.ids import is_session_id
from statebackend.values.recorded import SessionInfo
from statebackend.values.results import BadSession

_T = TypeVar("_T")

READ_FIRST = 200
"""Reading this number of files takes less time than comparing a large folder with the catalogue."""

# A change within the clock's grain of the one before may leave the file's times as they were, so
# the check before and after proves something only for a file that has been quiet for longer.
_GRAIN_NS = 50_000_000
_MIN_DATABASE_BYTES = 512
_NOT_AN_ID = "its name is not a session id (a ULID: 26 upper-case characters)"


class SessionFilter(NamedTuple):
    """What a session must be to be listed; None and False accept all."""

    status: str | None = None
    profile: str | None = None
    parent_session_id: str | None = None
    roots: bool = False

    def matches(self, answer: SessionInfo | BadSession) -> bool:
        """Return whether a summary matches; a file that cannot be read may, so it does."""
        return isinstance(answer, BadSession) or (
            (self.status is None or answer.status == self.status)
            and (self.profile is None or answer.profile == self.profile)
            and self.parent_session_id in (None, answer.parent_session_id)
            and not (self.roots and answer.parent_session_id is not None)
        )


ALL_SESSIONS = SessionFilter()


def read_all(directory: Path, read: Reader[_T]) -> Iterator[_T | BadSession]:
    """Read every session of *directory*, newest first, lazily, as :func:`read_each` does."""
    sessions = listing.list_sessions(directory)
    return read_each(directory, read, sessions.stems, sessions)


def read_each(
    directory: Path, read: Reader[_T], stems: Iterable[str], listed: Listing = listing.EMPTY
) -> Iterator[_T | BadSession]:
    """Read the sessions with these *stems*, in their order, lazily.

    A file that cannot be read is a :class:`BadSession` and ends nothing; a session deleted
    meanwhile is left out. What *listed* says of reports saves looking for them at each session.
    """
    locked = listing.stems_with_lock_file(directory)
    folder = os.path.join(directory, "")
    with closing(ImmutableReader(read)) as reader:
        for stem in stems:
            name = folder + stem + SUFFIX
            file = _File(name, stem, stem in locked)
            try:
                answer: _T | BadSession = _read(file, read, reader, listed)
            except _Deleted:
                continue
            except StateBackendError as error:
                path = Path(name)
                if not os.path.lexists(name) and describe_leftover(path) is None:
                    continue
                problem = getattr(error, "problem", None) or str(error)
                answer = BadSession(session_id=stem, path=path, problem=problem, error=error)
            yield answer
            reader.several = True


def read_summary(_driver: sqlite3.Connection, info: SessionInfo) -> SessionInfo:
    """Return the summary of one open file."""
    return info


class _Deleted(Exception):
    """The file was deleted since the folder was listed."""


class _ChangedWhileRead(Exception):
    """The file was changed during an immutable read, or may have been."""


class _File(NamedTuple):
    """One session file to read; without a lock file it cannot have a living writer."""

    name: str
    stem: str
    has_lock_file: bool


def _read(file: _File, read: Reader[_T], reader: ImmutableReader[_T], listed: Listing) -> _T:
    name, stem, has_lock_file = file
    with telemetry.span("statebackend.scan", session_id=stem, path=name), os_error(name):
        try:
            before = os.lstat(name)
        except FileNotFoundError:
            if (problem := describe_leftover(Path(name))) is not None:
                raise SessionUnreadable(Path(name), problem) from None
            raise _Deleted from None
        if not stat.S_ISREG(before.st_mode):
            raise irregular_file_error(Path(name), before)
        if before.st_nlink > 1:
            refuse_unfinished(Path(name))
        if is_session_id(stem) is None:
            raise SessionUnreadable(Path(name), _NOT_AN_ID)
        if before.st_size < _MIN_DATABASE_BYTES:
            # SQLite takes an empty file for an empty database, and deletes its WAL.
            raise SessionDamaged(Path(name), (f"{before.st_size} bytes, no whole database",))
        live = has_lock_file and claim.writer_of(Path(name)) is not None
        # A report written since the listing changed the file, too.
        reported = stem in listed.reported or _newest_ns(before) > listed.at_ns - _GRAIN_NS
        try:
            return _read_immutable(file, reader, Surroundings(live, reported), before)
        except _ChangedWhileRead:
            return _read_shared(Path(name), stem, read, Surroundings(live, may_be_reported=True))


def _read_immutable(
    file: _File, reader: ImmutableReader[_T], surroundings: Surroundings, before: os.stat_result
) -> _T:
    name, stem, _has_lock_file = file
    with open_files.mutex():
        if (
            not open_files.is_untouched(stem, before)
            or time.time_ns() - _newest_ns(before) < _GRAIN_NS
        ):
            raise _ChangedWhileRead
        failure = None
        try:
            result = reader.read(name, stem, surroundings, before.st_size)
        except StateBackendError as error:
            failure = error
        # Checked afterwards, and before an error counts: half of a change can look like damage. A
        # WAL or journal that was there and is gone by now has changed the file.
        if (
            os.access(f"{name}-wal", os.F_OK)
            or os.access(f"{name}-journal", os.F_OK)
            or FileSignature.of(os.lstat(name)) != FileSignature.of(before)
        ):
            raise _ChangedWhileRead
    if failure is not None:
        raise failure
    return result


def _read_shared(path: Path, stem: str, read: Reader[_T], surroundings: Surroundings) -> _T:
    check_sidecars(path)
    with open_files.untouched(path) as alone:
        if alone:  # before SQLite makes or changes a sidecar, or rolls a journal back into the file
            page_size = read_header(path).page_size
            if not surroundings.live:
                check_wal(path, page_size)
    with checked_read_mode(path) as mode, open_files.OpenFile(path):
        return connections.query(str(path), mode, stem, read, surroundings)


def _newest_ns(status: os.stat_result) -> int:
    return max(status.st_mtime_ns, status.st_ctime_ns)
