"""Recovery of one damaged session: the original is kept, and the replacement takes its name.

The order of the steps is what keeps it safe (SB-34 to SB-38): after a kill between any two, the
next open ends in the same state. Until the replacement is in place, the original keeps the
session's name. Its second name, a ``.corrupt`` one, shows that a recovery has begun.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statebackend import telemetry
from statebackend.errors import SessionDamaged, SessionUnreadable, StorageError
from statebackend.files import header, open_files, recovery_reports
from statebackend.files.paths import SessionFiles, fsync_directory, write_private
from statebackend.recovery.salvage.salvage import Salvage, salvage
from statebackend.recovery.salvage.target import MAX_NOTES
from statebackend.sqlite import integrity
from statebackend.sqlite.faults import os_error
from statebackend.values import timestamps
from statebackend.values.reports import Recovery

# The bytes of a database that SQLite's own locks lie on: PENDING, RESERVED and SHARED.
_LOCK_START, _LOCK_BYTES = 0x40000000, 512
_log = logging.getLogger(__name__)


def recover(path: Path, reasons: tuple[str, ...] = ()) -> Recovery:
    """Replace the damaged session *path* by a new file with what can be read; keep the original.

    *reasons* are the findings of the check. The caller holds the claim on the session and has no
    connection on it. Raises :class:`SessionUnreadable` when nothing can be saved: the original is
    then kept under its ``.corrupt`` name only. Raises the storage errors, with everything as it
    was, when the system fails or another program has the file open.
    """
    with (
        os_error(path),
        telemetry.span("statebackend.recover", session_id=path.stem, path=str(path)),
        _lock_others_out(path) as descriptor,
    ):
        replacement = _Replacement(path)
        unfinished = header.find_original(path)
        if unfinished is not None:
            reasons = _read_reasons(unfinished) or ("a recovery was interrupted",)
            if not _report_of(unfinished).exists():  # no file of the session was moved yet
                if _aside_of(unfinished).exists():
                    _aside_of(unfinished).replace(replacement.aside)
                _unlink_original(path, unfinished)
                unfinished = None
        original = unfinished or _choose_free_name(path)
        replacement.remove()
        try:
            source, session_id = unfinished or path, path.stem
            saved = salvage(
                source, replacement.file, replacement.aside, session_id, descriptor=descriptor
            )
            if not saved.empty:
                _check_replacement(path, replacement.file)
            report = _build_report(path, original, reasons, saved, aside=_aside_of(original))
            write_private(replacement.report, recovery_reports.to_text(report).encode())
            # Before the second name: without these, it would be taken for somebody's hard link.
            fsync_directory(path.parent)
            _link_original(path, original)
        except BaseException:
            if unfinished is None:
                _unlink_original(path, original)
            replacement.remove()
            raise
        _install(path, original, replacement, saved)
    if saved.empty:
        problem = f"is damaged, and nothing could be saved; the original is kept as {original.name}"
        _log.warning("%s: %s: %s", path, problem, "; ".join(reasons))
        raise SessionUnreadable(path, problem)
    _log.warning("%s: %s", path, _summarize(report))
    return report


def salvage_into(path: Path, folder: Path, reasons: tuple[str, ...]) -> Recovery:
    """Save what can be read of the damaged session *path* into *folder*; change nothing else.

    The new file has the session's own name. Raises :class:`SessionUnreadable` when nothing can be
    saved, and :class:`StorageError` while this process has the session open.
    """
    target, aside = folder / path.name, folder / "aside.jsonl"
    with os_error(path), open_files.alone(path) as alone:
        if not alone:
            raise _open_here_error(path)
        saved = salvage(header.find_original(path) or path, target, aside, path.stem)
    if saved.empty:
        raise SessionUnreadable(path, "is damaged, and nothing can be saved")
    return _build_report(path, None, reasons, saved, aside=aside)


class _Replacement:
    """The files that a recovery writes before it is done; none ends as a session's name does."""

    def __init__(self, path: Path) -> None:
        self.file = SessionFiles(path).recovering
        self.aside = self.file.with_name(f"{self.file.name}.aside")
        self.report = self.file.with_name(f"{self.file.name}.json")

    def remove(self) -> None:
        for path in (self.file, self.aside, self.report, SessionFiles(self.file).journal):
            path.unlink(missing_ok=True)


@contextmanager
def _lock_others_out(path: Path) -> Iterator[int]:
    """Take SQLite's own lock on the file exclusively; yield the descriptor to read it through."""
    # Every connection on a session in WAL mode holds a shared lock there. Closing any descriptor of
    # the file would release the lock, so this is the only one.
    with open_files.alone(path) as alone:
        if not alone:
            raise _open_here_error(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_BYTES, _LOCK_START)
            except (BlockingIOError, PermissionError):
                raise StorageError(
                    path,
                    "is damaged, and another program has it open; close that program, and the next "
                    "open for writing recovers the session",
                ) from None
            yield descriptor
        finally:
            os.close(descriptor)


