"""Reading a large file from front to back before SQLite's integrity check follows its trees.

On a file that is not in the page cache, that takes a fourth to a sixth of the time.
"""

from __future__ import annotations

import os
from pathlib import Path

_READ_AHEAD_BYTES, _SAMPLES = 4 << 20, 32


def read_ahead(path: Path, start: int) -> int | None:
    """Read on from byte *start*, so that SQLite need not fetch single pages; return where to go on.

    Its check follows the trees, all over the file: on one that is not in memory that takes several
    times as long as reading it from front to back. None at the end, and at the start if the file is
    small or in memory already, since copying it would cost too.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if start == 0 and (size < _READ_AHEAD_BYTES or not _is_cold(descriptor, size)):
            return None
        buffer = bytearray(min(_READ_AHEAD_BYTES, max(size - start, 0)))
        read = os.preadv(descriptor, [buffer], start) if buffer else 0
        return start + read if read else None
    finally:
        os.close(descriptor)


def _is_cold(descriptor: int, size: int) -> bool:
    """Tell whether half of some pages all over the file would have to be fetched from the disk."""
    without_waiting = getattr(os, "RWF_NOWAIT", None)
    if without_waiting is None:  # only Linux tells
        return False
    page, absent = [bytearray(512)], 0
    for at in range(0, size, max(size // _SAMPLES, 1)):
        try:
            os.preadv(descriptor, page, at, without_waiting)
        except BlockingIOError:
            absent += 1
        except OSError:  # this file system cannot tell
            return False
    return absent * 2 >= _SAMPLES
