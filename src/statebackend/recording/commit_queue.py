"""Group commit: the line of threads that wait to append to one session.

Who finds nobody waiting for the session's lock waits for it, as the heir; who comes meanwhile waits
to be told. The heir, once it has the lock, takes whatever stands in line and writes it in one
transaction. So a lone writer waits for nobody, and the next leader is always one that is at work.
Where the group before had several, their threads get a turn first: they mostly come again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock, RLock, get_ident

from statebackend.repositories.pending import PendingEvent

MAX_UNITS = 256
MAX_BYTES = 8 * 1024 * 1024
# Nobody waits for company by this: it ends the wait for a leader that two interrupts in a row have
# hindered from handing its work on.
PATIENCE_S = 1.0


class Unit:
    """What is kept whole or not at all: one append, or a batch.

    Once ``done``, it has either ``sequences`` or an ``error``: a raw one of SQLite about this unit
    alone, or the typed one of the whole transaction.
    """

    __slots__ = ("done", "error", "gate", "pending", "sequences", "thread", "withdrawn")

    def __init__(self, pending: Sequence[PendingEvent]) -> None:
        self.pending = pending
        self.sequences: Sequence[int] | None = None
        self.error: Exception | None = None
        self.done = False
        self.withdrawn = False
        self.thread = 0
        self.gate: Lock | None = None

    def shut(self) -> None:
        """Make :meth:`wait` wait."""
        self.gate = gate = Lock()
        gate.acquire()

    def wait(self) -> None:
        """Wait until this is done or has to lead, or until the leader may have been lost."""
        if self.gate is not None:
            self.gate.acquire(timeout=PATIENCE_S)

    def wake(self) -> None:
        """End the wait of its thread; harmless when it does not wait."""
        if self.gate is not None:
            with suppress(RuntimeError):  # open already
                self.gate.release()

    def finish(self) -> None:
        """Say that this is done."""
        self.done = True
        if self.gate is not None:
            self.wake()


class CommitQueue:
    """The units of one session that wait, in order, and those that are being written.

    An interrupt may come between any two steps; what it leaves is always put right by the next
    that holds the session's lock.
    """

    def __init__(self) -> None:
        # Held for a few steps only. Reentrant, for an append from a signal handler within them.
        self._mutex = RLock()
        self._waiting: deque[Unit] = deque()
        self._heir: Unit | None = None
        self.company = 1  # units in the group before
        self.taken: list[Unit] | None = None

    def gather(self) -> None:
        """Let those come who were in the group before: they were told just now, and come again.

        It takes no time where there was one alone, and else at most as many turns of other threads.
        """
        for _ in range(self.company if self.company > 1 else 0):
            if len(self._waiting) >= self.company:
                break
            time.sleep(0)

    def join(self, units: Sequence[Unit]) -> None:
        """Stand in line: as the heir, who waits for the session's lock, or to be told."""
        thread = get_ident()
        with self._mutex:
            for unit in units:
                unit.thread = thread
                heir = self._heir
                # An append from a signal handler cannot wait for the one that it interrupted.
                if heir is None or heir.thread == thread:
                    self._heir = unit
                else:
                    unit.shut()
                self._waiting.append(unit)

    def take(self, leader: Unit) -> list[Unit]:
        """Return the next units to write together; hold the session's lock.

        They are also in ``taken``, unless an append in a signal handler has written them already.
        """
        with self._mutex:
            waiting = self._waiting
            taken: list[Unit] = []
            self.taken = taken
            if waiting and waiting[0] is leader and len(waiting) == 1:  # as for a lone writer
                taken.append(leader)
                waiting.clear()
                self._heir = None
                self.company = 1
                return taken
            size = 0
            while len(taken) < MAX_UNITS and waiting:
                unit = waiting[0]
                for one in unit.pending:
                    size += len(one.payload)
                if taken and size > MAX_BYTES:
                    break
                if not (unit.withdrawn or unit.done):
                    taken.append(unit)
                self._remove(unit)  # only now, so that an interrupt cannot lose it
            if not (taken or leader.done):  # an interrupted leader has lost it
                taken.append(leader)
            self._appoint()
            self.company = len(taken)
            return taken

    def put_back(self) -> None:
        """Let those taken that are not done stand in front again; hold the session's lock."""
        with self._mutex:
            for unit in reversed(self.taken or ()):
                if not (unit.done or unit.withdrawn or unit in self._waiting):
                    unit.sequences = unit.error = None
                    self._waiting.appendleft(unit)
            self.taken = None
            self._appoint()

    def leave(self, unit: Unit) -> bool:
        """Take out one whose thread was interrupted; return whether it still stood in line."""
        unit.withdrawn = True
        with self._mutex:
            stood = self._remove(unit)
            if self._heir is unit or self._heir is None:
                self._appoint()
            return stood

    def _remove(self, unit: Unit) -> bool:
        try:
            self._waiting.remove(unit)
        except ValueError:
            return False
        return True

    def _appoint(self) -> None:
        heir = self._heir = self._waiting[0] if self._waiting else None
        if heir is not None:
            heir.wake()
