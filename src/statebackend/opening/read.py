"""Opening one session for reading, also while another process writes it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from statebackend import telemetry
from statebackend.errors import SchemaOutdated, SessionDamaged, SessionLocked, StorageError
from statebackend.files import header, open_files
from statebackend.opening import write
from statebackend.reading.view import SessionView
from statebackend.recovery.recover import salvage_into
from statebackend.schema import migrate
from statebackend.sqlite import engine, integrity
from statebackend.sqlite.faults import os_error
from statebackend.values.recorded import SCHEMA_VERSION

_MIGRATION_PATIENCE_S = 2.0
_RETRY_S = 0.02


def open_for_reading(path: Path, *, check: bool) -> SessionView:
    """Open an existing session for reading; without *check*, without WAL and integrity check.

    A file of an older version is migrated first, as by opening for writing. Where that is not
    possible now, :class:`SchemaOutdated` says why. Damage is :class:`SessionDamaged`; a reader
    never repairs.
    """
    with os_error(path), telemetry.span("statebackend.read", session_id=path.stem, path=str(path)):
        header.find_session(path)
        header.refuse_unfinished(path)
        if check:
            file_header = write.check_header_and_wal(path, claimed=False)
            write.read_file_ahead(path)
        else:
            file_header = write.check_header(path)
        if file_header is not None and 0 < file_header.user_version < SCHEMA_VERSION:
            migrate_first(path, file_header.user_version)
        try:
            return connect(path, check=check)
        except SchemaOutdated as error:
            # The WAL's bytes showed a migration whose commit a power loss had cut off.
            migrate_first(path, error.found_version)
            return connect(path, check=check)


@contextmanager
def open_partial(path: Path) -> Iterator[SessionView]:
    """Open what can be saved of a damaged session for reading, from a temporary folder.

    A sound one is opened as by :func:`open_for_reading`. Nothing changes beside *path*.
    """
    try:
        view = open_for_reading(path, check=True)
    except SessionDamaged as error:
        with TemporaryDirectory(prefix="statebackend-") as folder:
            report = salvage_into(path, Path(folder), error.findings)
            with open_for_reading(Path(folder) / path.name, check=False) as view:
                view.recovery = report
                yield view
    else:
        with view:
            yield view


def migrate_first(path: Path, found_version: int) -> None:
    """Migrate the file, of version *found_version*; wait while another process may be doing it.

    Raises :class:`SchemaOutdated` if a writer keeps the session for longer, or if the file cannot
    be written.
    """
    patient_until = time.monotonic() + _MIGRATION_PATIENCE_S
    while True:
        try:
            return write.open_for_writing(path, may_recover=False).close()
        except (SessionLocked, StorageError) as error:
            if isinstance(error, StorageError) or time.monotonic() > patient_until:
                raise SchemaOutdated(path, found_version, SCHEMA_VERSION, str(error)) from error
            time.sleep(_RETRY_S)


def connect(path: Path, *, check: bool) -> SessionView:
    """Connect to the session for reading and check version, tables and meta row.

    With *check*, the integrity check comes before that. Raises :class:`SchemaOutdated` if SQLite
    finds an older version than the bytes said, :class:`SessionDamaged`, :class:`SessionUnreadable`,
    :class:`SchemaTooNew` and the storage errors.
    """
    file = open_files.OpenFile(path)
    connection = None
    try:
        file.open()
        connection = engine.connect_for_reading(path)
        driver = engine.driver_of(connection)
        integrity.check_connection(driver, path, full=check)
        version = migrate.user_version(driver)
        if version < SCHEMA_VERSION:
            raise SchemaOutdated(path, version, SCHEMA_VERSION, "its migration was not committed")
        return SessionView(path, file, connection)
    except BaseException:
        if connection is not None:
            engine.close(connection)
        file.close()
        raise
