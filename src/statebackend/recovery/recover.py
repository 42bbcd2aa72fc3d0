"""Recovery of one damaged session: the original is kept, what was saved takes its name.

The order of the steps is what keeps it safe (SB-34 to SB-38). Killed between any two, the next
open ends in the same state: until the replacement is in place, the session's name still holds the
original, and once that has a second name, the recovery is known to have begun.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from statebackend import telemetry
from statebackend.errors import SessionDamaged, SessionUnreadable, StorageError
from statebackend.files import header, open_files, recovery_reports
from statebackend.files.paths import SUFFIX, SessionFiles, fsync_directory, write_private
from statebackend.recovery.salvage.salvage import Salvage, salvage
from statebackend.recovery.salvage.target import MAX_NOTES
from statebackend.sqlite import integrity
from statebackend.sqlite.faults import os_error, storage_error
from statebackend.values import timestamps
from statebackend.values.reports import Recovery

_SIDECARS = ("-wal", "-journal")
# The bytes of a database that SQLite's own locks lie on: PENDING, RESERVED and SHARED.
_LOCK_START, _LOCK_BYTES = 0x40000000, 512
_log = logging.getLogger(__name__)


def recover(path: Path, reasons: tuple[str, ...] = ()) -> Recovery:
    """Save what can be read of the damaged session *path* into a new file at its name.

    *reasons* are what the check found. The caller holds the claim on the session and has no
    connection on it. Raises :class:`SessionUnreadable` when nothing can be saved: the original is
    then kept under its ``.corrupt`` name, and nothing stands in its place. Raises the storage
    errors, with everything as it was, when the system fails or another program has the file open.
    """
    with (
        os_error(path),
        telemetry.span("statebackend.recover", session_id=_stem(path), path=str(path)),
        _others_out(path) as descriptor,
    ):
        begun = header.original_of(path)
        building = _Building(path)
        if begun is not None:
            reasons = _reasons_told(begun) or reasons or ("a recovery was interrupted",)
            if not _report_path(begun).exists():  # nothing of the session was moved yet
                with suppress(FileNotFoundError):
                    _aside_path(begun).replace(building.aside)
                _unkeep(path, begun)
                begun = None
        original = begun or _free_name(path)
        building.tidy()
        try:
            with _typed_errors(building.file):
                saved = salvage(
                    begun or path, building.file, building.aside, _stem(path), descriptor=descriptor
                )
            if not saved.empty:
                _check(path, building.file)
            report = _report(path, original, reasons, saved, aside=_aside_path(original))
            write_private(building.report, recovery_reports.to_text(report).encode())
            # The marks first: without one, the second name would be taken for a foreign link.
            fsync_directory(path.parent)
            _keep(path, original)
        except BaseException:
            if begun is None:
                _unkeep(path, original)
            building.tidy()
            raise
        _install(path, original, building, saved)
    told = "; ".join(reasons)
    if saved.empty:
        _log.warning("%s: nothing could be saved of it, kept as %s: %s", path, original, told)
        raise SessionUnreadable(path, f"nothing could be saved of it; kept as {original.name}")
    _log.warning("%s: %s", path, _summary(report))
    return report


def look(path: Path, folder: Path, reasons: tuple[str, ...]) -> Recovery:
    """Save what can be read of the damaged session *path* into *folder*, changing nothing else.

    The new file has the session's own name. Raises :class:`SessionUnreadable` when nothing can be
    saved, and :class:`StorageError` while this process has the session open.
    """
    with os_error(path), open_files.alone(path) as alone:
        if not alone:
            raise _open_here(path)
        target = folder / path.name
        aside = folder / "aside.jsonl"
        with _typed_errors(target):
            saved = salvage(header.original_of(path) or path, target, aside, _stem(path))
    if saved.empty:
        raise SessionUnreadable(path, "nothing can be saved of it")
    return _report(path, None, reasons, saved, aside=aside)


@contextmanager
def _typed_errors(built: Path) -> Iterator[None]:
    """Turn what SQLite raises about the new file *built*, the only one that it opens here."""
    try:
        yield
    except sqlite3.Error as error:
        raise storage_error(built, error) from error


class _Building:
    """The files of a recovery before it is done; none of their names ends as a session's does."""

    def __init__(self, path: Path) -> None:
        self.file = Path(f"{path}.recovering")
        self.aside = Path(f"{path}.recovering.aside")
        self.report = Path(f"{path}.recovering.json")

    def tidy(self) -> None:
        for one in (self.file, self.aside, self.report, Path(f"{self.file}-journal")):
            with suppress(FileNotFoundError):
                one.unlink()


