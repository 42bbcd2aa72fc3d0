"""Room in a young write-ahead log, made before the frames come that need it.

A sync that also has to make the log longer takes about twice as long as one that does not. Where
the log was made in larger pieces, syncs are faster later, too, when SQLite writes over it.

What is added are zeros behind the end. SQLite reads a log up to the first frame that is not of it,
which zeros never are; as it does where a log that was begun anew has older frames behind.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

ROOM_BYTES = 4 * 1024 * 1024
"""So long a log is when SQLite folds it in (1,000 pages); then it is begun anew."""
_STEP_BYTES = 256 * 1024
_FROM_BYTES = 100 * 1024


class LogRoom:
    """The room in one log, for the writer of its session."""

    def __init__(self, log: str) -> None:
        self._log = log
        self._size = 0

    @property
    def is_wanted(self) -> bool:
        """Whether :meth:`make` can still do something."""
        return self._size < ROOM_BYTES

    def make(self) -> None:
        """Make room if the commits since the last call made the log longer.

        It is as much again as the log has, up to a limit; none where it is so short that the
        session may be of a few events. Where the disk has no room, the commit that needs it will
        tell.
        """
        try:
            size = os.lstat(self._log).st_size
            if size > self._size and _FROM_BYTES <= size < ROOM_BYTES:
                size += _lengthen(self._log, size, min(size, _STEP_BYTES))
        except OSError:
            size = ROOM_BYTES
        self._size = max(size, self._size)


def _lengthen(log: str, size: int, count: int) -> int:
    """Add *count* zeros behind a log of *size* bytes; return how many it were.

    They go behind the end wherever it is by then, so never over what somebody wrote. SQLite has no
    locks on its log, so none is lost by closing a descriptor of it.
    """
    with Path(log).open("r+b", buffering=0) as file:  # an interrupt leaves no descriptor behind
        found = os.fstat(file.fileno())
        if found.st_size != size or not os.path.samestat(found, os.lstat(log)):
            return 0
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
        return file.write(bytes(count)) or 0
