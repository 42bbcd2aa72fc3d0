"""Writing what stands in line to one session: a transaction for as many as there are.

Whoever leads holds the session's lock. An interrupt may end it between any two steps; whoever has
the lock next, at the latest, finds out what became of the units that it had taken.
"""

from __future__ import annotations

import os
import sqlite3
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection

from statebackend import telemetry
from statebackend.errors import SessionClosed, StateBackendError
from statebackend.files.open_files import OpenFile
from statebackend.reading.view import Handle
from statebackend.recording.commit_queue import CommitQueue, Unit
from statebackend.repositories import costs, events, meta, plans, producers
from statebackend.sqlite import checkpoint, engine
from statebackend.sqlite.faults import primary_code
from statebackend.sqlite.log_room import LogRoom
from statebackend.values.recorded import Cost, PlanItem, Producer

# SQLite folds its log in by itself, from 4 MB on, but can begin it anew only at a moment without
# readers. Where they overlap for ever there is none; from this length on, the writer waits for it.
FOLD_BYTES = 16 * 1024 * 1024
# So many commits lie between two looks at the log's length: a tenth of a small append each, and as
# much again for the next write, which then has to note its time (Linux).
_LOOK_EVERY = 16
_LOOK_AT_A_YOUNG_LOG_EVERY = 4


