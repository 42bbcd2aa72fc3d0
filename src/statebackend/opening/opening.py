"""Creating and opening one session file: the order of the steps is what keeps it safe.

Each step has its reason beside it; moving one breaks a guarantee.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from statebackend import telemetry
from statebackend.errors import (
    SchemaOutdated,
    SessionDamaged,
    SessionExists,
    SessionLocked,
    SessionNotFound,
    SessionUnreadable,
    StorageError,
)
from statebackend.files import claim, header, open_files, read_ahead
from statebackend.files.claim import Claim
from statebackend.files.open_files import OpenFile
from statebackend.files.paths import (
    SUFFIX,
    SessionFiles,
    fsync_directory,
    link_new,
    make_private_directory,
    write_private,
)
from statebackend.files.sqlite_locks import SqliteLocks
from statebackend.reading.view import SessionView
from statebackend.recording.session import Session
from statebackend.recovery import recover
from statebackend.repositories.statements import insert_text
from statebackend.schema import migrate, models
from statebackend.sqlite import authorizer, engine, integrity
from statebackend.sqlite.faults import os_error
from statebackend.sqlite.wal_check import check_wal
from statebackend.values.recorded import SCHEMA_VERSION

_Opened = TypeVar("_Opened", Session, SessionView)

_MIGRATION_PATIENCE_S = 2.0
_INSERT_META = insert_text(models.SessionMeta)


def create(path: Path, meta_row: tuple[str | int | None, ...]) -> Session:
    """Create the session file *path* with its one row of ``session_meta``, and open it.

    The file is built whole under another name and then linked to its own, so that a session
    either is or is not. Raises :class:`SessionExists`, :class:`SessionLocked` and the storage
    errors.
    """
    with os_error(path), _span("create", path):
        make_private_directory(path.parent)
        held = claim.acquire(path)
        try:
            if os.path.lexists(path) or header.describe_leftover(path) is not None:
                raise SessionExists(path.name.removesuffix(SUFFIX), path)
            _build(path, meta_row)
            with _unmade_on_error(path):
                fsync_directory(path.parent)
                return _opened(path, lambda file: _writing(path, file, held))
        except BaseException:
            held.release()
            raise


def open_for_writing(path: Path) -> Session:
    """Open an existing session as its sole writer; a damaged one is recovered first.

    The session's ``recovery`` is then the report (specification, "Corruption recovery"). Raises
    :class:`SessionNotFound`, :class:`SchemaTooNew`, :class:`SessionLocked`,
    :class:`SessionUnreadable`, :class:`MigrationFailed` and the storage errors; the file is then as
    it was, but for an unreadable one of which nothing could be saved: that is kept as ``.corrupt``.
    """
    return _open_for_writing(path, may_recover=True)


def open_undamaged(path: Path) -> Session:
    """Open an existing session as its sole writer; leave a damaged one as it is.

    Raises as :func:`open_for_writing` does, and :class:`SessionDamaged`: a recovery is not asked
    for.
    """
    return _open_for_writing(path, may_recover=False)


def bring_up(path: Path) -> None:
    """Migrate an existing session to the current version, and nothing else.

    Raises as :func:`open_undamaged` does.
    """
    open_undamaged(path).close()


def _open_for_writing(path: Path, *, may_recover: bool) -> Session:
    with os_error(path), _span("open", path):
        _find(path)
        claim.refuse_if_held_here(path)
        open_files.refuse_if_wal_is_gone(path)  # before the claim takes a dead writer's trace away
        with suppress(SessionDamaged):
            _look(path)  # a newer file is refused before even the claim touches the folder
        _check_writable(path)
        held = claim.acquire(path)
        try:
            _tidy(path)
            return _recovered(path, held) if may_recover else _checked(path, held)
        except BaseException:
            held.release()
            raise


def _recovered(path: Path, held: Claim) -> Session:
    """Check and open the file; recover a damaged one, and finish a recovery that was interrupted.

    Before anything of SQLite may write: opening and closing a damaged file read-write would fold
    its log in and take the evidence away.
    """
    if header.find_original(path) is not None:
        report = recover.recover(path)
    else:
        try:
            return _checked(path, held)
        except SessionDamaged as error:
            report = recover.recover(path, error.findings)
    _check_one_name(path)
    session = _opened(path, lambda file: _writing(path, file, held))
    session.recovery = report
    return session


def _checked(path: Path, held: Claim) -> Session:
    """Look at the bytes, let SQLite check them, and open; raise :class:`SessionDamaged`.

    Beside a log SQLite checks through a connection that only reads, so that closing it folds
    nothing in. Where there is none, the connection that will write does it before it may.
    """
    _check_one_name(path)
    with open_files.untouched(path) as alone:
        if alone:
            check_wal(path, header.read_header(path).page_size)
    _read_ahead(path)
    if not header.has_wal(path):
        return _opened(path, lambda file: _writing(path, file, held, check=True))
    with open_files.OpenFile(path):
        integrity.check_file(path, immutable=False)
    return _opened(path, lambda file: _writing(path, file, held))


def open_for_reading(path: Path, *, check: bool) -> SessionView:
    """Open an existing session for reading; without *check*, leave the integrity check out.

    A file of an older version is migrated first, as by :func:`open_for_writing`; where that is not
    possible now, :class:`SchemaOutdated` says why. Damage is reported, never repaired.
    """
    with os_error(path), _span("read", path):
        _find(path)
        header.refuse_unfinished(path)
        found = _look(path, log=check)
        if found is not None and 0 < found.user_version < SCHEMA_VERSION:
            _migrate_first(path, found.user_version)
        view = _opened(path, lambda file: _checked_reading(path, file, check=check))
        version = migrate.user_version(engine.driver_of(view._held.connection))  # noqa: SLF001
        if version < SCHEMA_VERSION:
            # The bytes of the log showed a migration whose commit was cut off by a loss of power.
            view.close()
            _migrate_first(path, version)
            view = _opened(path, lambda file: _checked_reading(path, file, check=check))
        return view


@contextmanager
def open_partial(path: Path) -> Iterator[SessionView]:
    """Open what can be saved of a damaged session for reading, out of a temporary folder.

    A sound one is opened as by :func:`open_for_reading`. Nothing changes beside *path*.
    """
    try:
        view = open_for_reading(path, check=True)
    except SessionDamaged as error:
        with TemporaryDirectory(prefix="statebackend-") as folder:
            report = recover.look(path, Path(folder), error.findings)
            with open_for_reading(Path(folder) / path.name, check=False) as view:
                view.recovery = report
                yield view
    else:
        with view:
            yield view


def _span(name: str, path: Path) -> AbstractContextManager[None]:
    session_id = path.name.removesuffix(SUFFIX)
    return telemetry.span(f"statebackend.{name}", session_id=session_id, path=str(path))


def _find(path: Path) -> None:
    if header.check_regular(path) is None:
        if (left := header.describe_leftover(path)) is not None:
            raise SessionUnreadable(path, left)
        raise SessionNotFound(path.name.removesuffix(SUFFIX), path.parent)
    header.check_sidecars(path)


def _check_writable(path: Path) -> None:
    for place in (path, path.parent, SessionFiles(path).wal, path.with_name(f"{path.name}-shm")):
        if _is_refused(place):
            raise StorageError(place, "cannot be written by this user; change its rights, or read")


def _is_refused(place: Path) -> bool:
    """Tell whether a file may not be written; others may make and remove sidecars meanwhile."""
    if os.access(place, os.W_OK):
        return False
    with suppress(FileNotFoundError):
        before = place.lstat()
        if not os.access(place, os.W_OK):
            after = place.lstat()
            return (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns)
    return False


def _check_one_name(path: Path) -> None:
    # Each name would have a claim and a log of its own, and so a writer of its own.
    if path.stat().st_nlink > 1:
        header.refuse_unfinished(path)
        raise SessionUnreadable(
            path,
            "has a second name (a hard link), under which it could be written as well; copy it",
        )


def _look(path: Path, *, log: bool = False) -> header.Header | None:
    """Look at the bytes, unless a connection of this process is on the file; also at its *log*."""
    with open_files.untouched(path) as alone:
        if not alone:
            return None
        found = header.read_header(path)
        if log and claim.writer_of(path) is None:
            check_wal(path, found.page_size)
    if log:
        _read_ahead(path)
    return found


def _read_ahead(path: Path) -> None:
    """Fetch a large file that is not in memory, in pieces, so that nobody waits long."""
    position: int | None = 0
    while position is not None:
        with open_files.untouched(path) as alone:
            position = read_ahead.read_ahead(path, position) if alone else None


def _opened(path: Path, connect: Callable[[OpenFile], _Opened]) -> _Opened:
    file = open_files.OpenFile(path)
    try:
        return connect(file.open())
    except BaseException:
        file.close()
        raise


def _writing(path: Path, file: OpenFile, held: Claim, *, check: bool = False) -> Session:
    whole = partial(integrity.check_connection, path=path, full=True, references=True)
    connection = engine.connect_for_writing(path, whole if check else None)
    try:
        if migrate.user_version(engine.driver_of(connection)) != SCHEMA_VERSION:
            migrate.upgrade(connection, path)
        authorizer.allow_appends_only(engine.driver_of(connection))
        return Session(path, file, connection, claim=held, locks=SqliteLocks(path, file))
    except BaseException:
        engine.close(connection)
        raise


def _checked_reading(path: Path, file: OpenFile, *, check: bool) -> SessionView:
    connection = engine.connect_for_reading(path)
    try:
        integrity.check_connection(engine.driver_of(connection), path, full=check)
        return SessionView(path, file, connection)
    except BaseException:
        engine.close(connection)
        raise


def _migrate_first(path: Path, found_version: int) -> None:
    patient_until = time.monotonic() + _MIGRATION_PATIENCE_S
    while True:
        try:
            bring_up(path)
        except (SessionLocked, StorageError) as error:
            # Another reader may be migrating it at this moment; a writer keeps it for longer.
            if isinstance(error, StorageError) or time.monotonic() > patient_until:
                raise SchemaOutdated(path, found_version, SCHEMA_VERSION, str(error)) from error
            time.sleep(0.02)
        else:
            return


def _tidy(path: Path) -> None:
    """Take away what a create that was killed left; the claim says that none is at work."""
    with suppress(FileNotFoundError):
        SessionFiles(path).creating.unlink()


def _build(path: Path, meta_row: tuple[str | int | None, ...]) -> None:
    building = SessionFiles(path).creating
    _tidy(path)
    try:
        write_private(building, _image(meta_row))
        link_new(building, path)
    except BaseException as error:
        with suppress(OSError):
            building.unlink()
        if isinstance(error, FileExistsError):
            raise SessionExists(path.name.removesuffix(SUFFIX), path) from None
        raise
    with _unmade_on_error(path):
        _tidy(path)


@contextmanager
def _unmade_on_error(path: Path) -> Iterator[None]:
    """Take a session away that its creator could not be given; nobody else can have written it."""
    try:
        yield
    except BaseException:
        for ending in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{path}{ending}").unlink()
        raise


def _image(meta_row: tuple[str | int | None, ...]) -> bytes:
    """Return the bytes of a new session file: the migrated schema and its one row, in WAL mode."""
    driver = sqlite3.connect(":memory:", isolation_level=None)
    try:
        driver.deserialize(migrate.schema_image(migrate.SESSIONS))
        driver.execute(_INSERT_META, meta_row)
        image = bytearray(driver.serialize())
    finally:
        driver.close()
    image[18:20] = b"\2\2"  # the header's write and read version: 2 says WAL
    return bytes(image)
