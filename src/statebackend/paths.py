"""Where the session files are, and the names beside them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from statebackend.ids import check_session_id

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


def session_path(directory: Path, session_id: str) -> Path:
    """Return the file of a session; an id that is not a ULID cannot name one."""
    return directory / (check_session_id(session_id) + SUFFIX)


def wal_path(path: Path) -> Path:
    """Return the write-ahead log beside *path*."""
    return path.with_name(path.name + "-wal")


def journal_path(path: Path) -> Path:
    """Return the rollback journal beside *path*."""
    return path.with_name(path.name + "-journal")


def lock_path(path: Path) -> Path:
    """Return the lock file of the session file *path*: ``.locks/<session_id>.lock``."""
    return path.parent / ".locks" / (path.name.removesuffix(SUFFIX) + ".lock")


def creating_path(path: Path) -> Path:
    """Return the name under which the session file *path* is built before it exists."""
    return path.with_name(path.name + ".creating")


def corrupt_paths(path: Path) -> Iterator[Path]:
    """Return the names that a damaged *path* may be kept under: ``.corrupt``, ``.corrupt.2`` …."""
    yield path.with_name(f"{path.name}.corrupt")
    for number in count(2):
        yield path.with_name(f"{path.name}.corrupt.{number}")


def sqlite_uri(path: str | Path, parameters: str) -> str:
    """Return SQLite's URI of *path*; ``%``, ``?`` and ``#`` in a name stay what they are."""
    name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{name}?{parameters}"


def private_directory(path: Path) -> None:
    """Make *path* and its missing parents, durably; what is made is for the owner only."""
    if path.is_dir():
        return
    private_directory(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return
    path.chmod(0o700)  # whatever the umask took away
    with suppress(PermissionError):  # a parent that may be written but not read
        fsync_directory(path.parent)


def write_private(path: Path, content: bytes) -> None:
    """Write a new file, durable and for its owner only. Raises :class:`FileExistsError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)  # whatever the umask took away
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def fsync_directory(path: Path) -> None:
    """Make changes of names in the folder *path* survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_new(built: Path, path: Path) -> None:
    """Give the finished file *built* the name *path*, never over another file.

    Raises :class:`FileExistsError` when the name is taken.
    """
    try:
        os.link(built, path)
    except FileExistsError:
        raise
    except OSError:  # no hard links on this file system
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        built.rename(path)
