"""Ask the kernel which process holds a POSIX record lock."""

from __future__ import annotations

import fcntl
import struct
import sys

# struct flock, as fcntl(2) lays it out: type, whence, start, length, pid.
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi"


def locked_by(descriptor: int, start: int = 0, length: int = 0) -> int | None:
    """Return the pid of another process with a lock on *length* bytes from *start*, None if none.

    A *length* of 0 means to the end of the file. The kernel answers -1 for a lock that belongs to
    an open file and not to a process. Asking takes no lock, so it never disturbs a writer.
    """
    darwin = sys.platform == "darwin"
    span = (start, length, 0)
    fields = (*span, fcntl.F_WRLCK, 0) if darwin else (fcntl.F_WRLCK, 0, *span)
    answer = struct.unpack(
        _FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, *fields))
    )
    kind, pid = (answer[3], answer[2]) if darwin else (answer[0], answer[4])
    return None if kind == fcntl.F_UNLCK else pid
