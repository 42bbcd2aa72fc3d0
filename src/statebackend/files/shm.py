"""The index beside a write-ahead log (``-shm``), as bytes: how many frames were committed.

SQLite writes it through a mapping and never syncs it. But a writer with ``synchronous = FULL``, as
all of this package are, syncs the frames of a transaction before it counts them here. So an index
may be older than its log, also after a cut of the power, and never newer.
"""

from __future__ import annotations

import os
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

_VERSION = 3_007_000
_COPY, _SUMMED = 48, 40
"""Bytes of each of the two copies of the header, and of its part that the checksum is of."""


@dataclass(frozen=True, slots=True)
class ShmHeader:
    """What an index says: the salts of the log that it is of, its page size (bytes), and frames."""

    salts: bytes
    page_size: int
    committed: int


def read(path: Path) -> ShmHeader | None:
    """Read the index beside the session file *path*; None where there is none to be believed.

    Plain file calls: only while this process has no connection on the session.
    """
    try:
        descriptor = os.open(f"{path}-shm", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        head = os.pread(descriptor, 2 * _COPY, 0)
    finally:
        os.close(descriptor)
    # They are written one after the other: two that differ are of a writer that was killed then.
    if len(head) < 2 * _COPY or head[:_COPY] != head[_COPY:]:
        return None
    version, _unused, _change, is_made, _order, page_size, committed = struct.unpack_from(
        "=IIIBBHI", head
    )
    sums = struct.unpack_from("=II", head, _SUMMED)
    if version != _VERSION or not is_made or sums != _sums(head[:_SUMMED]):
        return None
    size = (page_size & 0xFE00) | (page_size & 1) << 16
    return ShmHeader(head[32:40], size, committed)


def _sums(head: bytes) -> tuple[int, int]:
    """Return SQLite's checksum over words in this machine's own order."""
    one = two = 0
    for at in range(0, len(head), 8):
        here, next_ = (
            int.from_bytes(head[place : place + 4], sys.byteorder) for place in (at, at + 4)
        )
        one = (one + here + two) & 0xFFFFFFFF
        two = (two + next_ + one) & 0xFFFFFFFF
    return one, two
