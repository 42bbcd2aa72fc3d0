"""Summaries of many session files, with ``sqlite3`` alone and without ever writing (SB-27).

Names are ULIDs, so the newest N sessions cost N opens. A file without a log is read in the
immutable mode, which is fast and leaves nothing behind, with a look before and after that nobody
changed it; all else is read the ordinary way. Order and age never come from file times.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from statebackend import claim, rows, telemetry
from statebackend.errors import SessionDamaged, SessionUnreadable, StateBackendError
from statebackend.faults import os_error, read_error
from statebackend.header import (
    LEFTOVERS,
    check_regular,
    check_sidecars,
    check_version,
    check_version_bytes,
    has_log,
    leftover,
    look,
    misnamed,
)
from statebackend.ids import is_session_id
from statebackend.paths import SUFFIX, lock_path, sqlite_uri
from statebackend.values import BadSession, CostTotals, SessionInfo

_T = TypeVar("_T")
Reader = Callable[[sqlite3.Connection, SessionInfo], _T]
"""Reads one open file, whose summary has been read already."""

# A change within the clock's grain of the one before may leave the file's times as they were, so
# the look before and after proves something only for a file that has been quiet for longer.
_GRAIN_NS = 50_000_000
_MIN_DATABASE_BYTES = 512
_QUIET = "mode=ro&immutable=1"
_NOT_AN_ID = "its name is not a session id (a ULID: 26 upper-case characters)"
_BUSY_TIMEOUT_S = 5.0


def stems(directory: Path) -> list[str]:
    """Return the stem of every session in *directory*, newest first, opening no file.

    Names that are no session ids have no time, and come last.

    A session of which only a damaged original or a log is left is one of them. A missing folder is
    an empty one; one that cannot be listed is a :class:`StorageError`.
    """
    with os_error(directory):
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            return []
    found = set()
    for name in names:
        if name.endswith(SUFFIX):
            found.add(name[: -len(SUFFIX)])
        else:
            stem, _suffix, ending = name.partition(SUFFIX)
            if ending in LEFTOVERS:
                found.add(stem)
    ids = {stem for stem in found if is_session_id(stem)}
    return sorted(ids, reverse=True) + sorted(found - ids, reverse=True)


def read_each(directory: Path, read: Reader[_T], stems: Iterable[str]) -> Iterator[_T | BadSession]:
    """Read the sessions with these *stems*, in their order, lazily.

    A file that cannot be read comes as a :class:`BadSession` and ends nothing; one that is gone by
    now is left out.
    """
    claimed = _claimed(directory)
    for stem in stems:
        path = directory / (stem + SUFFIX)
        try:
            one: _T | BadSession = _read(path, read, stem in claimed)
        except _Gone:
            continue
        except StateBackendError as error:
            if not os.path.lexists(path) and leftover(path) is None:
                continue
            problem = getattr(error, "problem", None) or str(error)
            one = BadSession(session_id=stem, path=path, problem=problem, error=error)
        yield one


def read_summary(_driver: sqlite3.Connection, info: SessionInfo) -> SessionInfo:
    """Return the summary of one open file."""
    return info


def read_totals(driver: sqlite3.Connection, info: SessionInfo) -> tuple[SessionInfo, CostTotals]:
    """Return the summary of one open file, and the sums of its ledger."""
    totals = driver.execute(f"SELECT {TOTALS} FROM cost_ledger").fetchone()
    return (info, rows.cost_totals(totals))


_UNPRICED = (
    "count(*) FILTER (WHERE cost_usd = 0 AND "
    "input_tokens + output_tokens + cache_write_tokens + cache_read_tokens > 0)"
)
_SUMMARY = (
    "SELECT session_id, parent_session_id, profile, status, depth, started_at, ended_at, "
    "(SELECT sum(cost_usd) FROM cost_ledger), "
    f"(SELECT {_UNPRICED} FROM cost_ledger) FROM session_meta LIMIT 2"
)
TOTALS = ", ".join(
    ["count(*)", "sum(cost_usd)", _UNPRICED]
    + [
        half
        for name in rows.COUNTERS
        for half in (f"sum({name} >> 32)", f"sum({name} & 4294967295)")
    ]
)
"""The columns that :func:`statebackend.rows.cost_totals` takes, over ``cost_ledger``."""


class _Gone(Exception):
    """The file was deleted since the folder was read."""


class _Changed(Exception):
    """Somebody changed the file during an immutable read, or may have."""


def _read(path: Path, read: Reader[_T], maybe_live: bool) -> _T:
    with telemetry.current().span("statebackend.scan", path=str(path)), os_error(path):
        before = check_regular(path)
        if before is None:
            if (left := leftover(path)) is not None:
                raise SessionUnreadable(path, left)
            raise _Gone
        if is_session_id(path.name.removesuffix(SUFFIX)) is None:
            raise SessionUnreadable(path, _NOT_AN_ID)
        if before.st_size < _MIN_DATABASE_BYTES:
            # SQLite takes an empty file for an empty database, and deletes its log.
            raise SessionDamaged(path, (f"{before.st_size} bytes, no whole database",))
        live = maybe_live and claim.writer_of(path) is not None
        try:
            return _read_quiet(path, read, live, before)
        except _Changed:
            return _read_shared(path, read, live)


def _read_quiet(path: Path, read: Reader[_T], live: bool, before: os.stat_result) -> _T:
    name = str(path)
    with claim.mutex():
        if not claim.is_untouched(path, before) or time.time_ns() - _newest(before) < _GRAIN_NS:
            raise _Changed
        failure = None
        try:
            check_version_bytes(path)
            result = _query(path, _QUIET, read, live)
        except StateBackendError as error:
            failure = error
        # Asked afterwards, and before an error counts: half of a change can look like damage. A log
        # or journal that was there and is gone by now has changed the file.
        if (
            os.access(f"{name}-wal", os.F_OK)
            or os.access(f"{name}-journal", os.F_OK)
            or _signature(os.lstat(name)) != _signature(before)
        ):
            raise _Changed
    if failure is not None:
        raise failure
    return result


def _read_shared(path: Path, read: Reader[_T], live: bool) -> _T:
    # Without a log, a connection that may write leaves nothing behind when it closes, where a
    # read-only one would; beside a log it is the other way round.
    check_sidecars(path)
    with claim.untouched(path) as alone:
        if alone:  # before SQLite makes or changes a sidecar, or rolls a journal back into the file
            look(path)
    mode = "mode=ro" if has_log(path) else "mode=rw"
    file = claim.file_opened(path)
    try:
        return _query(path, mode, read, live)
    finally:
        claim.file_closed(file)


def _query(path: Path, mode: str, read: Reader[_T], live: bool) -> _T:
    driver = None
    try:
        driver = sqlite3.connect(
            sqlite_uri(path, mode),
            uri=True,
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
            cached_statements=0,  # no statement comes twice, and making the cache takes time
        )
        if mode == "mode=rw":
            driver.execute("PRAGMA query_only = ON")
        if mode != _QUIET:
            (version,) = driver.execute("PRAGMA user_version").fetchone()
            check_version(path, version)
        return read(driver, _summary(driver, path, live))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise read_error(path, error) from error
    finally:
        if driver is not None:
            driver.close()


def _summary(driver: sqlite3.Connection, path: Path, live: bool) -> SessionInfo:
    """Refuse what opening refuses, above all a file under another id: it would count twice."""
    found = driver.execute(_SUMMARY).fetchall()
    if len(found) != 1:
        number = "more than one row" if found else "no row"
        raise SessionDamaged(path, (f"session_meta holds {number}",))
    if found[0][0] is None:
        raise SessionDamaged(path, ("session_meta holds no id",))
    if found[0][0] != path.name.removesuffix(SUFFIX):
        raise misnamed(path, found[0][0])
    return rows.session_info(found[0], live=live)


def _claimed(directory: Path) -> frozenset[str]:
    """Return the stems that have a lock file: only those can have a living writer."""
    try:
        names = os.listdir(lock_path(directory / ("x" + SUFFIX)).parent)
    except OSError:
        return frozenset()
    return frozenset(name.removesuffix(".lock") for name in names)


def _newest(found: os.stat_result) -> int:
    return max(found.st_mtime_ns, found.st_ctime_ns)


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
