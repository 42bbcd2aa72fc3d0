"""Summaries of many session files, with ``sqlite3`` alone and without ever writing (SB-27).

Names are ULIDs, so the newest N sessions cost N opens. A file without a log is read in the
immutable mode, which is fast and leaves nothing behind, with a look before and after that nobody
changed it: a small one as bytes that SQLite takes for a database in memory, a larger one attached
to a connection that serves all of them. All else is read the ordinary way.
Order and age never come from file times.

A path is a ``str`` here until there is an error to tell: one ``Path`` a file is a good part of what
a scan adds to SQLite's own work.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from statebackend import telemetry
from statebackend.errors import SessionDamaged, SessionUnreadable, StateBackendError
from statebackend.files import claim, open_files
from statebackend.files.header import (
    LEFTOVERS,
    check_bytes,
    check_head,
    check_meta_value,
    check_sidecars,
    check_version,
    describe_leftover,
    has_lost_rows,
    irregular_file_error,
    misnamed_file_error,
    page_size_of,
    read_header,
    refuse_unfinished,
)
from statebackend.files.paths import SUFFIX, SessionFiles, sqlite_uri
from statebackend.sqlite.faults import os_error, read_error
from statebackend.sqlite.read_mode import IMMUTABLE, checked_read_mode
from statebackend.sqlite.wal_check import check_wal
from statebackend.values import rows
from statebackend.values.ids import is_session_id
from statebackend.values.recorded import CostTotals, SessionInfo
from statebackend.values.results import BadSession

_T = TypeVar("_T")
Reader = Callable[[sqlite3.Connection, SessionInfo], _T]
"""Reads one open file, whose summary has been read already; after an error, perhaps once more."""

# A change within the clock's grain of the one before may leave the file's times as they were, so
# the look before and after proves something only for a file that has been quiet for longer.
_GRAIN_NS = 50_000_000
_MIN_DATABASE_BYTES = 512
# Up to here, reading a file whole takes less time than SQLite's opening of it.
_IMAGE_BYTES = 128 * 1024 if hasattr(sqlite3.Connection, "deserialize") else 0
# The file format versions in the header: of a database with a write-ahead log, and of one without.
_FORMATS = slice(18, 20)
_WRITE_AHEAD, _NO_LOG = b"\2\2", b"\1\1"
_PAGE_1_KIND, _LEAF = 100, 13
_NOT_AN_ID = "its name is not a session id (a ULID: 26 upper-case characters)"
_BUSY_TIMEOUT_S = 5.0


class Names(NamedTuple):
    """The names of a folder by what they tell, read from ``at_ns`` (of the clock) on.

    ``files`` are the stems of session files, ``beside`` those with a log, a journal or a damaged
    original, ``reported`` those with a report of a recovery.
    """

    files: list[str]
    beside: frozenset[str]
    reported: frozenset[str]
    at_ns: int


class Listing(NamedTuple):
    """One look at the names of a folder, begun at ``at_ns`` (of the clock).

    ``stems`` are the sessions, newest first, ``reported`` those with a report of a recovery.
    """

    stems: list[str]
    reported: frozenset[str]
    at_ns: int


_STEM = slice(-len(SUFFIX))
_UNLISTED = Listing([], frozenset(), 0)


def stems(directory: Path) -> list[str]:
    """Return the stem of every session in *directory*, newest first, opening no file."""
    return listing(directory).stems


def listing(directory: Path) -> Listing:
    """Look at the names in *directory*, opening no file.

    Names that are no session ids have no time, and come last.

    A session of which only a damaged original or a log is left is one of them. A missing folder is
    an empty one; one that cannot be listed is a :class:`StorageError`.
    """
    read = names(directory)
    found = read.beside.union(read.files)
    ids = {stem for stem in found if is_session_id(stem)}
    ordered = sorted(ids, reverse=True) + sorted(found - ids, reverse=True)
    return Listing(ordered, read.reported, read.at_ns)


def in_order(stem: str) -> tuple[bool, str]:
    """Return what sorts stems as a listing does, which begins with the greatest."""
    return (is_session_id(stem) is not None, stem)


def names(directory: Path) -> Names:
    """Look at the names in *directory*, as :func:`listing` does, in no order."""
    at_ns = time.time_ns()
    with os_error(directory):
        try:
            every = os.listdir(directory)
        except FileNotFoundError:
            every = []
    files = [name[_STEM] for name in every if name.endswith(SUFFIX)]
    beside = set()
    reported = set()
    others: list[str] = []
    if len(files) < len(every):
        others = [name for name in every if not name.endswith(SUFFIX)]
    for name in others:
        stem, _suffix, ending = name.partition(SUFFIX)
        if ending in LEFTOVERS:
            beside.add(stem)
        elif ending.startswith(".corrupt.") and ending.endswith(".json"):
            reported.add(stem)
    return Names(files, frozenset(beside), frozenset(reported), at_ns)


def read_each(
    directory: Path, read: Reader[_T], stems: Iterable[str], listed: Listing = _UNLISTED
) -> Iterator[_T | BadSession]:
    """Read the sessions with these *stems*, in their order, lazily.

    What *listed* tells of reports spares a look for those of each session.

    A file that cannot be read comes as a :class:`BadSession` and ends nothing; one that is gone by
    now is left out.
    """
    locked = claimed(directory)
    folder = os.path.join(directory, "")
    with closing(_Scan(read, listed)) as scan:
        for stem in stems:
            name = folder + stem + SUFFIX
            try:
                one: _T | BadSession = _read(name, stem, scan, stem in locked)
            except _Gone:
                continue
            except StateBackendError as error:
                path = Path(name)
                if not os.path.lexists(name) and describe_leftover(path) is None:
                    continue
                problem = getattr(error, "problem", None) or str(error)
                one = BadSession(session_id=stem, path=path, problem=problem, error=error)
            yield one
            scan.several = True


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
_META = ["session_id", "parent_session_id", "profile", "status", "depth", "started_at", "ended_at"]
_SUMMARY = (
    f"SELECT {', '.join(_META)}, cost, unpriced FROM session_meta, "
    f"(SELECT sum(cost_usd) AS cost, {_UNPRICED} AS unpriced FROM cost_ledger) LIMIT 2"
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


def _read(name: str, stem: str, scan: _Scan[_T], maybe_live: bool) -> _T:
    with telemetry.span("statebackend.scan", session_id=stem, path=name), os_error(name):
        try:
            before = os.lstat(name)
        except FileNotFoundError:
            if (left := describe_leftover(Path(name))) is not None:
                raise SessionUnreadable(Path(name), left) from None
            raise _Gone from None
        if not stat.S_ISREG(before.st_mode):
            raise irregular_file_error(Path(name), before)
        if before.st_nlink > 1:
            refuse_unfinished(Path(name))
        if is_session_id(stem) is None:
            raise SessionUnreadable(Path(name), _NOT_AN_ID)
        if before.st_size < _MIN_DATABASE_BYTES:
            # SQLite takes an empty file for an empty database, and deletes its log.
            raise SessionDamaged(Path(name), (f"{before.st_size} bytes, no whole database",))
        live = maybe_live and claim.writer_of(Path(name)) is not None
        try:
            return _read_quiet(name, stem, scan, _Marks(live, scan.reported(stem, before)), before)
        except _Changed:
            return _read_shared(Path(name), stem, scan, _Marks(live, True))


class _Marks(NamedTuple):
    """What is known of a session beside its file: a living writer, and maybe a report."""

    live: bool
    reported: bool


def _read_quiet(name: str, stem: str, scan: _Scan[_T], marks: _Marks, before: os.stat_result) -> _T:
    with open_files.mutex():
        if (
            not open_files.is_untouched(stem, before)
            or time.time_ns() - _newest(before) < _GRAIN_NS
        ):
            raise _Changed
        failure = None
        try:
            result = scan.quiet(name, stem, marks, before.st_size)
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


class _Scan(Generic[_T]):
    """What reads the files, and two connections for the quiet ones: making one for each takes long.

    Between two files they hold none open, so they may change threads and outlive a fork.
    """

    def __init__(self, read: Reader[_T], listed: Listing) -> None:
        self.read = read
        self._listed = listed
        self.several = False  # one file alone is read faster by a connection of its own
        self._driver: sqlite3.Connection | None = None
        self._memory: sqlite3.Connection | None = None
        self._image = bytearray(_IMAGE_BYTES)
        self._schema: bytes | None = None  # that of the statements compiled for ``_memory``

    def reported(self, stem: str, found: os.stat_result) -> bool:
        """Tell whether a report of a recovery may exist; one since the listing changed the file."""
        listed = self._listed
        return stem in listed.reported or _newest(found) > listed.at_ns - _GRAIN_NS

    def quiet(self, name: str, stem: str, marks: _Marks, size: int) -> _T:
        """Read one file that nobody changes now."""
        if self.several:
            way = self._from_memory if size <= _IMAGE_BYTES else self._attached
            done = False
            try:
                # Whatever is odd about the file is told by a connection of its own, below.
                with suppress(sqlite3.Error, UnicodeDecodeError):
                    result = way(name, stem, marks, size)
                    done = True
                    return result
            finally:
                if not done:
                    self.close()
        check_bytes(name, size)
        return _query(name, IMMUTABLE, stem, self, marks)

    def _from_memory(self, name: str, stem: str, marks: _Marks, size: int) -> _T:
        """Read a small file whole, and let SQLite take the bytes for a database in memory."""
        with open(name, "rb", buffering=0) as file:
            read = file.readinto(self._image)
        check_head(name, self._image[:100], size)
        if self._image[_FORMATS] == _WRITE_AHEAD:
            self._image[_FORMATS] = _NO_LOG  # a database in memory can have none
        schema = _schema_of(self._image)
        if self._memory is None or schema is None or schema != self._schema:
            self.close()
            self._memory = _connect_in_memory()
            self._schema = schema
        self._memory.deserialize(memoryview(self._image)[:read])
        return self.read(self._memory, _summary(self._memory, name, stem, marks))

    def _attached(self, name: str, stem: str, marks: _Marks, size: int) -> _T:
        """Attach the file to a connection for this reading."""
        check_bytes(name, size)
        if self._driver is None:
            self._driver = _connect_in_memory()
        self._driver.execute("ATTACH ? AS quiet", (sqlite_uri(name, IMMUTABLE),))
        result = self.read(self._driver, _summary(self._driver, name, stem, marks))
        self._driver.execute("DETACH quiet")
        return result

    def close(self) -> None:
        """Close the connections, and with them a file that is still attached."""
        for driver in (self._driver, self._memory):
            if driver is not None:
                driver.close()
        self._driver = self._memory = None


def _schema_of(image: bytearray) -> bytes | None:
    """Return what decides how a statement is compiled: the header's part of it, and page 1.

    None when the schema takes more than that page. SQLite itself keeps compiled statements for the
    next image whose schema has the same number, though its tables may lie elsewhere; to compile
    them anew, which parses the schema, takes half of the time of a small file.
    """
    if image[_PAGE_1_KIND] != _LEAF:
        return None
    size = page_size_of(image)
    return None if size is None else bytes(image[16:24] + image[40:60] + image[_PAGE_1_KIND:size])


def _connect_in_memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", uri=True, isolation_level=None, check_same_thread=False)


def _read_shared(path: Path, stem: str, scan: _Scan[_T], marks: _Marks) -> _T:
    check_sidecars(path)
    with open_files.untouched(path) as alone:
        if alone:  # before SQLite makes or changes a sidecar, or rolls a journal back into the file
            page_size = read_header(path).page_size
            if not marks.live:
                check_wal(path, page_size)
    with checked_read_mode(path) as mode, open_files.OpenFile(path):
        return _query(str(path), mode, stem, scan, marks)


def _query(name: str, mode: str, stem: str, scan: _Scan[_T], marks: _Marks) -> _T:
    driver = None
    try:
        driver = sqlite3.connect(
            sqlite_uri(name, mode),
            uri=True,
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
            cached_statements=0,  # no statement comes twice, and making the cache takes time
        )
        if mode == "mode=rw":
            driver.execute("PRAGMA query_only = ON")
        (version,) = driver.execute("PRAGMA user_version").fetchone()
        check_version(Path(name), version)
        return scan.read(driver, _summary(driver, name, stem, marks))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise read_error(Path(name), error) from error
    finally:
        if driver is not None:
            driver.close()


def _summary(driver: sqlite3.Connection, name: str, stem: str, marks: _Marks) -> SessionInfo:
    """Refuse what opening refuses, above all a file under another id: it would count twice."""
    driver.text_factory = str
    found = driver.execute(_SUMMARY).fetchall()
    if len(found) != 1:
        number = "more than one row" if found else "no row"
        raise SessionDamaged(Path(name), (f"session_meta holds {number}",))
    if found[0][0] is None:
        raise SessionDamaged(Path(name), ("session_meta holds no id",))
    for column, value in zip(_META, found[0], strict=False):
        check_meta_value(name, column, value)
    if found[0][0] != stem:
        raise misnamed_file_error(Path(name), found[0][0])
    driver.text_factory = rows.text  # a row of another table does not flag the session
    lost = marks.reported and has_lost_rows(name)
    return rows.session_info(found[0], live=marks.live, incomplete=lost)


def claimed(directory: Path) -> frozenset[str]:
    """Return the stems that have a lock file: only those can have a living writer."""
    try:
        names = os.listdir(SessionFiles(directory / ("x" + SUFFIX)).lock.parent)
    except OSError:
        return frozenset()
    return frozenset(name.removesuffix(".lock") for name in names)


def _newest(found: os.stat_result) -> int:
    return max(found.st_mtime_ns, found.st_ctime_ns)


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
