"""The shm (wal-index) as bytes: how many frames of the WAL are committed.

SQLite writes the shm through a memory map and never syncs it. A writer with ``synchronous = FULL``,
as every writer of this package, syncs the frames of a transaction before it counts them in the shm.
So the shm may be older than the WAL, also after a power cut, but never newer.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

_VERSION = 3_007_000
_COPY, _SUMMED = 48, 40
"""Bytes of each of the two copies of the header, and of the part that its checksum covers."""


@dataclass(frozen=True, slots=True)
class ShmHeader:
    """The salts and page size (bytes) of the WAL, and its number of committed frames."""

    salts: bytes
    page_size: int
    committed: int


def read(path: Path) -> ShmHeader | None:
    """Read the shm header of the session file *path*; None if it is missing or invalid.

    Opens the file directly, so call it only while this process has no connection on the session.
    """
    try:
        descriptor = os.open(f"{path}-shm", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        head = os.pread(descriptor, 2 * _COPY, 0)
    finally:
        os.close(descriptor)
    # SQLite writes one copy after the other: they differ if a writer was killed in between.
    if len(head) < 2 * _COPY or head[:_COPY] != head[_COPY:]:
        return None
    version, _unused, _change, is_initialized, _order, page_size, committed = struct.unpack_from(
        "=IIIBBHI", head
    )
    sums = struct.unpack_from("=II", head, _SUMMED)
    if version != _VERSION or not is_initialized or sums != _sums(head[:_SUMMED]):
        return None
    size = (page_size & 0xFE00) | (page_size & 1) << 16
    return ShmHeader(head[32:40], size, committed)


def _sums(head: bytes) -> tuple[int, int]:
    """Return SQLite's checksum over 32-bit words in this machine's byte order."""
    first = second = 0
    for even, odd in struct.iter_unpack("=II", head):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
