"""One look at the sessions folder: which state each file is in, without opening any."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from statebackend import claim, scan
from statebackend.faults import os_error
from statebackend.paths import SUFFIX, lock_path

Signature = tuple[int, int, int, int, str | None]
"""Inode, size in bytes, mtime and ctime in ns of a file, and the same of its log, None without."""

# A change within the clock's grain of the one before may leave the file's times as they were.
_GRAIN_NS = 100_000_000


class Look(NamedTuple):
    """What was found. ``signatures`` lacks what must be read again in any case.

    That is a session with a living writer, a report of a recovery, a rollback journal or a second
    name, one that this process has open, and what is no plain file.
    """

    listed: scan.Listing
    signatures: dict[str, Signature]


def look(directory: Path) -> Look:
    """Look at every session of *directory*. Raises :class:`StorageError`."""
    listed = scan.listing(directory)
    if not listed.stems:
        return Look(listed, {})
    with os_error(directory):
        again = listed.reported.union(_live(directory))
        stems = [stem for stem in listed.stems if stem not in again]
        return Look(listed, _signatures(directory, stems, listed.beside))


def signatures(directory: Path, stems: Collection[str]) -> dict[str, Signature]:
    """Look once more at the files of these sessions, and at what lies beside them."""
    with os_error(directory):
        return _signatures(directory, stems, stems)


def newest_ns(signature: Signature) -> int:
    """Return the newest of the times in a signature."""
    _inode, _size, mtime_ns, ctime_ns, log = signature
    times = [mtime_ns, ctime_ns]
    if log is not None:
        times += map(int, log.split()[2:])
    return max(times)


def is_quiet(signature: Signature, now_ns: int) -> bool:
    """Tell whether a change from *now_ns* on must show in the signature."""
    return newest_ns(signature) + _GRAIN_NS < now_ns


def _signatures(
    directory: Path, stems: Collection[str], beside: Collection[str]
) -> dict[str, Signature]:
    touched = claim.touched()
    found = {}
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # names in an open folder: the kernel need not walk down the path for each
        for stem in stems:
            with suppress(FileNotFoundError):
                one = os.stat(stem + SUFFIX, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISREG(one.st_mode) or one.st_nlink != 1:
                    continue
                if touched and (one.st_dev, one.st_ino) in touched:
                    continue
                log = None
                if stem in beside:
                    if _log(folder, f"{stem}{SUFFIX}-journal") is not None:
                        continue
                    log = _log(folder, f"{stem}{SUFFIX}-wal")
                found[stem] = (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns, log)
    finally:
        os.close(folder)
    return found


def _log(folder: int, name: str) -> str | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def _live(directory: Path) -> Iterator[str]:
    """Return the stems with a living writer; only those with a lock file can have one."""
    locks = lock_path(directory / SUFFIX).parent
    try:
        names = [path.name for path in locks.iterdir()]
    except OSError:
        return
    for name in names:
        stem = name.removesuffix(".lock")
        if claim.writer_of(directory / (stem + SUFFIX)) is not None:
            yield stem
