"""The report on one session file: everything wrong with it, and nothing changed.

SQLite's own check finds broken pages, indexes and NULLs. It does not find rows that break the rules
of a session, counters that were set back, or missing rows.
"""

from __future__ import annotations

import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path

from statebackend import telemetry
from statebackend.errors import SchemaTooNew, SessionDamaged, SessionNotFound, SessionUnreadable
from statebackend.files import claim, header, open_files, recovery_reports
from statebackend.files.paths import FileSignature, SessionFiles, sqlite_uri
from statebackend.schema import fingerprint, migrate
from statebackend.schema.fingerprint import Fact, Fingerprint
from statebackend.schema.migrate import Chain
from statebackend.sqlite import engine, integrity, wal_check
from statebackend.sqlite.faults import os_error, primary_code, read_error
from statebackend.values.ids import is_session_id
from statebackend.values.recorded import SCHEMA_VERSION
from statebackend.values.reports import Finding, FindingCode
from statebackend.values.tables import TABLES
from statebackend.verifying import row_checks
from statebackend.verifying.row_checks import problem

_GRAIN_NS = 100_000_000
"""Two changes of a file within this time may carry the same time."""
_NO_SESSION_ID = (
    "its name is not a session id (a ULID: 26 upper-case characters), so it cannot be opened: name "
    "it by the id that it holds, or move it out of this folder"
)
_STOPPING: set[FindingCode] = {"file", "sidecar", "unfinished", "header", "wal", "version"}
"""After these, SQLite must not open the file, or could make no sense of it."""
_Connect = Callable[[Path], AbstractContextManager[sqlite3.Connection]]
_Check = Callable[[sqlite3.Connection], Iterable[Finding]]


def verify_file(path: Path) -> tuple[Finding, ...]:
    """Return everything that is wrong with the session file *path*, or good to know about it.

    Changes nothing, and may be called while a writer has the file open. At most 100 findings a
    code. Raises :class:`SessionNotFound`, and the storage errors, which are never damage.
    """
    with (
        os_error(path),
        telemetry.span("statebackend.report", session_id=path.stem, path=str(path)),
    ):
        findings: list[Finding] = []
        for check in (_check_names, _check_bytes, _check_content):
            findings += check(path)
            if any(finding.what in _STOPPING for finding in findings):
                break
        return tuple(dict.fromkeys(findings))


def _damage(code: FindingCode, error: SessionDamaged) -> list[Finding]:
    return [Finding(severity="damage", what=code, text=text) for text in error.findings]


def _check_names(path: Path) -> Iterator[Finding]:
    try:
        status = header.check_regular(path)
        if status is None and (remains := header.describe_leftover(path)) is not None:
            raise SessionUnreadable(path, remains)
    except SessionUnreadable as error:
        yield problem("file", error.problem)
        return
    session_id = SessionFiles(path).session_id
    if status is None:
        raise SessionNotFound(session_id, path.parent)
    if is_session_id(session_id) is None:
        yield problem("file", _NO_SESSION_ID)
        return
    try:
        header.check_sidecars(path)
    except SessionUnreadable as error:
        yield problem("sidecar", error.problem)
    try:
        header.refuse_unfinished(path)
    except SessionDamaged as error:
        yield from _damage("unfinished", error)
        return
    if status.st_nlink > 1:
        text = "has a second name (a hard link), under which it could be written as well"
        yield problem("link", text, status.st_nlink - 1)
    yield from _check_permissions(path)


def _check_permissions(path: Path) -> Iterator[Finding]:
    files = SessionFiles(path)
    for file in (path, files.wal, files.shm, files.journal):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(file.lstat().st_mode)
            if mode & 0o077:
                text = f"other users may open {file.name} (mode {mode:04o}); chmod 600 it"
                yield problem("rights", text)


def _check_bytes(path: Path) -> list[Finding]:
    """Check the header and the WAL, unless a connection of this process is on the file."""
    with open_files.untouched(path) as untouched:
        if not untouched:
            return []
        try:
            page_size = header.read_header(path).page_size
        except SessionDamaged as error:
            return _damage("header", error)
        except (SchemaTooNew, SessionUnreadable) as error:
            return [problem("version", error.problem)]
        try:
            if claim.writer_of(path) is None:
                wal_check.check_wal(path, page_size)
        except SessionDamaged as error:
            return _damage("wal", error)
    return []


def _check_content(path: Path) -> list[Finding]:
    """Check on a connection without locks while nobody writes the file, else beside the writer."""
    before = _sign_unwritten(path)
    if before is not None:
        findings = _check_on(_connect_immutable, path)
        # The findings may come from a writer that changed the file during the check.
        age_ns = time.time_ns() - max(before.mtime_ns, before.ctime_ns)
        if not findings or (_sign_unwritten(path) == before and age_ns > _GRAIN_NS):
            return findings
    return _check_on(_connect_shared, path)


