"""Where session files are, and the names of the files beside them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple, Self

from statebackend.values.ids import check_session_id

SUFFIX = ".sqlite"


def sessions_directory() -> Path:
    """Return ``$XDG_STATE_HOME/agent/sessions``, absolute (SB-01).

    Unset, empty and relative values fall back to ``~/.local/state``, as the XDG standard says,
    on every system.
    """
    from platformdirs.unix import Unix

    return Path(Unix("agent", appauthor=False).user_state_dir) / "sessions"


def cache_directory() -> Path:
    """Return ``$XDG_CACHE_HOME/agent``, absolute; it falls back to ``~/.cache`` likewise."""
    from platformdirs.unix import Unix

    return Path(Unix("agent", appauthor=False).user_cache_dir)


class _Beside:
    """The path of a file beside the session: the session file's name with an *ending*."""

    def __init__(self, ending: str) -> None:
        self._ending = ending

    def __get__(self, files: SessionFiles, _owner: type[SessionFiles]) -> Path:
        return files.path.with_name(files.path.name + self._ending)


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """One session's file and the names beside it; none of them need exist.

    ``path`` is ``<session_id>.sqlite`` in the sessions folder.
    """

    path: Path

    @classmethod
    def of(cls, directory: Path, session_id: str) -> Self:
        """Return the files of a session; raise :class:`InvalidValue` for what is not a ULID."""
        return cls(directory / (check_session_id(session_id) + SUFFIX))

    @property
    def session_id(self) -> str:
        """Return the file's stem, which is the session's id."""
        return self.path.name.removesuffix(SUFFIX)

    wal = _Beside("-wal")
    shm = _Beside("-shm")
    journal = _Beside("-journal")
    creating = _Beside(".creating")  # where a new session's file is built
    recovering = _Beside(".recovering")  # where a recovery builds the replacement

    @property
    def sidecars(self) -> tuple[Path, Path, Path]:
        """Return the files of SQLite beside the session: WAL, shm and rollback journal."""
        return (self.wal, self.shm, self.journal)

    @property
    def lock(self) -> Path:
        """Return the claim's lock file, ``.locks/<session_id>.lock``."""
        return self.path.parent / ".locks" / f"{self.session_id}.lock"

    def corrupt(self) -> Iterator[Path]:
        """Return the names for damaged originals: ``.corrupt``, ``.corrupt.2`` …."""
        yield self.path.with_name(f"{self.path.name}.corrupt")
        for number in count(2):
            yield self.path.with_name(f"{self.path.name}.corrupt.{number}")


class FileSignature(NamedTuple):
    """What a write changes: inode, size in bytes, times in nanoseconds."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the signature in a stat."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def sqlite_uri(path: str | Path, parameters: str) -> str:
    """Return SQLite's URI of *path*, with ``%``, ``?`` and ``#`` in the name escaped."""
    name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{name}?{parameters}"


def make_private_directory(path: Path) -> None:
    """Make *path* and its missing parents, durably and for the owner only (0700)."""
    if path.is_dir():
        return
    make_private_directory(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return
    path.chmod(0o700)  # the umask may have removed bits
    with suppress(PermissionError):  # a parent that this user may write but not read
        fsync_directory(path.parent)


def write_private(path: Path, content: bytes) -> None:
    """Write a new file, durably and for the owner only. Raises :class:`FileExistsError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)  # the umask may have removed bits
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def fsync_directory(path: Path) -> None:
    """Make new, renamed and removed names in the folder *path* survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_new(built: Path, path: Path) -> None:
    """Give the finished file *built* the name *path*; raise :class:`FileExistsError` if taken."""
    try:
        os.link(built, path)
    except FileExistsError:
        raise
    except OSError:  # this file system has no hard links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        built.rename(path)
