"""A look at a session file's bytes before SQLite touches it.

Only safe while this process has no connection on the file: closing any descriptor of it would drop
SQLite's POSIX locks. ``claim.untouched`` guards that.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import NoneType

from statebackend.errors import SchemaTooNew, SessionDamaged, SessionUnreadable
from statebackend.files import wal
from statebackend.files.paths import SUFFIX, SessionFiles
from statebackend.values.ids import is_session_id
from statebackend.values.recorded import SCHEMA_VERSION

_MAGIC = b"SQLite format 3\0"
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNKNOWN_FORMAT = "the header's format is none of SQLite's"


@dataclass(frozen=True, slots=True)
class Header:
    """What the bytes say: size in bytes, page size in bytes, schema version.

    ``user_version`` is the committed one, from the write-ahead log if that holds a newer header.
    """

    size: int
    page_size: int
    user_version: int


def check_regular(path: Path) -> os.stat_result | None:
    """Return the file's stat, None when there is none, and refuse what is not a plain file.

    A symbolic link is refused too: SQLite would put the log beside its target, where another name
    of the same session does not find it.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise irregular(path, found)
    return found


def irregular(path: Path, found: os.stat_result) -> SessionUnreadable:
    """Return the error for what is no plain file."""
    if stat.S_ISLNK(found.st_mode):
        return SessionUnreadable(path, "is a symbolic link; a session is a plain file")
    return SessionUnreadable(path, "is not a plain file")


def leftover(path: Path) -> str | None:
    """Say what is left of a session whose file is missing; None when nothing is.

    Such an id is taken: a new file at the name would swallow an old log beside it.
    """
    for ending, problem in LEFTOVERS.items():
        if os.path.lexists(f"{path}{ending}"):
            return problem
    return None


LEFTOVERS = {
    ".corrupt": "only its damaged original is left (.sqlite.corrupt)",
    "-wal": "its file is gone, only the write-ahead log is left (.sqlite-wal)",
    "-journal": "its file is gone, only a rollback journal is left (.sqlite-journal)",
}
"""What may be left without the session file, by the ending behind its name."""


def original_of(path: Path) -> Path | None:
    """Return the kept name of the file *path* while its recovery is unfinished, else None.

    Until the replacement is in place, the damaged file has both names.
    """
    with suppress(FileNotFoundError):
        found = path.lstat()
        if found.st_nlink > 1:
            names = SessionFiles(path).corrupt()
            name = next(name for name in names if os.path.samestat(name.lstat(), found))
            # Somebody may have linked the kept file back; a recovery leaves one of these as well.
            marks = (f"{path}.recovering", f"{name}.json")
            return name if any(map(os.path.lexists, marks)) else None
    return None


def incomplete(name: str) -> bool:
    """Tell whether an earlier recovery of the file *name* lost rows, by the reports beside it.

    This is asked of every session that is read, so without reports it costs two looks. The second
    is for a person who moved away only the files of the first recovery.
    """
    if not (
        os.access(f"{name}.corrupt.json", os.F_OK) or os.access(f"{name}.corrupt.2.json", os.F_OK)
    ):
        return False
    from statebackend.files import recovery_reports

    return recovery_reports.tell_loss(Path(name))


def refuse_unfinished(path: Path) -> None:
    """Refuse a file whose recovery was interrupted: its log may have been moved already."""
    if original_of(path) is not None:
        raise SessionDamaged(
            path, ("its recovery was interrupted; open it for writing to finish that",)
        )


