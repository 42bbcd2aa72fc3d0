"""One session open for writing: :class:`Session`."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection

from statebackend.errors import InvalidValue
from statebackend.files.claim import Claim
from statebackend.files.open_files import OpenFile
from statebackend.files.sqlite_locks import SqliteLocks
from statebackend.reading.held import HeldConnection
from statebackend.reading.view import SessionReads
from statebackend.recording.appends import AppendChecks, Appends, Batch, appended_event
from statebackend.recording.group_commit import Committer
from statebackend.recording.guard import Guard
from statebackend.repositories.pending import PendingEvent
from statebackend.sqlite import engine
from statebackend.values import timestamps, validation
from statebackend.values.recorded import Event, SessionStatus


class Session(SessionReads, Appends[Event]):
    """A session open for writing, as its sole writer (SB-05). It reads as a view does.

    Made by :meth:`StateBackend.create` and :meth:`StateBackend.open`. An append that returned is
    durable: it survives a crash of the process and a loss of power. Reads see what is committed.
    Methods may be called from any thread; one that a signal handler calls within another call of
    the same thread raises :class:`StorageBusy`.

    >>> from statebackend import Cost, Producer, StateBackend
    >>> backend = StateBackend("sessions")
    >>> with backend.create("default") as session:
    ...     prompt = session.append_prompt(payload=b"6 times 7?", schema_version="1")
    ...     answer = session.append_message(
    ...         producer=Producer("model", "claude", "4.5"),
    ...         payload=b"42",
    ...         cost=Cost(
    ...             provider_name="anthropic",
    ...             model_id="claude-sonnet-4-5",
    ...             input_tokens=12,
    ...             output_tokens=3,
    ...             cost_usd=0.000081,
    ...         ),
    ...     )
    ...     session.set_status("completed")
    ...     [event.payload for event in session.events()]
    [b'6 times 7?', b'42']
    >>> session.close()  # harmless when repeated
    """

    def __init__(
        self,
        path: Path,
        file: OpenFile,
        connection: Connection,
        *,
        claim: Claim,
        locks: SqliteLocks,
    ) -> None:
        engine.read_by_default(connection)
        guard = Guard(path, file, connection, claim=claim, locks=locks)
        held = HeldConnection(path, file, connection, locks=locks, release=guard.release)
        SessionReads.__init__(self, held)
        row_limit_bytes = held.driver.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
        committer = self._committer = Committer(held, guard)

        def commit(pending: PendingEvent) -> Event:
            (sequence,) = committer.append((pending,))
            return appended_event(pending, sequence)

        Appends.__init__(self, AppendChecks(row_limit_bytes), commit)

    def batch(self) -> Batch:
        """Collect appends, and commit them in one transaction when the block ends: all or none.

        For a ``with`` block of one thread. Nothing is written if the block raises; ``batch.events``
        has the events with their sequences afterwards. Raises :class:`InvalidTransition` in a
        terminal status, and at the end of the block what an append raises; a
        :class:`DuplicateEvent` then names the first event whose id is stored.

        >>> from statebackend import EventKind, Producer, StateBackend
        >>> with StateBackend("sessions").create("default") as session:
        ...     with session.batch() as batch:
        ...         prompt_id = batch.append_prompt(payload=b"Read it.", schema_version="1")
        ...         call_id = batch.append(
        ...             EventKind.TOOL_CALL,
        ...             producer=Producer("tool", "read", "1.0"),
        ...             payload=b"{}",
        ...             schema_version="1",
        ...         )
        ...     [event.sequence for event in batch.events]
        [1, 2]
        """
        self._committer.check_appendable()
        return Batch(self.session_id, self._checks, self._committer.append)

    def set_status(self, status: SessionStatus | str, *, ended_at: datetime | None = None) -> None:
        """Change the status, durable on return (SB-21).

        From running to any other, which sets ``ended_at`` (now when None); from completed or
        cancelled back to running, which clears it. Raises :class:`InvalidTransition` for anything
        else, :class:`InvalidValue`, and what an append raises.
        """
        target = validation.check_word("status", SessionStatus, status)
        if ended_at is not None:
            if target is SessionStatus.RUNNING:
                raise InvalidValue("ended_at", "a running session has no end")
            ended_at = timestamps.normalize("ended_at", ended_at)
        self._committer.change_status(target, ended_at)


def committer_of(session: Session) -> Committer:
    """Return what commits the appends of *session*, for its asyncio counterpart."""
    return session._committer  # noqa: SLF001 - the same module


def checks_of(session: Session) -> AppendChecks:
    """Return the checks that the appends of *session* share."""
    return session._checks  # noqa: SLF001 - the same module
