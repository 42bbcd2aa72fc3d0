"""The report on one session file: all that a person should know of it, and nothing changed.

SQLite's own check sees broken pages, indexes and NULLs. It does not see rows that break the rules
of a session, counters that were set back, or rows that went missing.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from pathlib import Path

from statebackend import telemetry
from statebackend.errors import SchemaTooNew, SessionDamaged, SessionNotFound, SessionUnreadable
from statebackend.files import claim, header, open_files, recovery_reports
from statebackend.files.paths import SUFFIX, SessionFiles, sqlite_uri
from statebackend.schema import fingerprint, migrate
from statebackend.schema.fingerprint import Fact, Fingerprint
from statebackend.schema.migrate import Chain
from statebackend.sqlite import engine, integrity, wal_check
from statebackend.sqlite.faults import os_error, primary_code, read_error
from statebackend.values.ids import is_session_id
from statebackend.values.recorded import SCHEMA_VERSION
from statebackend.values.reports import Finding, Severity
from statebackend.values.tables import TABLES
from statebackend.verifying import row_checks

_GRAIN_NS = 100_000_000
"""Two changes of a file within this time may carry the same time."""
_NO_SESSION = (
    "its name is not a session id (a ULID: 26 upper-case characters), so it cannot be opened: give "
    "it the id that it holds for a name, or move it out of this folder"
)
_Check = Callable[[sqlite3.Connection], Iterable[Finding]]


def verify_file(path: Path) -> tuple[Finding, ...]:
    """Return all that is wrong with the session file *path*, or good to know of it.

    Changes nothing, and may be called while a writer has the file open. At most 100 findings of a
    kind. Raises :class:`SessionNotFound`, and the storage errors, which are never damage.
    """
    with (
        os_error(path),
        telemetry.span("statebackend.report", session_id=path.stem, path=str(path)),
    ):
        found = list(_of_names(path))
        if not _stops(found):
            found += _of_bytes(path)
        if not _stops(found):
            found += _of_content(path)
        return tuple(dict.fromkeys(found))


def _stops(found: Sequence[Finding]) -> bool:
    """Tell whether SQLite must not be let near the file, or could not make sense of it."""
    return any(finding.what in _STOPPING for finding in found)


_STOPPING = {"file", "sidecar", "unfinished", "header", "log", "version"}


def _of_names(path: Path) -> Iterator[Finding]:
    try:
        found = header.check_regular(path)
        if found is None and (left := header.describe_leftover(path)) is not None:
            raise SessionUnreadable(path, left)
    except SessionUnreadable as error:
        yield Finding(severity="problem", what="file", text=error.problem)
        return
    if found is None:
        raise SessionNotFound(path.name.removesuffix(SUFFIX), path.parent)
    if is_session_id(path.name.removesuffix(SUFFIX)) is None:
        yield Finding(severity="problem", what="file", text=_NO_SESSION)
        return
    try:
        header.check_sidecars(path)
    except SessionUnreadable as error:
        yield Finding(severity="problem", what="sidecar", text=error.problem)
    try:
        header.refuse_unfinished(path)
    except SessionDamaged as error:
        yield from _damage("unfinished", error)
        return
    if found.st_nlink > 1:
        yield Finding(
            severity="problem",
            what="link",
            text="has a second name (a hard link), under which it could be written as well",
            count=found.st_nlink - 1,
        )
    yield from _of_rights(path)


def _of_rights(path: Path) -> Iterator[Finding]:
    for ending in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(os.lstat(f"{path}{ending}").st_mode)
            if mode & 0o077:
                text = f"others may open {path.name}{ending} (mode {mode:04o}); chmod 600 it"
                yield Finding(severity="problem", what="rights", text=text)


def _of_bytes(path: Path) -> list[Finding]:
    """Look at the header and the log, unless a connection of this process is on the file."""
    with open_files.untouched(path) as alone:
        if not alone:
            return []
        try:
            page_size = header.read_header(path).page_size
        except SessionDamaged as error:
            return _damage("header", error)
        except (SchemaTooNew, SessionUnreadable) as error:
            return [Finding(severity="problem", what="version", text=error.problem)]
        try:
            if claim.writer_of(path) is None:
                wal_check.check_wal(path, page_size)
        except SessionDamaged as error:
            return _damage("log", error)
    return []


def _damage(what: str, error: SessionDamaged) -> list[Finding]:
    return [Finding(severity="damage", what=what, text=text) for text in error.findings]


def _of_content(path: Path) -> list[Finding]:
    before = _quiet(path)
    if before is not None:
        found = _read(path, _immutable)
        # Half of a change by a writer that has come meanwhile can look like anything.
        if not found or (_quiet(path) == before and time.time_ns() - max(before[2:]) > _GRAIN_NS):
            return found
    return _read(path, _shared)


def _quiet(path: Path) -> tuple[int, ...] | None:
    """Return what tells a change of a file that nobody writes; None when somebody may."""
    if claim.writer_of(path) or header.has_wal(path) or SessionFiles(path).journal.exists():
        return None
    seen = path.stat()
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


@contextmanager
def _immutable(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect as to a file that never changes: no lock, no sidecar, no change of any kind."""
    driver = sqlite3.connect(sqlite_uri(path, "mode=ro&immutable=1"), uri=True)
    try:
        yield driver
    finally:
        driver.close()