def _sign_unwritten(path: Path) -> FileSignature | None:
    """Return the signature of a file that nobody writes; None if somebody may."""
    if claim.writer_of(path) or header.has_wal(path) or SessionFiles(path).journal.exists():
        return None
    return FileSignature.of(path.stat())


@contextmanager
def _connect_immutable(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect as to a file that never changes: no lock, no sidecar, no change of any kind."""
    uri = sqlite_uri(path, "mode=ro&immutable=1")
    with closing(sqlite3.connect(uri, uri=True)) as driver:
        yield driver


@contextmanager
def _connect_shared(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect as a reader beside a writer."""
    connection = engine.connect_for_reading(path)
    try:
        driver = engine.driver_of(connection)
        # A reader's authorizer denies the pragma functions. All statements here only read.
        driver.set_authorizer(None)
        yield driver
    finally:
        engine.close_reader(connection, path)


def _check_on(connect: _Connect, path: Path) -> list[Finding]:
    with open_files.OpenFile(path):
        try:
            with connect(path) as driver:
                return list(_check_connection(driver, path))
        except sqlite3.Error as error:
            return _report_unreadable(path, error)


def _check_connection(driver: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    try:
        integrity.check_connection(driver, path, full=True, references=True)
    except SchemaTooNew as error:
        yield problem("version", error.problem)
        return
    except SessionDamaged as error:
        yield from _damage("integrity", error)
    except SessionUnreadable as error:
        yield problem("session", error.problem)
    version = migrate.user_version(driver)
    if 0 < version < SCHEMA_VERSION:
        text = f"schema version {version}; opening migrates it to {SCHEMA_VERSION}"
        yield Finding(severity="note", what="version", text=text)
    driver.text_factory = partial(str, encoding="utf-8", errors="replace")  # comments may be broken
    shape = _run_check(partial(_check_shape, version=version), driver, path)
    yield from shape
    driver.text_factory = bytes
    for check in row_checks.list_checks(recovery_reports.read_of(path)):
        yield from _run_check(check, driver, path, reshaped=bool(shape))


def _run_check(
    check: _Check, driver: sqlite3.Connection, path: Path, *, reshaped: bool = False
) -> list[Finding]:
    """Run one check; a broken page ends it, and is a finding."""
    # A *reshaped* file may lack what the check asks for, or have it in another type. That has been
    # reported.
    try:
        return list(check(driver))
    except TypeError:
        if not reshaped:
            raise
        return []
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if reshaped and primary_code(error) == sqlite3.SQLITE_ERROR:
            return []
        return _report_unreadable(path, error)


def _report_unreadable(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> list[Finding]:
    typed = read_error(path, error)
    if not isinstance(typed, SessionDamaged):
        raise typed from error
    return _damage("unreadable", typed)


def _check_shape(driver: sqlite3.Connection, *, version: int) -> Iterator[Finding]:
    """Compare the tables with those of the revisions, except missing ones, which are reported."""
    expected = _expect_schema(migrate.SESSIONS, version if version > 0 else SCHEMA_VERSION)
    try:
        actual = fingerprint.of_connection(driver)
    except TypeError:  # SQLite does not know a table that sqlite_schema lists
        yield Finding(severity="damage", what="shape", text="sqlite_schema contradicts itself")
        return
    missing = TABLES - {fact[0] for fact in actual if fact[1:3] == ("is", "table")}
    expected = frozenset(fact for fact in expected if _table_of(fact, expected) not in missing)
    yield from _limit_problems("shape", fingerprint.differences(expected, actual))


def _table_of(fact: Fact, facts: Fingerprint) -> str:
    """Return the table that the object of *fact* belongs to."""
    return next(str(each[3]) for each in facts if each[:2] == (fact[0], "is"))


@cache
def _expect_schema(chain: Chain, version: int) -> Fingerprint:
    with closing(sqlite3.connect(":memory:")) as driver:
        driver.deserialize(migrate.schema_image(Chain(chain.versions, version)))
        return fingerprint.of_connection(driver)


def _limit_problems(code: FindingCode, texts: Sequence[str]) -> Iterator[Finding]:
    """Return a finding for each of the first 99 texts, and one for all others."""
    for text in texts[: integrity.MAX_FINDINGS - 1]:
        yield problem(code, text)
    if others := texts[integrity.MAX_FINDINGS - 1 :]:
        more = f" (and {len(others) - 1:,} more)" if len(others) > 1 else ""
        yield problem(code, f"{others[0]}{more}", len(others))
