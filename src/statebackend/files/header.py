"""Checks of a session file's bytes and names before SQLite opens it.

Only safe while this process has no connection on the file, as in ``open_files.untouched``: closing
any descriptor of the file drops SQLite's POSIX locks.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import NoneType

from statebackend.errors import SchemaTooNew, SessionDamaged, SessionNotFound, SessionUnreadable
from statebackend.files import wal
from statebackend.files.paths import SUFFIX, SessionFiles
from statebackend.values.ids import is_session_id
from statebackend.values.recorded import SCHEMA_VERSION

_MAGIC = b"SQLite format 3\0"
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNKNOWN_FORMAT = "the header has a file format version that SQLite does not write"


@dataclass(frozen=True, slots=True)
class Header:
    """Size and page size in bytes, and the committed schema version.

    ``user_version`` comes from the WAL if that holds a newer header page.
    """

    size: int
    page_size: int
    user_version: int


def check_regular(path: Path) -> os.stat_result | None:
    """Return the stat of *path*, None when there is no file, and refuse what is not a regular file.

    A symbolic link is refused too: SQLite would put the WAL beside its target, where another name
    of the same session does not find it.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise irregular_file_error(path, status)
    return status


def irregular_file_error(path: Path, status: os.stat_result) -> SessionUnreadable:
    """Return the error for what is not a regular file."""
    if stat.S_ISLNK(status.st_mode):
        return SessionUnreadable(path, "is a symbolic link; a session must be a regular file")
    return SessionUnreadable(path, "is not a regular file")


def describe_leftover(path: Path) -> str | None:
    """Describe what remains of a session whose file is missing; None when nothing does.

    Such an id is not used again: SQLite would apply an old WAL to a new file of that name.
    """
    for ending, problem in LEFTOVERS.items():
        if os.path.lexists(f"{path}{ending}"):
            return problem
    return None


LEFTOVERS = {
    ".corrupt": "the file is missing, only its damaged original is left (.sqlite.corrupt)",
    "-wal": "the file is missing, only its WAL is left (.sqlite-wal)",
    "-journal": "the file is missing, only a rollback journal is left (.sqlite-journal)",
}
"""What may remain without the session file, by the ending after the file's name."""


def find_original(path: Path) -> Path | None:
    """Return the ``.corrupt`` name of the file *path* if its recovery was interrupted, else None.

    Until the replacement is in place, the damaged file has both names.
    """
    files = SessionFiles(path)
    with suppress(FileNotFoundError):
        status = path.lstat()
        if status.st_nlink > 1:
            name = next(name for name in files.corrupt() if os.path.samestat(name.lstat(), status))
            # Without one of these files, somebody linked the original back by hand.
            marks = (str(files.recovering), f"{name}.json")
            return name if any(map(os.path.lexists, marks)) else None
    return None


def has_lost_rows(name: str) -> bool:
    """Return whether a recovery of the session file *name* lost rows, by the reports beside it.

    Every read asks this, so without reports it costs two system calls. The second call finds the
    reports when only the files of the first recovery were moved away.
    """
    if not (
        os.access(f"{name}.corrupt.json", os.F_OK) or os.access(f"{name}.corrupt.2.json", os.F_OK)
    ):
        return False
    from statebackend.files import recovery_reports

    return recovery_reports.reports_loss(Path(name))


def refuse_unfinished(path: Path) -> None:
    """Refuse a file whose recovery was interrupted: its WAL may have been moved already."""
    if find_original(path) is not None:
        raise SessionDamaged(
            path, ("its recovery was interrupted; open it for writing to finish it",)
        )


def check_sidecars(path: Path) -> None:
    """Refuse a WAL, shm or journal that is not a regular file: opening a pipe would block."""
    for sidecar in SessionFiles(path).sidecars:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(sidecar.lstat().st_mode):
                raise SessionUnreadable(path, f"{sidecar.name} is not a regular file; remove it")


def find_session(path: Path) -> None:
    """Check that *path* and the files beside it are regular files. Nothing is opened.

    Raises :class:`SessionNotFound`, and :class:`SessionUnreadable` for a symbolic link or another
    kind of file, and for an id of which only sidecars or a damaged original exist.
    """
    if check_regular(path) is None:
        if (remains := describe_leftover(path)) is not None:
            raise SessionUnreadable(path, remains)
        raise SessionNotFound(SessionFiles(path).session_id, path.parent)
    check_sidecars(path)


def misnamed_file_error(path: Path, stored: object) -> SessionUnreadable:
    """Return the error for a file whose ``session_meta`` row holds another id than its name."""
    is_id = isinstance(stored, str) and is_session_id(stored)
    if is_id and os.path.lexists(path.with_name(f"{stored}{SUFFIX}")):
        advice = "that session is here under its own name too, so move this copy out of the folder"
    else:
        advice = "a session's file is named after its id, so rename it back"
    return SessionUnreadable(path, f"holds session {stored!r}; {advice}")


def check_meta_value(path: str | Path, name: str, value: object) -> None:
    """Raise :class:`SessionDamaged` for a value of another type, or text that is not UTF-8.

    *name* is a column of ``session_meta``; a text is a str with surrogates for what is not UTF-8.
    """
    if not isinstance(value, int if name == "depth" else (str, NoneType)):
        raise SessionDamaged(Path(path), (f"session_meta.{name} has the wrong type",))
    if isinstance(value, str) and not value.isascii() and _SURROGATE.search(value):
        raise SessionDamaged(Path(path), (f"session_meta.{name} is not UTF-8",))