def check_sidecars(path: Path) -> None:
    """Refuse a log, index or journal that is no plain file: opening a pipe would never end."""
    for ending in ("-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(f"{path}{ending}").st_mode):
                raise SessionUnreadable(path, f"its {ending} is not a plain file; take that away")


def misnamed(path: Path, stored: object) -> SessionUnreadable:
    """Return the error for a file whose row carries another id than its name."""
    known = isinstance(stored, str) and is_session_id(stored)
    if known and os.path.lexists(path.with_name(f"{stored}{SUFFIX}")):
        advice = "that one is here as well, so this is a copy: move it out of the folder"
    else:
        advice = "a session's file carries its id, so rename it back"
    return SessionUnreadable(path, f"holds session {stored!r}; {advice}")


def check_meta_value(path: str | Path, name: str, value: object) -> None:
    """Refuse what no session ever stored in column *name* of ``session_meta``.

    A text is a str, with surrogates for what is not UTF-8. Raises :class:`SessionDamaged`.
    """
    if not isinstance(value, int if name == "depth" else (str, NoneType)):
        raise SessionDamaged(Path(path), (f"session_meta.{name} is of another type",))
    if isinstance(value, str) and not value.isascii() and _SURROGATE.search(value):
        raise SessionDamaged(Path(path), (f"session_meta.{name} is not UTF-8",))


def has_wal(path: Path) -> bool:
    """Tell whether a write-ahead log lies beside *path*; an empty one, as readers make it, is none.

    A reader that took an empty one for a log would leave it behind for good.
    """
    try:
        return os.stat(f"{path}-wal").st_size > 0  # noqa: PTH116 - a Path costs a scan more
    except FileNotFoundError:
        return False


def read_header(path: Path) -> Header:
    """Read the header of *path* and judge it.

    Raises :class:`SchemaTooNew` before anything else is done to the file (SB-31),
    :class:`SessionDamaged` when the bytes cannot be a whole database, and
    :class:`SessionUnreadable` when it never was a session.
    """
    check_sidecars(path)
    size, head = _size_and_head(path)
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise SessionDamaged(path, (f"{size} bytes without the header of an SQLite database",))
    page_size = page_size_of(head)
    if page_size is None:
        raise SessionDamaged(path, ("the header's page size is impossible",))
    version = _version(head)
    with suppress(FileNotFoundError):  # none, or a writer has just taken it away at its close
        version = _version_in_wal(SessionFiles(path).wal) or version
    check_not_newer(path, version)
    if not _is_of_known_format(head):
        raise SessionDamaged(path, (_UNKNOWN_FORMAT,))
    if size % page_size and not _is_folded_again(path, size // page_size + 1, page_size):
        raise SessionDamaged(path, (_parted(size),))
    if _hot(SessionFiles(path).journal):
        raise SessionDamaged(path, ("a rollback journal lies beside it, which no session has",))
    if _outgrown(size, head) and not has_wal(path):
        # A writer at its close may have folded its log between the two looks: then it is gone now.
        size, head = _size_and_head(path)
        if (longer := _outgrown(size, head)) is not None and not has_wal(path):
            raise SessionDamaged(path, (longer,))
    return Header(size, page_size, version)


def _size_and_head(path: Path) -> tuple[int, bytes]:
    with path.open("rb", buffering=0) as file:
        return os.fstat(file.fileno()).st_size, os.pread(file.fileno(), 100, 0)


def check_bytes(name: str, size: int) -> None:
    """Refuse by the bytes of a file without a log, *size* bytes long, as :func:`read_header` does.

    A scan asks this of every file: it costs less than asking SQLite. What has no header at all is
    left for SQLite to refuse.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = os.pread(descriptor, 100, 0)
    finally:
        os.close(descriptor)
    check_head(name, head, size)


def check_head(name: str, head: bytes | bytearray, size: int) -> None:
    """Refuse by the first 100 bytes of such a file: its version, or a size that cannot be."""
    if not head.startswith(_MAGIC):
        return
    if not 0 < (version := _version(head)) <= SCHEMA_VERSION:
        check_version(Path(name), version)
    if not _is_of_known_format(head):
        raise SessionDamaged(Path(name), (_UNKNOWN_FORMAT,))
    if (page_size := page_size_of(head)) is not None and size % page_size:
        raise SessionDamaged(Path(name), (_parted(size),))
    if (longer := _outgrown(size, head)) is not None:
        raise SessionDamaged(Path(name), (longer,))


def check_version(path: Path, version: int) -> None:
    """Refuse a version above the known ones, and none: no session was ever without."""
    check_not_newer(path, version)
    if version <= 0:
        raise SessionDamaged(path, (f"carries no schema version (user_version {version})",))


def check_not_newer(path: Path, version: int) -> None:
    """Refuse a version above the known ones (SB-31)."""
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(path, version, SCHEMA_VERSION)


def _is_folded_again(path: Path, page: int, page_size: int) -> bool:
    """Tell whether the log holds a page: a cut of the power may have ended its fold within it."""
    log = wal.read(path, page_size)
    return log is not None and any(frame.page == page for frame in log.live)


def _is_of_known_format(head: bytes | bytearray) -> bool:
    """Tell whether SQLite writes such files: 1 is a rollback journal, 2 the write-ahead log.

    One above 2 it opens for reading alone, or not at all.
    """
    return head[18] in {1, 2} and head[19] in {1, 2}


def _parted(size: int) -> str:
    return f"{size} bytes is not a whole number of pages"


def pages_counted(head: bytes | bytearray) -> int | None:
    """Return how many pages the first 100 bytes of a file say there are.

    None where SQLite does not believe them, since the two change counters differ, and goes by the
    size of the file.
    """
    return int.from_bytes(head[28:32], "big") or None if head[92:96] == head[24:28] else None


def _outgrown(size: int, head: bytes | bytearray) -> str | None:
    """Say so if a file without a log has more pages than its header counts.

    SQLite cuts a file to that count, and never looks behind it. So page 1 is an older image, and
    the pages that agree with it pass the integrity check.
    """
    counted, page_size = pages_counted(head), page_size_of(head)
    if counted is None or page_size is None or counted >= size // page_size:
        return None
    return f"{size // page_size} pages, of which its header counts {counted}"


def page_size_of(head: bytes | bytearray) -> int | None:
    """Return the page size in bytes that the first 18 of a file say, None for an impossible one."""
    size = int.from_bytes(head[16:18], "big")
    size = 65536 if size == 1 else size
    return size if 512 <= size <= 65536 and size & (size - 1) == 0 else None


def _version(head: bytes | bytearray) -> int:
    return int.from_bytes(head[60:64], "big", signed=True)


def _hot(journal: Path) -> bool:
    try:
        with journal.open("rb") as file:
            return file.read(1) not in (b"", b"\0")
    except FileNotFoundError:
        return False


def _version_in_wal(log: Path) -> int | None:
    """Return the version in the newest committed header page of a log, None when it holds none."""
    with log.open("rb", buffering=0) as file:
        page = wal.newest_page_1(file.fileno())
    return None if page is None else _version(page)
