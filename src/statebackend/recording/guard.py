"""What must hold around every commit: place, claim, SQLite's locks, and the size of the WAL."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from sqlalchemy import Connection

from statebackend.errors import (
    OutcomeUnknown,
    SessionLocked,
    SessionUnreadable,
    StateBackendError,
    StorageError,
)
from statebackend.files.claim import Claim
from statebackend.files.open_files import OpenFile
from statebackend.files.paths import SessionFiles
from statebackend.files.sqlite_locks import SqliteLocks
from statebackend.sqlite import checkpoint, engine

# SQLite checkpoints by itself from 4 MB on, but restarts the WAL only at a moment without readers.
# Where readers overlap for ever there is none; from this size on, the writer waits for it.
RESTART_BYTES = 16 * 1024 * 1024
# Each look at the WAL's size costs a tenth of a small append, and as much again for the next write,
# which then has to record its time (Linux).
_COMMITS_PER_LOOK = 16
_LOST = (
    "this process had lost its locks, as a process does that opens and closes the session's files "
    "by itself; the session is closed, so open it again"
)


class Guard:
    """What the sole writer of *path* holds; :meth:`release` gives it back."""

    def __init__(
        self,
        path: Path,
        file: OpenFile,
        connection: Connection,
        *,
        claim: Claim,
        locks: SqliteLocks,
    ) -> None:
        self._path = path
        self._session_id = SessionFiles(path).session_id
        self._connection = connection
        self._claim = claim
        self._locks = locks
        self._path_bytes, self._inode = os.fsencode(path), file.key
        self._wal_name = f"{path}-wal"
        self._commits = 0
        self._restart_bytes = RESTART_BYTES
        self.is_lost = False  # the session cannot be written any more

    def before(self) -> None:
        """Refuse to write a file that nobody will find, or that another process may write.

        A claim that was lost, and that nobody took, is taken again. Raises
        :class:`SessionUnreadable`, and, with ``is_lost`` set, :class:`SessionLocked` and
        :class:`StorageError`.
        """
        try:
            found = os.stat(self._path_bytes)  # noqa: PTH116 - a third of a Path's time
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._inode:
            raise SessionUnreadable(self._path, "was moved, removed or replaced while it was open")
        if self._claim.keep():
            return
        self.is_lost = True
        other = self._claim.other()
        if other is not None:
            raise SessionLocked(self._session_id, other.pid, other.host, other.since)
        raise StorageError(self._path, f"another program could write it meanwhile: {_LOST}")

    def after(self) -> StateBackendError | None:
        """Return the error if the commit went into a WAL that nobody will find."""
        if self._locks.in_use():
            return None
        self.is_lost = True
        return OutcomeUnknown(
            self._path,
            "another program removed the WAL, and whether the commit was kept is "
            f"unknown; append again with the same event id: {_LOST}",
        )

    def limit_wal(self, driver: sqlite3.Connection) -> None:
        """Checkpoint a long WAL, so that the next commit restarts it; call it between commits.

        Where a reader prevents that, it is tried again once the WAL has doubled.
        """
        self._commits += 1
        if self._commits % _COMMITS_PER_LOOK:
            return
        try:
            size = os.stat(self._wal_name).st_size  # noqa: PTH116 - a third of a Path's time
        except OSError:
            return
        if size < RESTART_BYTES:
            self._restart_bytes = RESTART_BYTES
        elif size >= self._restart_bytes and not checkpoint.restart_wal(driver):
            self._restart_bytes = 2 * size

    def release(self) -> None:
        """Close the connection, give the claim back, and remove a WAL that is left."""
        try:
            self._locks.release()
            engine.close(self._connection)
        finally:
            self._claim.release()
        checkpoint.remove_stale_wal(self._path, may_checkpoint=True)
