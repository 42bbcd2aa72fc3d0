"""One look at the sessions folder: which state each file is in, without opening any."""

from __future__ import annotations

import hashlib
import marshal
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from statebackend.files import claim, open_files
from statebackend.files.paths import SUFFIX
from statebackend.scanning import scan
from statebackend.sqlite.faults import os_error

Signature = tuple[int, int, int, int, str | None]
"""Inode, size in bytes, mtime and ctime in ns of a file, and the same of its log, None without.

With the log goes inode, size and mode of its index: which of its frames count is told there.
"""

# A change within the clock's grain of the one before may leave the file's times as they were.
_GRAIN_NS = 100_000_000


class Look(NamedTuple):
    """What was found: the state of each session's file, or that its entry cannot be relied on.

    ``unsigned`` must be read again in any case: a session with a living writer, a report of a
    recovery, a rollback journal or a second name, one that this process has open, what is no plain
    file, and what is left of a session without a file. ``listed`` tells a scan of the reports.
    ``digest`` is one for all signatures together.
    """

    signatures: dict[str, Signature]
    unsigned: frozenset[str]
    listed: scan.Listing
    digest: bytes

    def __contains__(self, stem: object) -> bool:
        return stem in self.signatures or stem in self.unsigned


def look(directory: Path) -> Look:
    """Look at every session of *directory*. Raises :class:`StorageError`."""
    names = scan.names(directory)
    again = names.reported.union(_live(directory)) if names.files else names.reported
    found = signatures(directory, names.files, names.beside, again) if names.files else {}
    unsigned = names.beside - found.keys()
    if len(found) < len(names.files):
        unsigned = unsigned.union(stem for stem in names.files if stem not in found)
    # Of all ways to compare many signatures with those of the last time, this is the quickest.
    digest = hashlib.blake2b(marshal.dumps(found, 2), digest_size=16).digest()
    return Look(found, unsigned, scan.Listing([], names.reported, names.at_ns), digest)


def signatures(
    directory: Path,
    stems: Collection[str],
    beside: Collection[str] | None = None,
    again: Collection[str] = (),
) -> dict[str, Signature]:
    """Look at the files of these sessions, and at logs of those *beside* (None: of all).

    Left out are those that :class:`Look` calls unsigned, of them the ones that *again* names.
    """
    touched = open_files.touched()
    found: dict[str, Signature] = {}
    beside = stems if beside is None else beside
    look_at = os.stat
    with os_error(directory), _opened(directory) as folder:
        for stem in stems:
            try:  # by a name in an open folder: the kernel need not walk down the path for each
                one = look_at(stem + SUFFIX, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            log = None
            if (
                one.st_nlink != 1
                or not stat.S_ISREG(one.st_mode)
                or (touched and (one.st_dev, one.st_ino) in touched)
                or stem in again
            ):
                continue
            if stem in beside:
                if _log(folder, f"{stem}{SUFFIX}-journal") is not None:
                    continue
                log = _log(folder, f"{stem}{SUFFIX}-wal")
                if log is not None:
                    log += _index(folder, f"{stem}{SUFFIX}-shm")
            found[stem] = (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns, log)
    return found


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def newest_ns(signature: Signature) -> int:
    """Return the newest of the times in a signature."""
    _inode, _size, mtime_ns, ctime_ns, log = signature
    times = [mtime_ns, ctime_ns]
    if log is not None:
        times += map(int, log.split()[2:4])
    return max(times)


def is_quiet(signature: Signature, now_ns: int) -> bool:
    """Tell whether a change from *now_ns* on must show in the signature."""
    return newest_ns(signature) + _GRAIN_NS < now_ns


def _log(folder: int, name: str) -> str | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def _index(folder: int, name: str) -> str:
    # Not its times, which each reader may change.
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return ""
    return f" {found.st_ino} {found.st_size} {found.st_mode}"


def _live(directory: Path) -> Iterator[str]:
    for stem in scan.claimed(directory):
        if claim.writer_of(directory / (stem + SUFFIX)) is not None:
            yield stem
