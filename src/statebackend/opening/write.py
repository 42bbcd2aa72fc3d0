"""Opening one session for writing: the order of the steps is what keeps the file safe.

Opening for reading shares the checks of the names and of the bytes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from statebackend import telemetry
from statebackend.errors import (
    SessionDamaged,
    SessionUnreadable,
    StorageError,
)
from statebackend.files import claim, header, open_files, read_ahead
from statebackend.files.claim import Claim
from statebackend.files.header import Header
from statebackend.files.paths import SessionFiles
from statebackend.files.sqlite_locks import SqliteLocks
from statebackend.recording.session import Session
from statebackend.recovery.recover import recover
from statebackend.schema import migrate
from statebackend.sqlite import authorizer, engine, integrity, wal_check
from statebackend.sqlite.faults import os_error
from statebackend.values.recorded import SCHEMA_VERSION


def open_for_writing(path: Path, *, may_recover: bool = True) -> Session:
    """Open an existing session as its sole writer; a damaged one is recovered first.

    The session's ``recovery`` is then the report (specification, "Corruption recovery"). Raises
    :class:`SessionNotFound`, :class:`SchemaTooNew`, :class:`SessionLocked`,
    :class:`SessionUnreadable`, :class:`MigrationFailed` and the storage errors. The file is then as
    it was, except one of which nothing could be saved: that is kept as ``.corrupt``. Without
    *may_recover*, a damaged file stays as it is and :class:`SessionDamaged` is raised.
    """
    with os_error(path), telemetry.span("statebackend.open", session_id=path.stem, path=str(path)):
        header.find_session(path)
        claim.refuse_if_held_here(path)
        # Before the claim, whose release removes the lock file that a dead writer left.
        open_files.refuse_if_wal_is_gone(path)
        refuse_newer_version(path)
        check_permissions(path)
        held = claim.acquire(path)
        try:
            remove_unfinished_create(path)
            try:
                refuse_second_name(path)
                check_header_and_wal(path, claimed=True)
                read_file_ahead(path)
                if has_wal := header.has_wal(path):
                    check_integrity(path)
                # Migrates an older file, and from then on allows appends only.
                session = connect(path, held, check=not has_wal)
            except SessionDamaged as damage:
                if not may_recover:
                    raise
                report = recover(path, damage.findings)
                refuse_second_name(path)
                session = connect(path, held, check=False)
                session.recovery = report
        except BaseException:
            held.release()
            raise
        return session


def check_header(path: Path) -> Header | None:
    """Read and check the header's bytes, before SQLite does; None if this process has it open.

    Raises :class:`SchemaTooNew`, :class:`SessionDamaged` and :class:`SessionUnreadable`.
    """
    with open_files.untouched(path) as untouched:
        return header.read_header(path) if untouched else None


def check_header_and_wal(path: Path, *, claimed: bool) -> Header | None:
    """Read and check the header's bytes and the WAL's frames; None if this process has it open.

    SQLite ignores the frames behind a broken one without an error, and applies another file's WAL.
    *claimed* says that the caller holds the claim. Otherwise the WAL is left out while a writer has
    the session, since its frames change. Raises as :func:`check_header` does.
    """
    with open_files.untouched(path) as untouched:
        if not untouched:
            return None
        file_header = header.read_header(path)
        if claimed or claim.writer_of(path) is None:
            wal_check.check_wal(path, file_header.page_size)
        return file_header


def read_file_ahead(path: Path) -> None:
    """Read a large file that is not in the page cache, which makes the integrity check faster.

    In pieces, so that other threads that open or close sessions do not wait for all of it.
    """
    position: int | None = 0
    while position is not None:
        with open_files.untouched(path) as untouched:
            position = read_ahead.read_ahead(path, position) if untouched else None


def refuse_newer_version(path: Path) -> None:
    """Raise :class:`SchemaTooNew` before anything in the folder changes, even a lock file (SB-31).

    Damage is left to the check under the claim: until then a writer may be changing the file.
    """
    with suppress(SessionDamaged):
        check_header(path)


def check_permissions(path: Path) -> None:
    """Raise :class:`StorageError` if this user may not write the folder, the file or a sidecar.

    SQLite would open such a file for reading only, and fail at the first append.
    """
    files = SessionFiles(path)
    for place in (path, path.parent, files.wal, files.shm):
        if _is_write_protected(place):
            raise StorageError(
                place, "cannot be written by this user; change its permissions, or read the session"
            )


def _is_write_protected(place: Path) -> bool:
    """Return whether *place* may not be written; others may create or remove it at any time."""
    if os.access(place, os.W_OK):
        return False
    with suppress(FileNotFoundError):
        before = place.lstat()
        if not os.access(place, os.W_OK):
            after = place.lstat()
            return (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns)
    return False


def remove_unfinished_create(path: Path) -> None:
    """Remove the file that a killed create was building. The claim shows that none is at work."""
    SessionFiles(path).creating.unlink(missing_ok=True)


def refuse_second_name(path: Path) -> None:
    """Refuse a file with two names (hard links): each has its own claim and WAL, so two writers.

    Raises :class:`SessionDamaged` while a recovery is unfinished, which gives the original a second
    name, and :class:`SessionUnreadable` otherwise. Precedes every check of the content: an
    unfinished recovery may have removed the WAL, and the file would pass without it.
    """
    if path.stat().st_nlink > 1:
        header.refuse_unfinished(path)
        raise SessionUnreadable(
            path,
            "has a second name (a hard link), under which it could be written as well; remove one",
        )


def check_integrity(path: Path) -> None:
    """Run the integrity check of a file with a WAL, through a connection that only reads.

    Closing one that may write would checkpoint the WAL into a damaged file and delete it. Without a
    WAL, :func:`connect` checks on the connection that will write, before it may. Raises
    :class:`SessionDamaged`, :class:`SessionUnreadable`, :class:`SchemaTooNew` and the storage
    errors, which are never damage.
    """
    with open_files.OpenFile(path):
        integrity.check_file(path, immutable=False)


def connect(path: Path, held: Claim, *, check: bool) -> Session:
    """Connect to the session that *held* is the claim on; migrate it; allow only appends from then.

    WAL mode, ``synchronous=FULL`` and the rest are set, and read back, before the migration. The
    authorizer comes last, since it denies what a migration does. With *check*, the integrity check
    comes first, while the connection cannot write. Raises what the check raises,
    :class:`MigrationFailed`, :class:`StorageUnsupported` and the other storage errors.
    """
    run_check = partial(integrity.check_connection, path=path, full=True, references=True)
    file = open_files.OpenFile(path)
    connection = None
    try:
        file.open()
        connection = engine.connect_for_writing(path, run_check if check else None)
        driver = engine.driver_of(connection)
        if migrate.user_version(driver) != SCHEMA_VERSION:
            migrate.upgrade(connection, path)
        authorizer.allow_appends_only(driver)
        return Session(path, file, connection, claim=held, locks=SqliteLocks(path, file))
    except BaseException:
        if connection is not None:
            engine.close(connection)
        file.close()
        raise
