"""Committing what is in the queue: one transaction for as many submissions as there are.

The leader holds the session's lock. An interrupt may end it between any two steps; the next thread
that holds the lock, at the latest, finds out what became of the group that it had taken.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from copy import copy
from datetime import datetime
from functools import partial
from threading import get_ident

from sqlalchemy import Connection

from statebackend import telemetry
from statebackend.errors import (
    DuplicateEvent,
    InvalidTransition,
    OutcomeUnknown,
    SessionForked,
    StateBackendError,
    StorageBusy,
)
from statebackend.reading.held import HeldConnection, typed_errors
from statebackend.recording.commit_queue import CommitQueue, Submission
from statebackend.recording.guard import Guard
from statebackend.repositories import costs, events, meta, plans, producers
from statebackend.repositories.pending import PendingEvent, same_content
from statebackend.sqlite.faults import primary_code, storage_error
from statebackend.values import timestamps
from statebackend.values.recorded import Cost, PlanItem, Producer, SessionStatus

_RUNNING = SessionStatus.RUNNING  # a member of an enumeration is slow to look up on Python 3.11
_TRANSITIONS: dict[str, frozenset[SessionStatus]] = {
    SessionStatus.RUNNING: frozenset(SessionStatus) - {SessionStatus.RUNNING},
    SessionStatus.COMPLETED: frozenset({SessionStatus.RUNNING}),
    SessionStatus.CANCELLED: frozenset({SessionStatus.RUNNING}),
}


class Committer:
    """Commits the appends of every thread to one session, and its changes of status."""

    def __init__(self, held: HeldConnection, guard: Guard) -> None:
        self._held = held
        self._driver = held.driver
        self._guard = guard
        self._queue = CommitQueue()
        self._status = meta.select_status(self._driver)
        self._known_producers: set[Producer] = set()
        self._last_producer: Producer | None = None  # of those: compared without its hash

    # -- appends -------------------------------------------------------------------------------

    def append(self, pending: Sequence[PendingEvent]) -> Sequence[int]:
        """Commit all of *pending* in one transaction, alone or with others; return the sequences.

        Raises :class:`DuplicateEvent`, :class:`InvalidTransition`, :class:`SessionClosed`,
        :class:`OutcomeUnknown` and the storage errors; nothing of *pending* is then stored, but
        after :class:`OutcomeUnknown`.
        """
        submission = Submission(pending)
        if telemetry.is_off():
            self.commit((submission,))
            if submission.error is None and submission.sequences is not None:
                return submission.sequences
            return self.answer(submission)
        session_id = self._held.session_id
        with telemetry.span("statebackend.append", session_id=session_id, events=len(pending)):
            self.commit((submission,))
            return self.answer(submission)

    def commit(self, submissions: Sequence[Submission]) -> None:
        """Return when all *submissions* are done: each is durable, or has its error.

        They are committed in this order, those of several threads in the order of their coming.
        After an interrupt, each is committed or never will be.
        """
        self._refuse_reentry()
        queue = self._queue
        try:
            queue.join(submissions)
            for submission in submissions:
                if submission.gate is not None:
                    submission.wait()
                if not submission.done:
                    self._lead(submission)
        except BaseException:
            were_waiting = [queue.withdraw(submission) for submission in submissions]
            if not all(were_waiting) and self._held.user != get_ident():
                with self._held.lock:  # a leader that had taken some of them is done with them
                    pass
            raise

    def answer(self, submission: Submission) -> Sequence[int]:
        """Return the sequences of a submission that is done, or raise its error."""
        error = submission.error
        if error is None:
            assert submission.sequences is not None
            return submission.sequences
        if isinstance(error, sqlite3.Error):
            raise self._append_error(submission, error) from error
        if isinstance(error, StateBackendError):
            raise copy(error) from error.__cause__  # each thread has an object of its own
        raise error

    def check_appendable(self) -> None:
        """Raise :class:`SessionClosed`, or :class:`InvalidTransition` in a terminal status."""
        self._held.check_usable()
        if self._status != _RUNNING:
            advice = "set it to running first" if self._status in _TRANSITIONS else "it is final"
            raise InvalidTransition(
                self._held.session_id,
                self._status,
                f"is {self._status}, so nothing can be appended; {advice}",
            )

    def _refuse_reentry(self) -> None:
        held = self._held
        if held.is_forked:
            raise SessionForked(held.session_id)
        held.refuse_reentry()
        thread = get_ident()
        if self._queue.is_waiting(thread):
            raise StorageBusy(
                held.path,
                "an append of this thread waits for its commit, and this call interrupted it: "
                "append after that one has returned, not in a signal handler",
            )

    def _lead(self, submission: Submission) -> None:
        """Commit what is in the queue, until *submission* is done."""
        queue, held = self._queue, self._held
        with held.lock:
            held.refuse_reentry()
            held.user = get_ident()
            try:
                self._settle()
                while not submission.done:
                    if queue.group_size > 1:
                        queue.gather()
                    group = queue.take_group(submission)
                    self._commit_group(group)
                    queue.group = None
                if not held.closing:
                    self._guard.limit_wal(self._driver)
            except BaseException:
                submission.withdrawn = True
                self._settle()
                raise
            finally:
                held.user = 0

    def _settle(self) -> None:
        """Put right what an interrupted leader left; hold the lock."""
        group = self._queue.group
        if group and self._is_stored(group):
            for submission in group:
                if submission.sequences is not None or submission.error is not None:
                    submission.finish()
        self._roll_back()
        if group is not None:
            self._queue.put_back()

    def _is_stored(self, group: Sequence[Submission]) -> bool:
        """Tell by one of its events whether the transaction of *group* was committed."""
        if self._held.closing or self._driver.in_transaction:
            return False
        for submission in group:
            if submission.sequences is not None and not submission.done:
                stored = events.select_sequence(self._driver, submission.pending[-1].id)
                return stored == submission.sequences[-1]
        return False

    def _roll_back(self) -> None:
        """End a transaction; SQLite does so by itself after some errors, a full disk among them."""
        if not self._held.closing and self._driver.in_transaction:
            self._driver.execute("ROLLBACK")

    def _commit_group(self, group: list[Submission]) -> None:
        if telemetry.is_off():
            self._commit_together_or_alone(group)
            return
        with telemetry.span(
            "statebackend.commit",
            session_id=self._held.session_id,
            appends=len(group),
            events=sum(len(submission.pending) for submission in group),
        ):
            self._commit_together_or_alone(group)

    def _commit_together_or_alone(self, group: list[Submission]) -> None:
        """Commit in one transaction, or each in its own where one would spoil it for the others."""
        if not self._commit_together(group):
            for submission in group:
                submission.sequences = submission.error = None
            for submission in group:
                self._commit_together((submission,))

    def _commit_together(self, group: Sequence[Submission]) -> bool:
        """Commit *group* in one transaction, and finish its submissions.

        Return false, with nothing written, if one of several cannot be written at all.
        """
        error = self._insert_and_commit(group)
        if error is None:
            for submission in group:
                if submission.error is None:
                    for event in submission.pending:
                        if event.producer is not self._last_producer:
                            self._known_producers.add(event.producer)
                            self._last_producer = event.producer
                submission.finish()
            return True
        if len(group) > 1 and _is_about_one_append(error):
            return False
        for submission in group:
            submission.error = error
            submission.finish()
        return True

    def _insert_and_commit(self, group: Sequence[Submission]) -> Exception | None:
        driver, guard = self._driver, self._guard
        try:
            if self._held.closing or self._status != _RUNNING:
                self.check_appendable()
            guard.before()
            driver.execute("BEGIN IMMEDIATE")
            if len(group) == 1 and len(group[0].pending) == 1:
                self._insert_one(group[0])
            else:
                self._insert(group)
        except Exception as error:  # noqa: BLE001 - others may wait for an answer, whatever it is
            self._roll_back()
            if guard.is_lost:
                self._held.close_locked()
            return error
        try:
            driver.execute("COMMIT")
        except sqlite3.Error as error:
            failure = self._commit_error(error)
            failure.__cause__ = error
            return failure
        return self._check_after_commit()

    def _check_after_commit(self) -> StateBackendError | None:
        error = self._guard.after()
        if error is not None:
            self._held.close_locked()
        return error

    def _commit_error(self, error: sqlite3.Error) -> StateBackendError:
        """Undo what a failed commit left, and return what is known of its outcome (SB-19)."""
        undone = self._driver.in_transaction or primary_code(error) == sqlite3.SQLITE_FULL
        self._roll_back()
        if undone:
            return storage_error(self._held.path, error)
        self._held.close_locked()
        return OutcomeUnknown(
            self._held.path,
            f"the commit failed ({error}), and whether it was kept is unknown; the session is "
            "closed: open it and append again with the same event id",
        )

    # -- the rows of a group -------------------------------------------------------------------

    def _insert_one(self, submission: Submission) -> None:
        """Do for one event what :meth:`_insert` does for many: in half the time."""
        driver = self._driver
        (pending,) = submission.pending
        sequence = events.insert(driver, pending)
        submission.sequences = (sequence,)
        producer = pending.producer
        if producer is not self._last_producer and producer not in self._known_producers:
            producers.insert_if_new(driver, producer, sequence)
            if sequence == 1:
                meta.rewrite(driver)
        if pending.cost is not None:
            costs.insert_one(driver, sequence, pending.cost)
        if pending.items:
            plans.insert(driver, [(sequence, pending.items)])

    def _insert(self, group: Sequence[Submission]) -> None:
        cost_rows: list[tuple[int, Cost]] = []
        plan_rows: list[tuple[int, tuple[PlanItem, ...]]] = []
        first_seen: dict[Producer, int] = {}
        known, last = self._known_producers, self._last_producer
        self._insert_events(group)
        for submission in group:
            for event, sequence in zip(
                submission.pending, submission.sequences or (), strict=False
            ):
                if event.producer is not last and event.producer not in known:
                    first_seen.setdefault(event.producer, sequence)
                if event.cost is not None:
                    cost_rows.append((sequence, event.cost))
                if event.items:
                    plan_rows.append((sequence, event.items))
        for producer, sequence in first_seen.items():
            producers.insert_if_new(self._driver, producer, sequence)
        if 1 in first_seen.values():
            meta.rewrite(self._driver)
        if cost_rows:
            costs.insert(self._driver, cost_rows)
        if plan_rows:
            plans.insert(self._driver, plan_rows)

    def _insert_events(self, group: Sequence[Submission]) -> None:
        """Insert the events of all, many at once, or, if one is refused, by submission."""
        pending = [event for submission in group for event in submission.pending]
        try:
            sequences = events.insert_many(self._driver, pending)
        except sqlite3.IntegrityError:
            if len(group) == 1 or not self._driver.in_transaction:
                raise
            self._driver.execute("ROLLBACK")
            self._driver.execute("BEGIN IMMEDIATE")
            for submission in group:
                self._insert_submission(submission)
            return
        first = 0
        for submission in group:
            after = first + len(submission.pending)
            submission.sequences = sequences[first:after]
            first = after

    def _insert_submission(self, submission: Submission) -> None:
        try:
            if len(submission.pending) > 1:
                submission.sequences = events.insert_many(self._driver, submission.pending)
            else:
                submission.sequences = (events.insert(self._driver, submission.pending[0]),)
        except sqlite3.IntegrityError as error:
            if len(submission.pending) > 1 or not self._driver.in_transaction:
                raise
            submission.error = error  # SQLite undid the statement, and the transaction goes on

    # -- duplicates ----------------------------------------------------------------------------

    def _append_error(self, submission: Submission, error: sqlite3.Error) -> StateBackendError:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
            for pending in submission.pending:
                duplicate = self._held.read(partial(self._find, pending=pending))
                if duplicate is not None:
                    return duplicate
        return storage_error(self._held.path, error)

    def _find(self, connection: Connection, pending: PendingEvent) -> DuplicateEvent | None:
        event = events.select_by_id(connection, pending.id)
        if event is None:
            return None
        cost = costs.select_of_event(connection, event.sequence)
        items = plans.select_of_event(connection, event.sequence)
        same = same_content(event, cost, items, pending)
        return DuplicateEvent(self._held.session_id, pending.id, event.sequence, same)

    # -- status --------------------------------------------------------------------------------

    def change_status(self, target: SessionStatus, ended_at: datetime | None) -> None:
        """Change the status in a transaction of its own, after the appends before (SB-21)."""
        with self._held.exclusive(), typed_errors(self._held.path):
            self._settle()
            if target not in _TRANSITIONS.get(self._status, ()):
                raise InvalidTransition(
                    self._held.session_id,
                    self._status,
                    f"is {self._status} and cannot become {target}",
                )
            try:
                self._guard.before()
                self._update_status(target, ended_at)
            except BaseException:
                if self._guard.is_lost:
                    self._held.close_locked()
                if not self._held.closed:  # an interrupt may have come after the commit
                    self._roll_back()
                    self._status = meta.select_status(self._driver)
                raise
            self._status = target

    def _update_status(self, target: SessionStatus, ended_at: datetime | None) -> None:
        end = None if target is _RUNNING else timestamps.to_text(ended_at or timestamps.now())
        self._driver.execute("BEGIN IMMEDIATE")
        meta.update_status(self._driver, self._held.session_id, target, end)
        try:
            self._driver.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._commit_error(error) from error
        if (lost := self._check_after_commit()) is not None:
            raise lost


# Errors of SQLite about the rows of one append, and not about the file; 0 are the driver's own.
_CODES_ABOUT_ONE_APPEND = {
    0,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_TOOBIG,
}


def _is_about_one_append(error: Exception) -> bool:
    return (
        not isinstance(error, StateBackendError) and primary_code(error) in _CODES_ABOUT_ONE_APPEND
    )