class Writer(Handle):
    """A handle that writes for every thread that appends through it."""

    def __init__(self, path: Path, file: OpenFile, connection: Connection) -> None:
        super().__init__(path, file, connection)
        self._driver = engine.driver_of(connection)
        self._line = CommitQueue()
        self._log_text = f"{path}-wal"
        self._log_room = LogRoom(self._log_text)
        self._commits = 0
        self._fold_bytes = FOLD_BYTES
        self._known_producers: set[Producer] = set()
        self._last_producer: Producer | None = None  # of those: it is told without its hash

    @abstractmethod
    def _check_before_append(self) -> None:
        """Raise if nothing can be appended now."""

    @abstractmethod
    def _commit_error(self, error: sqlite3.Error) -> StateBackendError:
        """Undo what a failed commit left, and return what is known of its outcome."""

    @abstractmethod
    def _lost_commit(self) -> StateBackendError | None:
        """Return the error, and close, if a commit that succeeded went nowhere."""

    def _write_units(self, units: Sequence[Unit]) -> None:
        """Return when all *units* are done: each is durable, or has its error.

        They are written in this order, those of several threads in the order of their coming. After
        an interrupt, each is written or never will be.
        """
        line = self._line
        try:
            line.join(units)
            for unit in units:
                if unit.gate is not None:
                    unit.wait()
                if not unit.done:
                    self._lead(unit)
        except BaseException:
            left = [line.leave(unit) for unit in units]
            if not all(left):
                with self._lock:  # a leader that had taken some of them is done with them
                    pass
            raise

    def _lead(self, unit: Unit) -> None:
        """Write what stands in line, until *unit* is done."""
        line = self._line
        with self._lock:
            beneath = line.taken is not None and self._settle()
            self._roll_back()  # what an interrupted write left
            try:
                while not unit.done:
                    if line.company > 1:
                        line.gather()
                    taken = line.take(unit)
                    if line.taken is taken:
                        if telemetry.is_off():
                            self._write_all(taken)
                        else:
                            self._write_in_span(taken)
                        line.taken = None
            except BaseException:
                unit.withdrawn = True
                self._settle()
                raise
            if beneath:
                self._begin_anew()
            else:
                self._roll_back()  # what a signal handler may have begun anew too late
                self._commits += 1
                if self._commits % _LOOK_AT_A_YOUNG_LOG_EVERY == 0:
                    self._tend_log()

    def _tend_log(self) -> None:
        """Give a young log room, and fold a long one in.

        Where a reader prevents that, it is tried again once the log has doubled.
        """
        if self._closing:
            return
        if self._log_room.is_wanted:
            self._log_room.make()
        if self._commits % _LOOK_EVERY:
            return
        try:
            size = os.stat(self._log_text).st_size  # noqa: PTH116 - a third of a Path's time
        except OSError:
            return
        if size < FOLD_BYTES:
            self._fold_bytes = FOLD_BYTES
        elif size >= self._fold_bytes and not checkpoint.restart_wal(self._driver):
            self._fold_bytes = 2 * size

    def _settle(self) -> bool:
        """Put right what an interrupted leader left; hold the lock.

        That leader may be gone. It may also go on beneath this, when this runs in a signal handler:
        it then finds that its units are its own no more, and rolls back what it has begun. Return
        whether there was one, so that :meth:`_begin_anew` is to be called at the end.
        """
        taken = self._line.taken
        if taken is None:
            self._roll_back()
            return False
        if taken and self._are_kept(taken):
            for unit in taken:
                if unit.sequences is not None or unit.error is not None:
                    unit.finish()
        self._roll_back()
        self._line.put_back()
        return True

    def _are_kept(self, taken: Sequence[Unit]) -> bool:
        """Tell by one of their events whether the last transaction of *taken* was committed."""
        if self._closing or self._driver.in_transaction:
            return False
        for unit in taken:
            if unit.sequences is not None and not unit.done:
                stored = events.select_sequence(self._driver, unit.pending[-1].id)
                return stored == unit.sequences[-1]
        return False

    def _begin_anew(self) -> None:
        """Give the write that this one interrupted a transaction that it can roll back.

        Without one, what it still executes would be committed statement by statement.
        """
        if not self._closing and not self._driver.in_transaction:
            self._driver.execute("BEGIN IMMEDIATE")

    def _roll_back(self) -> None:
        """End a transaction; SQLite does so by itself after some errors, a full disk among them."""
        if not self._closing and self._driver.in_transaction:
            self._driver.execute("ROLLBACK")

    def _write_in_span(self, taken: list[Unit]) -> None:
        with telemetry.span(
            "statebackend.commit",
            session_id=self.session_id,
            appends=len(taken),
            events=sum(len(unit.pending) for unit in taken),
        ):
            self._write_all(taken)

    def _write_all(self, taken: list[Unit]) -> None:
        """Write in one transaction, or each in its own where one would spoil it for the others."""
        if not self._write_together(taken, taken):
            for unit in taken:
                unit.sequences = unit.error = None
            for unit in taken:
                self._write_together(taken, (unit,))

    def _write_together(self, taken: list[Unit], units: Sequence[Unit]) -> bool:
        """Write *units*, of those *taken*, in one transaction, and finish them.

        Return false, with nothing written, if one of several cannot be written at all.
        """
        line = self._line
        error = self._begin_and_insert(units)
        if error is None and line.taken is taken:
            error = self._commit(taken)
        if line.taken is not taken:
            # An append in a signal handler has written them, or they are in line again.
            self._roll_back()
            return True
        if error is None:
            known = self._known_producers
            for unit in units:
                if unit.error is None:
                    for one in unit.pending:
                        if one.producer is not self._last_producer:
                            known.add(one.producer)
                            self._last_producer = one.producer
                unit.finish()
            return True
        if len(units) > 1 and _is_of_one(error):
            return False
        for unit in units:
            unit.error = error
            unit.finish()
        return True

    def _begin_and_insert(self, units: Sequence[Unit]) -> Exception | None:
        try:
            self._check_before_append()
            self._driver.execute("BEGIN IMMEDIATE")
            if len(units) == 1 and len(units[0].pending) == 1:
                self._insert_one(units[0])
            else:
                self._insert(units)
        except Exception as error:  # noqa: BLE001 - others may wait for an answer, whatever it is
            self._roll_back()
            if self._closing and not isinstance(error, StateBackendError):  # by a signal handler
                return SessionClosed(self.session_id)
            return error
        return None

    def _commit(self, taken: list[Unit]) -> Exception | None:
        try:
            self._driver.execute("COMMIT")
        except sqlite3.Error as error:
            if self._closing:
                return SessionClosed(self.session_id)
            if self._line.taken is not taken:
                return error
            failure = self._commit_error(error)
            failure.__cause__ = error
            return failure
        return self._lost_commit()

    def _insert_one(self, unit: Unit) -> None:
        """Do for one event what :meth:`_insert` does for many: in half the time."""
        driver = self._driver
        (pending,) = unit.pending
        sequence = events.insert(driver, pending)
        if not unit.done:  # by a signal handler, which wrote it under another number
            unit.sequences = (sequence,)
        producer = pending.producer
        if producer is not self._last_producer and producer not in self._known_producers:
            producers.insert_if_new(driver, producer, sequence)
            if sequence == 1:
                meta.rewrite(driver)
        if pending.cost is not None:
            costs.insert_one(driver, sequence, pending.cost)
        if pending.items:
            plans.insert(driver, [(sequence, pending.items)])

    def _insert(self, units: Sequence[Unit]) -> None:
        costed: list[tuple[int, Cost]] = []
        planned: list[tuple[int, tuple[PlanItem, ...]]] = []
        first_seen: dict[Producer, int] = {}
        known, last = self._known_producers, self._last_producer
        self._insert_events(units)
        for unit in units:
            for one, sequence in zip(unit.pending, unit.sequences or (), strict=False):
                if one.producer is not last and one.producer not in known:
                    first_seen.setdefault(one.producer, sequence)
                if one.cost is not None:
                    costed.append((sequence, one.cost))
                if one.items:
                    planned.append((sequence, one.items))
        for producer, sequence in first_seen.items():
            producers.insert_if_new(self._driver, producer, sequence)
        if 1 in first_seen.values():
            meta.rewrite(self._driver)
        if costed:
            costs.insert(self._driver, costed)
        if planned:
            plans.insert(self._driver, planned)

    def _insert_events(self, units: Sequence[Unit]) -> None:
        """Insert the events of all, many at once, or, if one is refused, by unit."""
        pending = [one for unit in units for one in unit.pending]
        try:
            sequences = events.insert_many(self._driver, pending)
        except sqlite3.IntegrityError:
            if len(units) == 1 or not self._driver.in_transaction:
                raise
            self._driver.execute("ROLLBACK")
            self._driver.execute("BEGIN IMMEDIATE")
            for unit in units:
                self._insert_unit(unit)
            return
        first = 0
        for unit in units:
            after = first + len(unit.pending)
            if not unit.done:  # by a signal handler, which wrote it under other numbers
                unit.sequences = sequences[first:after]
            first = after

    def _insert_unit(self, unit: Unit) -> None:
        sequences: Sequence[int]
        try:
            if len(unit.pending) > 1:
                sequences = events.insert_many(self._driver, unit.pending)
            else:
                sequences = (events.insert(self._driver, unit.pending[0]),)
        except sqlite3.IntegrityError as error:
            if len(unit.pending) > 1 or unit.done or not self._driver.in_transaction:
                raise
            unit.error = error  # SQLite undid the statement, and the transaction goes on
        else:
            if not unit.done:
                unit.sequences = sequences


# Errors of SQLite about the rows of one append, and not about the file; 0 are the driver's own.
_CODES_OF_ONE = {
    0,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_TOOBIG,
}


def _is_of_one(error: Exception) -> bool:
    return not isinstance(error, StateBackendError) and primary_code(error) in _CODES_OF_ONE
