"""The queue of appends to one session that wait for their commit.

The first waiter leads the next group and blocks on the session's lock; later ones block until their
append is committed. The leader, once it has the lock, takes what is in the queue and commits it in
one transaction. So a lone writer waits for nobody, and the next leader is always one that is at
work. No timer waits for company: after a group of several, their threads get a turn first, since
most of them append again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock, RLock, get_ident

from statebackend.repositories.pending import PendingEvent

MAX_SUBMISSIONS = 256
MAX_BYTES = 8 * 1024 * 1024
# Ends the wait for a leader that two interrupts in a row kept from handing its work on.
LOST_LEADER_S = 1.0


class Submission:
    """What is committed whole or not at all: one append, or one batch.

    Once ``done``, it has either ``sequences`` or an ``error``: a raw one of SQLite about this
    submission alone, or the typed one of the whole transaction. One that an interrupt has
    ``withdrawn`` is never committed.
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

    def wait(self) -> None:
        """Wait until this is done or has to lead, or until the leader may have been lost."""
        if self.gate is not None:
            self.gate.acquire(timeout=LOST_LEADER_S)

    def wake(self) -> None:
        """End the wait of its thread; harmless when it does not wait."""
        if self.gate is not None:
            with suppress(RuntimeError):  # open already
                self.gate.release()

    def finish(self) -> None:
        """Mark it done."""
        self.done = True
        if self.gate is not None:
            self.wake()


class CommitQueue:
    """The submissions of one session that wait, in order, and the group that is being committed.

    An interrupt may come between any two steps; the next thread that holds the session's lock puts
    right what it leaves.
    """

    def __init__(self) -> None:
        # Held for a few steps only. Reentrant, since a signal handler may run within them.
        self._mutex = RLock()
        self._waiting: list[Submission] = []  # a deque takes 0.6 kB in each open session
        self._leader: Submission | None = None
        self.group_size = 1  # of the last group
        self.group: list[Submission] | None = None

    def is_waiting(self, thread: int) -> bool:
        """Tell whether that thread has a submission in the queue."""
        if not self._waiting:  # as for a lone writer
            return False
        with self._mutex:
            return any(each.thread == thread and not each.withdrawn for each in self._waiting)

    def join(self, submissions: Sequence[Submission]) -> None:
        """Put *submissions* of this thread at the end, the first as leader if there is none."""
        thread = get_ident()
        with self._mutex:
            for submission in submissions:
                submission.thread = thread
                if self._leader is None or self._leader.thread == thread:
                    self._leader = submission
                else:
                    submission.gate = gate = Lock()
                    gate.acquire()
                self._waiting.append(submission)

    def gather(self) -> None:
        """Give other threads a turn, at most as many as the last group had submissions.

        They were woken just now, and append again. It takes no time after a group of one.
        """
        for _ in range(self.group_size if self.group_size > 1 else 0):
            if len(self._waiting) >= self.group_size:
                break
            time.sleep(0)

    def take_group(self, leader: Submission) -> list[Submission]:
        """Return the next submissions to commit together, also kept in ``group``.

        For the thread that holds the session's lock.
        """
        with self._mutex:
            waiting = self._waiting
            group: list[Submission] = []
            self.group = group
            if waiting and waiting[0] is leader and len(waiting) == 1:  # as for a lone writer
                group.append(leader)
                waiting.clear()
                self._leader = None
                self.group_size = 1
                return group
            size = 0
            while len(group) < MAX_SUBMISSIONS and waiting:
                submission = waiting[0]
                for event in submission.pending:
                    size += len(event.payload)
                if group and size > MAX_BYTES:
                    break
                if not (submission.withdrawn or submission.done):
                    group.append(submission)
                self._remove(submission)  # only now, so that an interrupt cannot lose it
            if not (group or leader.done):  # an interrupted leader has lost it
                group.append(leader)
            self._appoint()
            self.group_size = len(group)
            return group

    def put_back(self) -> None:
        """Put those of the group that are not done in front again.

        For the thread that holds the session's lock.
        """
        with self._mutex:
            for submission in reversed(self.group or ()):
                if not (submission.done or submission.withdrawn or submission in self._waiting):
                    submission.sequences = submission.error = None
                    self._waiting.insert(0, submission)
            self.group = None
            self._appoint()

    def withdraw(self, submission: Submission) -> bool:
        """Take out one whose thread was interrupted; return whether it was still waiting."""
        submission.withdrawn = True
        with self._mutex:
            was_waiting = self._remove(submission)
            if self._leader is submission or self._leader is None:
                self._appoint()
            return was_waiting

    def _remove(self, submission: Submission) -> bool:
        try:
            self._waiting.remove(submission)
        except ValueError:
            return False
        return True

    def _appoint(self) -> None:
        leader = self._leader = self._waiting[0] if self._waiting else None
        if leader is not None:
            leader.wake()
