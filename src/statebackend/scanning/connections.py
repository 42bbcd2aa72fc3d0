"""The SQLite connections of a scan, and the summary that each of them reads first."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from statebackend.errors import SessionDamaged
from statebackend.files.header import (
    check_bytes,
    check_head,
    check_meta_value,
    check_version,
    has_lost_rows,
    misnamed_file_error,
    page_size_of,
)
from statebackend.files.paths import sqlite_uri
from statebackend.sqlite.faults import read_error
from statebackend.sqlite.read_mode import IMMUTABLE
from statebackend.values import rows
from statebackend.values.recorded import SessionInfo

_T = TypeVar("_T")
Reader = Callable[[sqlite3.Connection, SessionInfo], _T]
"""Reads one open file, whose summary has been read already; after an error, perhaps once more."""

# Up to here, reading a file whole takes less time than SQLite's opening of it.
_IMAGE_BYTES = 128 * 1024 if hasattr(sqlite3.Connection, "deserialize") else 0
# The file format versions in the header: of a database with a WAL, and of one without.
_FORMATS = slice(18, 20)
_WAL_FORMATS, _JOURNAL_FORMATS = b"\2\2", b"\1\1"
_PAGE_1_KIND, _LEAF = 100, 13
_BUSY_TIMEOUT_S = 5.0
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
"""The columns that :func:`statebackend.values.rows.cost_totals` takes, over ``cost_ledger``."""


class Surroundings(NamedTuple):
    """What is known of a session beside its file: a living writer, and maybe a report."""

    live: bool
    may_be_reported: bool


class ImmutableReader(Generic[_T]):
    """Reads files that nobody changes, over two connections: making one for each takes long.

    Between two files neither has a file open, so they may change threads and outlive a fork.
    """

    def __init__(self, read: Reader[_T]) -> None:
        self.several = False  # a single file is read faster over a connection of its own
        self._read = read
        self._driver: sqlite3.Connection | None = None
        self._memory: sqlite3.Connection | None = None
        self._image = bytearray(_IMAGE_BYTES)
        self._schema: bytes | None = None  # that of the statements compiled for ``_memory``

    def read(self, name: str, stem: str, surroundings: Surroundings, size: int) -> _T:
        """Read one file of *size* bytes that nobody changes now."""
        if self.several:
            read = self._read_image if size <= _IMAGE_BYTES else self._read_attached
            done = False
            try:
                # An error is left to a connection of the file's own, below, which finds its cause.
                with suppress(sqlite3.Error, UnicodeDecodeError):
                    result = read(name, stem, surroundings, size)
                    done = True
                    return result
            finally:
                if not done:
                    self.close()
        check_bytes(name, size)
        return query(name, IMMUTABLE, stem, self._read, surroundings)

    def _read_image(self, name: str, stem: str, surroundings: Surroundings, size: int) -> _T:
        """Read a small file whole, and give SQLite the bytes as a database in memory."""
        with open(name, "rb", buffering=0) as file:
            length = file.readinto(self._image)
        check_head(name, self._image[:100], size)
        if self._image[_FORMATS] == _WAL_FORMATS:
            self._image[_FORMATS] = _JOURNAL_FORMATS  # a database in memory cannot have a WAL
        schema = _schema_of(self._image)
        if self._memory is None or schema is None or schema != self._schema:
            self.close()
            self._memory = _connect_in_memory()
            self._schema = schema
        self._memory.deserialize(memoryview(self._image)[:length])
        return self._read(self._memory, _read_info(self._memory, name, stem, surroundings))

    def _read_attached(self, name: str, stem: str, surroundings: Surroundings, size: int) -> _T:
        """Attach the file to a connection for this reading."""
        check_bytes(name, size)
        if self._driver is None:
            self._driver = _connect_in_memory()
        self._driver.execute("ATTACH ? AS quiet", (sqlite_uri(name, IMMUTABLE),))
        result = self._read(self._driver, _read_info(self._driver, name, stem, surroundings))
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
    next image whose schema has the same number, though its tables may lie elsewhere. Compiling them
    anew, which parses the schema, takes half of the time of a small file.
    """
    if image[_PAGE_1_KIND] != _LEAF:
        return None
    size = page_size_of(image)
    return None if size is None else bytes(image[16:24] + image[40:60] + image[_PAGE_1_KIND:size])


def _connect_in_memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", uri=True, isolation_level=None, check_same_thread=False)


def query(
    name: str,
    mode: str,
    stem: str,
    read: Reader[_T],
    surroundings: Surroundings,
) -> _T:
    """Read the file *name* over a connection of its own."""
    driver = None
    try:
        driver = sqlite3.connect(
            sqlite_uri(name, mode),
            uri=True,
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
            cached_statements=0,  # no statement is repeated, and making the cache takes time
        )
        if mode == "mode=rw":
            driver.execute("PRAGMA query_only = ON")
        (version,) = driver.execute("PRAGMA user_version").fetchone()
        check_version(Path(name), version)
        return read(driver, _read_info(driver, name, stem, surroundings))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise read_error(Path(name), error) from error
    finally:
        if driver is not None:
            driver.close()


def _read_info(
    driver: sqlite3.Connection, name: str, stem: str, surroundings: Surroundings
) -> SessionInfo:
    """Refuse what opening refuses, above all a file under another id: it would count twice."""
    driver.text_factory = str
    summaries = driver.execute(_SUMMARY).fetchall()
    if len(summaries) != 1:
        number = "more than one row" if summaries else "no row"
        raise SessionDamaged(Path(name), (f"session_meta holds {number}",))
    (summary,) = summaries
    if summary[0] is None:
        raise SessionDamaged(Path(name), ("session_meta holds no id",))
    for column, value in zip(_META, summary, strict=False):
        check_meta_value(name, column, value)
    if summary[0] != stem:
        raise misnamed_file_error(Path(name), summary[0])
    driver.text_factory = rows.text  # a row of another table does not flag the session
    lost_rows = surroundings.may_be_reported and has_lost_rows(name)
    return rows.session_info(summary, live=surroundings.live, incomplete=lost_rows)
