"""How SQLite opens a session file for reading so that no file is left beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from statebackend.errors import StorageBusy, StorageError
from statebackend.files.header import has_wal
from statebackend.files.paths import FileSignature, SessionFiles

IMMUTABLE = "mode=ro&immutable=1"
"""URI parameters for a file without a WAL that nobody changes: no locks, and no file beside it."""


class ReadMode(NamedTuple):
    """The URI parameters to open *path* with, and its signature if they are ``IMMUTABLE``."""

    path: Path
    parameters: str
    signature: FileSignature | None = None

    def check_unchanged(self) -> None:
        """Raise :class:`StorageBusy` if a file that is read as immutable was changed."""
        if self.signature is not None and (
            FileSignature.of(self.path.stat()) != self.signature or has_wal(self.path)
        ):
            raise StorageBusy(self.path, "was changed while it was being read; open it again")


def read_mode(path: Path) -> ReadMode:
    """Return how to read the session file *path*.

    Beside a WAL only a read-only connection is sure not to checkpoint a dead writer's WAL. Without
    one, a read-only connection would leave ``-wal`` and ``-shm`` behind; one that may write removes
    them as it closes. Where this user may not write, a file without a WAL is read as immutable.
    Raises :class:`StorageError` for one with a WAL but without a readable shm, which SQLite would
    have to create: without the WAL, only a part of the rows would be shown.
    """
    files = SessionFiles(path)
    if not path.exists() or all(os.access(place, os.W_OK) for place in (path, path.parent)):
        return ReadMode(path, "mode=ro" if has_wal(path) else "mode=rw")
    if all(os.access(sidecar, os.R_OK) for sidecar in (files.wal, files.shm)):
        return ReadMode(path, "mode=ro")
    signature = FileSignature.of(path.stat())
    if has_wal(path):
        raise StorageError(
            path,
            "has a WAL, and this user may not create or read the -shm that SQLite needs with it; "
            "copy the file and its -wal into a folder of your own and read them there",
        )
    return ReadMode(path, IMMUTABLE, signature)


@contextmanager
def checked_read_mode(path: Path) -> Iterator[str]:
    """Give the parameters of :func:`read_mode`; an immutable file must not change in the block."""
    mode = read_mode(path)
    try:
        yield mode.parameters
    finally:
        mode.check_unchanged()  # before an error counts: half of a change can look like damage