@contextmanager
def _shared(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect as a reader beside a writer."""
    connection = engine.connect_for_reading(path)
    try:
        driver = engine.driver_of(connection)
        # It refuses the tables that pragmas are read as. All statements here only read.
        driver.set_authorizer(None)
        yield driver
    finally:
        engine.close_reader(connection, path)


def _read(
    path: Path, connect: Callable[[Path], AbstractContextManager[sqlite3.Connection]]
) -> list[Finding]:
    with open_files.OpenFile(path):
        try:
            with connect(path) as driver:
                return list(_of_connection(driver, path))
        except sqlite3.Error as error:
            return _unreadable(path, error)


def _of_connection(driver: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    try:
        integrity.check_connection(driver, path, full=True, references=True)
    except SchemaTooNew as error:
        yield Finding(severity="problem", what="version", text=error.problem)
        return
    except SessionDamaged as error:
        yield from _damage("integrity", error)
    except SessionUnreadable as error:
        yield Finding(severity="problem", what="session", text=error.problem)
    version = migrate.user_version(driver)
    driver.text_factory = partial(str, encoding="utf-8", errors="replace")  # comments may be broken
    if 0 < version < SCHEMA_VERSION:
        text = f"schema version {version}; opening it brings it to {SCHEMA_VERSION}"
        yield Finding(severity="note", what="version", text=text)
    shape = _checked(driver, path, lambda driver: _of_shape(driver, version))
    yield from shape
    driver.text_factory = bytes
    for check in row_checks.all_of(recovery_reports.read_of(path)):
        yield from _checked(driver, path, check, reshaped=bool(shape))


def _checked(
    driver: sqlite3.Connection, path: Path, check: _Check, *, reshaped: bool = False
) -> list[Finding]:
    try:
        return list(check(driver))
    except TypeError:
        if not reshaped:
            raise
        return []  # a column is of another type, which has been told
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if reshaped and primary_code(error) == sqlite3.SQLITE_ERROR:
            return []  # a column or table that it asks for is not there, which has been told
        return _unreadable(path, error)


def _unreadable(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> list[Finding]:
    typed = read_error(path, error)
    if not isinstance(typed, SessionDamaged):
        raise typed from error
    return _damage("unreadable", typed)


def _of_shape(driver: sqlite3.Connection, version: int) -> Iterator[Finding]:
    """Compare the tables with those that the revisions make; what is missing has been told."""
    expected = _expected(migrate.SESSIONS, version if version > 0 else SCHEMA_VERSION)
    try:
        found = fingerprint.of_connection(driver)
    except TypeError:  # of a table that it lists, SQLite knows nothing
        yield Finding(severity="damage", what="shape", text="the list of tables contradicts itself")
        return
    missing = TABLES - {fact[0] for fact in found if fact[1:3] == ("is", "table")}
    expected = frozenset(fact for fact in expected if _table_of(fact, expected) not in missing)
    yield from _limited("problem", "shape", fingerprint.differences(expected, found))


def _table_of(fact: Fact, facts: Fingerprint) -> str:
    """Return the table that the object of *fact* belongs to."""
    return next(str(each[3]) for each in facts if each[:2] == (fact[0], "is"))


@cache
def _expected(chain: Chain, version: int) -> Fingerprint:
    driver = sqlite3.connect(":memory:")
    try:
        driver.deserialize(migrate.schema_image(Chain(chain.versions, version)))
        return fingerprint.of_connection(driver)
    finally:
        driver.close()


def _limited(severity: Severity, what: str, texts: Sequence[str]) -> Iterator[Finding]:
    """Return a finding for each text, and one for all that are too many."""
    for text in texts[: integrity.MAX_FINDINGS - 1]:
        yield Finding(severity=severity, what=what, text=text)
    if left := texts[integrity.MAX_FINDINGS - 1 :]:
        more = f" (and {len(left) - 1:,} more)" if len(left) > 1 else ""
        yield Finding(severity=severity, what=what, text=f"{left[0]}{more}", count=len(left))
