"""Room in a young write-ahead log, made before the frames come that need it.

A sync that also has to make the log longer takes about twice as long as one that does not. Where
the log was made in larger pieces, syncs are faster later, too, when SQLite writes over it.

What is added are zeros behind the end. SQLite reads a log up to the first frame that is not of it,
which zeros never are; as it does where a log that was begun anew has older frames behind.
"""

from __future__ import annotations

import os

ROOM_BYTES = 4 * 1024 * 1024
"""So long a log is when SQLite folds it in (1,000 pages); then it is begun anew."""
_STEP_BYTES = 256 * 1024


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
        """Make room if the commits since the last call made the log longer; not at the first call.

        It is as much again as the log has, up to a limit, so that the log of a few events hardly
        grows. Where the disk has no room, the commit that needs it will tell.
        """
        try:
            size = os.stat(self._log).st_size  # noqa: PTH116 - a third of a Path's time
            if self._size and size > self._size:
                size += _lengthen(self._log, min(size, _STEP_BYTES))
        except OSError:
            size = ROOM_BYTES
        self._size = max(size, self._size)


def _lengthen(log: str, count: int) -> int:
    """Add *count* zeros behind the end, wherever that is meanwhile; return how many it were.

    SQLite has no locks on its log, so none is lost by closing a descriptor of it.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(log, flags)
    try:
        return os.write(descriptor, bytes(count))
    finally:
        os.close(descriptor)