def has_wal(path: Path) -> bool:
    """Return whether *path* has a WAL with content.

    Readers create an empty WAL, and the last one to close removes it. A reader that took it for a
    writer's WAL would open read-only and never remove it.
    """
    try:
        return os.stat(f"{path}-wal").st_size > 0  # noqa: PTH116 - a Path is slow
    except FileNotFoundError:
        return False


def read_header(path: Path) -> Header:
    """Read the header of *path* and check it.

    Raises :class:`SchemaTooNew` before anything else is done to the file (SB-31),
    :class:`SessionDamaged` when the bytes cannot be a whole database, and
    :class:`SessionUnreadable` when a file beside it is not a regular file.
    """
    check_sidecars(path)
    size, head = _read_size_and_head(path)
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise SessionDamaged(path, (f"{size} bytes without the header of an SQLite database",))
    page_size = page_size_of(head)
    if page_size is None:
        raise SessionDamaged(path, ("the header has an invalid page size",))
    version = _version(head)
    # Without a WAL, or when a writer that closes has just removed it, the file's version counts.
    with suppress(FileNotFoundError), SessionFiles(path).wal.open("rb", buffering=0) as file:
        page_1 = wal.newest_page_1(file.fileno())
        version = version if page_1 is None else _version(page_1) or version
    check_not_newer(path, version)
    if not _is_of_known_format(head):
        raise SessionDamaged(path, (_UNKNOWN_FORMAT,))
    if size % page_size:
        # A power cut during a checkpoint may tear the last page, which the WAL then holds.
        content = wal.read(path, page_size)
        last_page = size // page_size + 1
        if content is None or all(frame.page != last_page for frame in content.live):
            raise SessionDamaged(path, (_describe_partial_page(size),))
    if _is_hot(SessionFiles(path).journal):
        raise SessionDamaged(path, ("has a hot rollback journal, and no session uses one",))
    if _describe_excess_pages(size, head) and not has_wal(path):
        # A writer that closes may have checkpointed and removed its WAL since the first read.
        size, head = _read_size_and_head(path)
        excess = _describe_excess_pages(size, head)
        if excess is not None and not has_wal(path):
            raise SessionDamaged(path, (excess,))
    return Header(size, page_size, version)


def _read_size_and_head(path: Path) -> tuple[int, bytes]:
    with path.open("rb", buffering=0) as file:
        return os.fstat(file.fileno()).st_size, os.pread(file.fileno(), 100, 0)


def check_bytes(name: str, size: int) -> None:
    """Check the header of a file without a WAL, *size* bytes long, as :func:`read_header` does.

    A scan does so for every file, which is faster than through SQLite. A file without an SQLite
    header passes: SQLite refuses it.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = os.pread(descriptor, 100, 0)
    finally:
        os.close(descriptor)
    check_head(name, head, size)


def check_head(name: str, head: bytes | bytearray, size: int) -> None:
    """Check the first 100 bytes of a file without a WAL against the version and the file's size."""
    if not head.startswith(_MAGIC):
        return
    if not 0 < (version := _version(head)) <= SCHEMA_VERSION:
        check_version(Path(name), version)
    if not _is_of_known_format(head):
        raise SessionDamaged(Path(name), (_UNKNOWN_FORMAT,))
    if (page_size := page_size_of(head)) is not None and size % page_size:
        raise SessionDamaged(Path(name), (_describe_partial_page(size),))
    if (excess := _describe_excess_pages(size, head)) is not None:
        raise SessionDamaged(Path(name), (excess,))


def check_version(path: Path, version: int) -> None:
    """Refuse a version above the known ones, and a missing one, which every session has."""
    check_not_newer(path, version)
    if version <= 0:
        raise SessionDamaged(path, (f"has no schema version (user_version {version})",))


def check_not_newer(path: Path, version: int) -> None:
    """Refuse a version above the known ones (SB-31)."""
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(path, version, SCHEMA_VERSION)


def _is_of_known_format(head: bytes | bytearray) -> bool:
    """Return whether both format versions are 1 (rollback journal) or 2 (WAL).

    SQLite opens a file with a greater one read-only or not at all.
    """
    return head[18] in {1, 2} and head[19] in {1, 2}


def _describe_partial_page(size: int) -> str:
    return f"{size} bytes is not a whole number of pages"


def page_count_of(head: bytes | bytearray) -> int | None:
    """Return the page count in the first 100 bytes of a file.

    None when its two change counters differ: SQLite then uses the size of the file.
    """
    return int.from_bytes(head[28:32], "big") or None if head[92:96] == head[24:28] else None


def _describe_excess_pages(size: int, head: bytes | bytearray) -> str | None:
    """Return a finding if a file without a WAL has more pages than its header counts.

    SQLite truncates a file to that count and never reads beyond it. So page 1 is an older image,
    and the integrity check passes on the pages that it refers to.
    """
    count, page_size = page_count_of(head), page_size_of(head)
    if count is None or page_size is None or count >= size // page_size:
        return None
    return f"{size // page_size} pages, of which its header counts {count}"


def page_size_of(head: bytes | bytearray) -> int | None:
    """Return the page size in bytes from the first 18 bytes of a file, None for an invalid one."""
    size = int.from_bytes(head[16:18], "big")
    size = 65536 if size == 1 else size
    return size if 512 <= size <= 65536 and size & (size - 1) == 0 else None


def _version(head: bytes | bytearray) -> int:
    return int.from_bytes(head[60:64], "big", signed=True)


def _is_hot(journal: Path) -> bool:
    try:
        with journal.open("rb") as file:
            return file.read(1) not in (b"", b"\0")
    except FileNotFoundError:
        return False
