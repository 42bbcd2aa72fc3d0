"""Appends of asyncio tasks: those of one round of the event loop are committed together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextvars import copy_context
from functools import partial
from threading import Lock

from statebackend import telemetry
from statebackend.errors import SessionClosed, SessionForked, StateBackendError
from statebackend.recording.commit_queue import Submission
from statebackend.recording.group_commit import Committer
from statebackend.recording.thread_pool import Sequencer, post
from statebackend.repositories.pending import PendingEvent


class RoundCommitter:
    """Commits the appends of one asyncio session through its :class:`Committer`, in a thread."""

    def __init__(self, session_id: str, committer: Committer, sequencer: Sequencer) -> None:
        self._session_id = session_id
        self._committer = committer
        self._sequencer = sequencer
        self._mutex = Lock()
        self._round: _Round | None = None  # the one that takes appends
        self._is_closed = False
        self._pid = os.getpid()

    async def append(self, pending: Sequence[PendingEvent]) -> Sequence[int]:
        """Commit *pending* in one transaction, as :meth:`Committer.append`, and wait for it.

        A cancelled task takes its append back, unless its commit has begun.
        """
        if telemetry.is_off():  # as in `_append`, without a coroutine in between
            entry = self.submit(pending)
            try:
                return await entry.waiter
            except asyncio.CancelledError:
                self.withdraw(entry)
                raise
        with telemetry.span(
            "statebackend.append", session_id=self._session_id, events=len(pending)
        ):
            return await self._append(pending)

    async def _append(self, pending: Sequence[PendingEvent]) -> Sequence[int]:
        entry = self.submit(pending)
        try:
            return await entry.waiter
        except asyncio.CancelledError:
            self.withdraw(entry)
            raise

    def submit(self, pending: Sequence[PendingEvent]) -> Entry:
        """Let *pending* be committed with what else is appended in this round of the loop."""
        if self._pid != os.getpid():  # the child has none of the threads
            raise SessionForked(self._session_id)
        loop = asyncio.get_running_loop()
        with self._mutex:
            if self._is_closed:
                raise SessionClosed(self._session_id)
            current = self._round
            if current is not None and current.loop is not loop:
                self._start_round()  # that loop may be busy for long, or never run again
                current = None
            if current is None:
                self._round = current = _Round(loop)
                # What runs in this round of the loop can still join.
                loop.call_soon(self._start, current)
            entry = Entry(pending, loop.create_future(), current)
            current.entries.append(entry)
        return entry

    def withdraw(self, entry: Entry) -> None:
        """Take out what a cancelled task has appended, unless its commit has begun."""
        with self._mutex:
            if not entry.round.has_begun:
                entry.round.entries.remove(entry)

    def start_pending(self) -> None:
        """Start the round that takes appends, so that a later call in the session comes after."""
        with self._mutex:
            self._start_round()

    def close(self) -> None:
        """Take no more appends, and start what is pending."""
        with self._mutex:
            self._is_closed = True
            self._start_round()

    def _start(self, current: _Round) -> None:
        """Start a round at the end of its turn of the loop, unless it was started before."""
        with self._mutex:
            if self._round is current:
                self._start_round()

    def _start_round(self) -> None:
        """Let a thread commit the open round, if there is one; hold the mutex."""
        current, self._round = self._round, None
        if current is None:
            return
        try:
            self._sequencer.start(partial(current.context.run, self._commit, current))
        except StateBackendError as error:
            current.has_begun = True
            for entry in current.entries:
                entry.error = error
            post(current.loop, partial(_deliver, current.entries))

    def _commit(self, current: _Round) -> None:
        with self._mutex:
            current.has_begun = True
        entries = current.entries
        try:
            self._committer.commit([entry.submission for entry in entries])
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            for entry in entries:
                if not entry.submission.done:
                    entry.error = error
        for entry in entries:
            submission = entry.submission
            if (
                entry.error is None
                and submission.error is None
                and submission.sequences is not None
            ):
                entry.sequences = submission.sequences
            elif entry.error is None:
                try:  # in the thread, since naming a duplicate reads from the file
                    entry.sequences = self._committer.answer(submission)
                except Exception as error:  # noqa: BLE001 - raised again where it is awaited
                    entry.error = error
        post(current.loop, partial(_deliver, entries))


class Entry:
    """One append, or batch, and the future that its task waits for."""

    __slots__ = ("error", "round", "sequences", "submission", "waiter")

    def __init__(
        self,
        pending: Sequence[PendingEvent],
        waiter: asyncio.Future[Sequence[int]],
        current: _Round,
    ) -> None:
        self.submission = Submission(pending)
        self.waiter = waiter
        self.round = current
        self.sequences: Sequence[int] = ()
        self.error: BaseException | None = None


class _Round:
    """What is committed together: what was appended in one round of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.entries: list[Entry] = []
        self.context = copy_context()  # its span is within that of the first append
        self.has_begun = False


def _deliver(entries: Sequence[Entry]) -> None:
    for entry in entries:
        if entry.waiter.done():
            continue
        if entry.error is None:
            entry.waiter.set_result(entry.sequences)
        else:
            entry.waiter.set_exception(entry.error)
