"""The checks that opening for writing and opening for reading share."""

from __future__ import annotations

from pathlib import Path

from statebackend.errors import SessionNotFound, SessionUnreadable
from statebackend.files import claim, header, open_files, read_ahead
from statebackend.files.header import Header
from statebackend.files.paths import SessionFiles
from statebackend.sqlite import wal_check


def find_session(path: Path) -> None:
    """Check that *path* and the files beside it are regular files. Nothing is opened.

    Raises :class:`SessionNotFound`, and :class:`SessionUnreadable` for a symbolic link or another
    kind of file, and for an id of which only sidecars or a damaged original exist.
    """
    if header.check_regular(path) is None:
        if (remains := header.describe_leftover(path)) is not None:
            raise SessionUnreadable(path, remains)
        raise SessionNotFound(SessionFiles(path).session_id, path.parent)
    header.check_sidecars(path)


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
        found = header.read_header(path)
        if claimed or claim.writer_of(path) is None:
            wal_check.check_wal(path, found.page_size)
        return found


def read_file_ahead(path: Path) -> None:
    """Read a large file that is not in the page cache, which makes the integrity check faster.

    In pieces, so that other threads that open or close sessions do not wait for all of it.
    """
    position: int | None = 0
    while position is not None:
        with open_files.untouched(path) as untouched:
            position = read_ahead.read_ahead(path, position) if untouched else None