def _open_here_error(path: Path) -> StorageError:
    return StorageError(path, "is damaged, and this process has it open; close its views first")


def _read_reasons(original: Path) -> tuple[str, ...]:
    report = _report_of(original)
    try:
        return recovery_reports.from_text(report.read_text(encoding="utf-8"), report).reasons
    except (OSError, *recovery_reports.INVALID_REPORT):
        return ()


def _report_of(original: Path) -> Path:
    return original.with_name(f"{original.name}.json")


def _aside_of(original: Path) -> Path:
    return original.with_name(f"{original.name}.aside.jsonl")


def _choose_free_name(path: Path) -> Path:
    """Return the first ``.corrupt`` name of which no part is taken, except by this very file."""
    return next(name for name in SessionFiles(path).corrupt() if _is_free(path, name))


def _is_free(path: Path, original: Path) -> bool:
    if any(map(os.path.lexists, (original, _report_of(original), _aside_of(original)))):
        return False
    return all(
        not os.path.lexists(kept) or _is_same_file(sidecar, kept)
        for sidecar, kept in _pair_sidecars(path, original)
    )


def _pair_sidecars(path: Path, original: Path) -> list[tuple[Path, Path]]:
    """Return the names of WAL and rollback journal, each with the one beside *original*."""
    session, kept = SessionFiles(path), SessionFiles(original)
    return [(session.wal, kept.wal), (session.journal, kept.journal)]


def _is_same_file(path: Path, other: Path) -> bool:
    try:
        return os.path.samestat(path.lstat(), other.lstat())
    except FileNotFoundError:
        return False


def _check_replacement(path: Path, replacement: Path) -> None:
    """Refuse to install a file that would not pass as the session."""
    try:
        integrity.check_copy(replacement, path.stem)
    except SessionDamaged as error:
        raise SessionDamaged(path, (f"its salvaged copy fails: {error.problem}",)) from error


def _build_report(
    path: Path, original: Path | None, reasons: tuple[str, ...], saved: Salvage, *, aside: Path
) -> Recovery:
    report = original and _report_of(original)
    earlier = [each for each in recovery_reports.read_of(path) if each.report != report]
    tables = tuple(recovery_reports.count_known_losses(saved.tables, earlier))
    known = (
        f"{table.table}: {table.known} of the missing sequences were lost before, as an earlier "
        "recovery reported"
        for table in tables
        if table.known
    )
    return Recovery(
        session_id=path.stem,
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


def _link_original(path: Path, original: Path) -> None:
    """Give the original its second name: the sidecars first, so that it is never without them."""
    for name, kept in (*_pair_sidecars(path, original), (path, original)):
        if os.path.lexists(name) and not _is_same_file(name, kept):
            os.link(name, kept, follow_symlinks=False)
    fsync_directory(path.parent)


def _unlink_original(path: Path, original: Path) -> None:
    """Remove the second names, durably, before the report and side file that mark them."""
    # If that fails, these marks stay, and the next open continues from there.
    links = [
        kept
        for name, kept in ((path, original), *_pair_sidecars(path, original))
        if _is_same_file(name, kept)
    ]
    for kept in links:
        kept.unlink()
    if links:
        fsync_directory(path.parent)


def _install(path: Path, original: Path, replacement: _Replacement, saved: Salvage) -> None:
    """Give the replacement the session's name; with nothing saved, remove that name."""
    # The original's sidecars go before that: SQLite would apply its WAL to any file of that name.
    if saved.has_aside:
        replacement.aside.replace(_aside_of(original))
    replacement.report.replace(_report_of(original))
    fsync_directory(path.parent)
    files = SessionFiles(path)
    for sidecar in (files.wal, files.journal, files.shm):
        sidecar.unlink(missing_ok=True)
    fsync_directory(path.parent)
    if saved.empty:
        replacement.file.unlink()
        path.unlink()
    else:
        replacement.file.replace(path)
    fsync_directory(path.parent)


def _summarize(report: Recovery) -> str:
    """Return one line for the log: what was kept and lost, by table, and where the original is."""
    tables = ", ".join(
        f"{table.table} {table.kept} kept"
        + (f" {table.lost} lost" if table.lost else "")
        + (f" {table.known} lost before" if table.known else "")
        + (f" {table.set_aside} set aside" if table.set_aside else "")
        for table in report.tables
    )
    name = report.original.name if report.original else "-"
    reasons = "; ".join((report.reasons[0], *report.uncounted))
    return f"was damaged and recovered ({tables}); the original is {name}: {reasons}"
