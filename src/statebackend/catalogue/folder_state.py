"""The state of every session file in the folder, without opening any."""

from __future__ import annotations

import hashlib
import marshal
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from statebackend.files import claim, open_files
from statebackend.files.paths import SUFFIX, FileSignature
from statebackend.scanning import listing
from statebackend.scanning.listing import Listing
from statebackend.sqlite.faults import os_error

Signature = tuple[int, int, int, int, str | None]
"""The :class:`FileSignature` of a session file, and that of its WAL as a text, None without a WAL.

The text includes inode, size and mode of the shm, which says which frames of the WAL count. It is a
plain tuple, since ``marshal`` takes no other.
"""

# A change within the clock's grain of the one before may leave the file's times as they were.
_GRAIN_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class FolderState:
    """The signature of each session file, or that its entry cannot be relied on.

    ``unsigned`` sessions must be read again in any case: those with a living writer, a report of a
    recovery, a rollback journal or a second name, those that this process has open, those that are
    not a regular file, and what is left of a session without a file. ``listed`` has the reports,
    for a scan. ``digest`` is one for all signatures together.
    """

    signatures: dict[str, Signature]
    unsigned: frozenset[str]
    listed: Listing
    digest: bytes

    def __contains__(self, stem: object) -> bool:
        return stem in self.signatures or stem in self.unsigned

    @property
    def sessions(self) -> int:
        """Count the sessions of the folder."""
        return len(self.signatures) + len(self.unsigned)


def read_state(directory: Path) -> FolderState:
    """Read the state of every session in *directory*. Raises :class:`StorageError`."""
    names = listing.read_names(directory)
    unreliable = names.reported.union(_live(directory)) if names.files else names.reported
    signed = signatures(directory, names.files, names.beside, unreliable) if names.files else {}
    unsigned = names.beside - signed.keys()
    if len(signed) < len(names.files):
        unsigned = unsigned.union(stem for stem in names.files if stem not in signed)
    # Of all ways to compare many signatures with those of the last time, this is the quickest.
    digest = hashlib.blake2b(marshal.dumps(signed, 2), digest_size=16).digest()
    return FolderState(signed, unsigned, Listing([], names.reported, names.at_ns), digest)


def signatures(
    directory: Path,
    stems: Collection[str],
    beside: Collection[str] | None = None,
    unreliable: Collection[str] = (),
) -> dict[str, Signature]:
    """Return the signatures of these sessions, looking for the WALs of those *beside* (None: all).

    Left out are those that :class:`FolderState` calls unsigned, and those named as *unreliable*.
    """
    touched = open_files.touched()
    signed: dict[str, Signature] = {}
    beside = stems if beside is None else beside
    stat_file = os.stat
    with os_error(directory), _open_folder(directory) as folder:
        for stem in stems:
            try:  # by a name in an open folder: the kernel need not walk down the path for each
                status = stat_file(stem + SUFFIX, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            wal = None
            if (
                status.st_nlink != 1
                or not stat.S_ISREG(status.st_mode)
                or (touched and (status.st_dev, status.st_ino) in touched)
                or stem in unreliable
            ):
                continue
            if stem in beside:
                if _stat(folder, f"{stem}{SUFFIX}-journal") is not None:
                    continue
                wal = _wal_signature(folder, stem + SUFFIX)
            signed[stem] = (
                *(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns),
                wal,
            )
    return signed


@contextmanager
def _open_folder(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_quiet(signature: Signature, now_ns: int) -> bool:
    """Return whether a change from *now_ns* on must show in the signature."""
    _inode, _size, mtime_ns, ctime_ns, wal = signature
    times = [mtime_ns, ctime_ns]
    if wal is not None:
        times += map(int, wal.split()[2:4])
    return max(times) + _GRAIN_NS < now_ns


def _wal_signature(folder: int, name: str) -> str | None:
    wal = _stat(folder, f"{name}-wal")
    if wal is None:
        return None
    values = [*FileSignature.of(wal)]
    if (shm := _stat(folder, f"{name}-shm")) is not None:
        values += [shm.st_ino, shm.st_size, shm.st_mode]  # not its times: each reader changes them
    return " ".join(map(str, values))


def _stat(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _live(directory: Path) -> Iterator[str]:
    for stem in listing.stems_with_lock_file(directory):
        if claim.writer_of(directory / (stem + SUFFIX)) is not None:
            yield stem