@contextmanager
def _others_out(path: Path) -> Iterator[int]:
    """Hold SQLite's own lock on the file alone, and give the descriptor to read it through.

    Every connection on a session in WAL mode holds a shared lock there. Closing any descriptor of
    the file would give the lock up, so this one is the only one.
    """
    with open_files.alone(path) as alone:
        if not alone:
            raise _open_here(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_BYTES, _LOCK_START)
            except (BlockingIOError, PermissionError):
                raise StorageError(
                    path,
                    "is damaged, and another program has it open; close that, so that what can be "
                    "saved of it is saved at the next open",
                ) from None
            yield descriptor
        finally:
            os.close(descriptor)


def _open_here(path: Path) -> StorageError:
    return StorageError(path, "is damaged, and this process has it open; close that view first")


def _free_name(path: Path) -> Path:
    """Return the first kept name of which no part is taken."""
    return next(name for name in SessionFiles(path).corrupt() if _is_free(path, name))


def _is_free(path: Path, name: Path) -> bool:
    """Tell whether no part of a kept name is taken, but by a link to what it will hold."""
    return not any(map(os.path.lexists, (name, _report_path(name), _aside_path(name)))) and all(
        not os.path.lexists(f"{name}{ending}") or _same(f"{path}{ending}", f"{name}{ending}")
        for ending in _SIDECARS
    )


def _report_path(original: Path) -> Path:
    return Path(f"{original}.json")


def _aside_path(original: Path) -> Path:
    return Path(f"{original}.aside.jsonl")


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except FileNotFoundError:
        return False


def _reasons_told(original: Path) -> tuple[str, ...]:
    try:
        text = _report_path(original).read_text(encoding="utf-8")
        return recovery_reports.from_text(text, _report_path(original)).reasons
    except (OSError, *recovery_reports.NO_REPORT):
        return ()


def _check(path: Path, built: Path) -> None:
    """Let nothing take the session's name that would not pass as one."""
    try:
        integrity.check_copy(built, _stem(path))
    except SessionDamaged as error:
        raise SessionDamaged(path, (f"what was saved of it fails: {error.problem}",)) from error


def _report(
    path: Path, original: Path | None, reasons: tuple[str, ...], saved: Salvage, *, aside: Path
) -> Recovery:
    report = original and _report_path(original)
    earlier = [one for one in recovery_reports.read_of(path) if one.report != report]
    tables = tuple(recovery_reports.without_known(saved.tables, earlier))
    known = (
        f"{table.table}: {table.known} of the missing sequences were lost before, as an earlier "
        "recovery reported"
        for table in tables
        if table.known
    )
    return Recovery(
        session_id=_stem(path),
        path=path,
        original=original,
        report=report,
        aside=aside if saved.has_aside else None,
        recovered_at=timestamps.now(),
        reasons=reasons,
        tables=() if saved.empty else tables,
        derived=() if saved.empty else saved.derived,
        notes=(*known, *saved.notes)[:MAX_NOTES],
        uncounted=saved.uncounted,
    )


def _keep(path: Path, original: Path) -> None:
    """Give the original its second name: the sidecars first, so that it is never without them."""
    for ending in (*_SIDECARS, ""):
        if os.path.lexists(f"{path}{ending}") and not _same(
            f"{path}{ending}", f"{original}{ending}"
        ):
            os.link(f"{path}{ending}", f"{original}{ending}", follow_symlinks=False)
    fsync_directory(path.parent)


def _unkeep(path: Path, original: Path) -> None:
    """Take the second names away again, durably, and so before the marks that tell what they are.

    Where that fails, the marks stay, and the next open goes on from there.
    """
    taken = False
    for ending in ("", *_SIDECARS):
        if _same(f"{path}{ending}", f"{original}{ending}"):
            os.unlink(f"{original}{ending}")  # noqa: PTH108 - the ending goes behind the whole name
            taken = True
    if taken:
        fsync_directory(path.parent)


def _install(path: Path, original: Path, building: _Building, saved: Salvage) -> None:
    if saved.has_aside:
        building.aside.replace(_aside_path(original))
    building.report.replace(_report_path(original))
    fsync_directory(path.parent)
    # SQLite would apply a log to whatever file takes the name, so it goes before that one comes.
    for ending in (*_SIDECARS, "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{ending}")  # noqa: PTH108 - the ending goes behind the whole name
    fsync_directory(path.parent)
    if saved.empty:
        building.file.unlink()
        path.unlink()
    else:
        building.file.replace(path)
    fsync_directory(path.parent)


def _stem(path: Path) -> str:
    return path.name.removesuffix(SUFFIX)


def _summary(report: Recovery) -> str:
    """Return one line for the log: what was kept and lost, by table, and where the original is."""
    tables = ", ".join(
        f"{table.table} {table.kept} kept"
        + (f" {table.lost} lost" if table.lost else "")
        + (f" {table.known} lost before" if table.known else "")
        + (f" {table.set_aside} set aside" if table.set_aside else "")
        for table in report.tables
    )
    name = report.original.name if report.original else "-"
    told = "; ".join((report.reasons[0], *report.uncounted))
    return f"was damaged and recovered ({tables}); the original is {name}: {told}"
