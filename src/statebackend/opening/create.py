"""Creating one session: the whole file is built under another name and then linked to its own."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from statebackend import telemetry
from statebackend.errors import SessionExists
from statebackend.files import claim, header
from statebackend.files.paths import (
    SessionFiles,
    fsync_directory,
    link_new,
    make_private_directory,
    write_private,
)
from statebackend.opening import write
from statebackend.recording.session import Session
from statebackend.repositories.statements import insert_text
from statebackend.schema import migrate, models
from statebackend.sqlite.faults import os_error

MetaRow = tuple[str | int | None, ...]
"""The values of ``session_meta``, in the order of its columns."""

_INSERT_META = insert_text(models.SessionMeta)


def create(path: Path, meta_row: MetaRow) -> Session:
    """Create the session file *path* with its one row of ``session_meta``, and open it.

    After any failure, also a kill, the session exists whole or not at all. Raises
    :class:`SessionExists`, :class:`SessionLocked` and the storage errors.
    """
    with (
        os_error(path),
        telemetry.span("statebackend.create", session_id=path.stem, path=str(path)),
    ):
        make_private_directory(path.parent)
        held = claim.acquire(path)
        try:
            refuse_taken_id(path)
            build_and_link(path, build_image(meta_row))
            try:
                write.remove_unfinished_create(path)
                fsync_directory(path.parent)
                return write.connect(path, held, check=False)
            except BaseException:
                remove_new_session(path)
                raise
        except BaseException:
            held.release()
            raise


def refuse_taken_id(path: Path) -> None:
    """Raise :class:`SessionExists` if a session has the id, or if only parts of one are there.

    SQLite would apply a WAL found beside the name to the new file.
    """
    if os.path.lexists(path) or header.describe_leftover(path) is not None:
        raise SessionExists(SessionFiles(path).session_id, path)


def build_image(meta_row: MetaRow) -> bytes:
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


def build_and_link(path: Path, image: bytes) -> None:
    """Write *image* under the temporary name, durably, and link it to *path*.

    Raises :class:`SessionExists` if another program has taken the name meanwhile.
    """
    building = SessionFiles(path).creating
    building.unlink(missing_ok=True)  # of a create that was killed; the claim is held
    try:
        write_private(building, image)
        link_new(building, path)
    except BaseException as error:
        with suppress(OSError):
            building.unlink()
        if isinstance(error, FileExistsError):
            raise SessionExists(SessionFiles(path).session_id, path) from None
        raise


def remove_new_session(path: Path) -> None:
    """Remove a session that cannot be returned to its creator; nobody else can have written it."""
    files = SessionFiles(path)
    for name in (path, files.wal, files.shm):
        with suppress(OSError):
            name.unlink()
