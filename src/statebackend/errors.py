"""Every error that this package raises on purpose.

::

    StateBackendError
    ├── InvalidValue            a value that cannot be stored; nothing was written
    ├── InvalidTransition       a status change, or an append, that the session's status forbids
    ├── DuplicateEvent          an event id that the session already holds
    ├── SessionNotFound         no such session
    ├── SessionExists           the id is taken
    ├── SessionLocked           another writer holds the session
    ├── SessionClosed           the handle is closed
    │   └── SessionForked       the handle, or the file, was carried across a fork
    ├── SchemaTooNew            the file was written by a newer version
    ├── SchemaOutdated          the file is old and cannot be migrated now
    ├── MigrationFailed         a migration step failed; the file kept its version
    ├── SessionDamaged          the file fails its integrity check
    ├── SessionUnreadable       the file is not a session, or nothing of it can be read
    └── StorageError            the system refused: permission, input/output, descriptors
        ├── StorageFull         no room left
        ├── StorageBusy         SQLite's lock was not free within the busy timeout
        ├── StorageUnsupported  the file system cannot do what a session needs
        └── OutcomeUnknown      a commit whose result the system could not tell

Facts are attributes (``problem`` is the message without the path). The message says what happened,
to which file, and what to do next.
Every error survives pickling.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any


class StateBackendError(Exception):
    """Base of every error raised by this package."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        for name, value in facts.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (type(self), self.args, self.__dict__.copy()))


def _restore(
    cls: type[StateBackendError], args: tuple[Any, ...], facts: dict[str, Any]
) -> StateBackendError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(facts)
    return error


class InvalidValue(StateBackendError):
    """A value that cannot be stored. ``field`` names it; nothing was written."""

    field: str

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}", field=field)


class InvalidTransition(StateBackendError):
    """The session's status forbids this change or this append."""

    session_id: str
    status: str

    def __init__(self, session_id: str, status: str, problem: str) -> None:
        super().__init__(f"session {session_id}: {problem}", session_id=session_id, status=status)


class DuplicateEvent(StateBackendError):
    """The session already holds this event id; nothing was written.

    ``sequence`` is the stored event's. ``same_content`` is true when the stored event, with its
    cost and plan rows, equals what was to be appended: a retry then has already succeeded.
    ``sequence`` is None when both events were in one batch.
    """

    session_id: str
    event_id: str
    sequence: int | None
    same_content: bool

    def __init__(
        self, session_id: str, event_id: str, sequence: int | None, same_content: bool
    ) -> None:
        where = "twice in this batch" if sequence is None else f"stored at sequence {sequence}"
        verdict = (
            "with the same content, so the earlier append succeeded"
            if same_content
            else "with other content; use a new id"
        )
        super().__init__(
            f"session {session_id}: event id {event_id!r} is {where}, {verdict}",
            session_id=session_id,
            event_id=event_id,
            sequence=sequence,
            same_content=same_content,
        )


class SessionNotFound(StateBackendError):
    """No session of this id in the folder."""

    session_id: str
    directory: Path

    def __init__(self, session_id: str, directory: Path) -> None:
        super().__init__(
            f"no session {session_id} in {directory}", session_id=session_id, directory=directory
        )


class SessionExists(StateBackendError):
    """The id is taken, also by a session of which only a damaged original is left."""

    session_id: str
    path: Path

    def __init__(self, session_id: str, path: Path) -> None:
        super().__init__(
            f"session {session_id} exists already: {path}", session_id=session_id, path=path
        )


class SessionLocked(StateBackendError):
    """Another writer holds the session (SB-05).

    ``pid`` is the holder's process id, ``host`` its machine, ``since`` when it took the claim;
    the last two are None when the holder had not written them yet.
    """

    session_id: str
    pid: int
    host: str | None
    since: datetime | None

    def __init__(self, session_id: str, pid: int, host: str | None, since: datetime | None) -> None:
        on = f" on {host}" if host else ""
        at = f" since {since.isoformat(timespec='seconds')}" if since else ""
        super().__init__(
            f"session {session_id} is open for writing in process {pid}{on}{at}; "
            "read it instead, or wait until that writer closes it",
            session_id=session_id,
            pid=pid,
            host=host,
            since=since,
        )


class SessionClosed(StateBackendError):
    """The handle is closed."""

    session_id: str

    def __init__(self, session_id: str, problem: str = "is closed; open it again") -> None:
        super().__init__(f"session {session_id} {problem}", session_id=session_id)


class SessionForked(SessionClosed):
    """The session was open in the parent when this process was forked.

    SQLite's locks do not survive a fork, so neither the inherited handle nor a new one on the same
    file is safe here. Use the session in the parent, or in a process that was spawned.
    """

    def __init__(self, session_id: str) -> None:
        super().__init__(
            session_id,
            "was open when this process was forked; use it in the parent process, "
            "or in one started anew (the spawn start method)",
        )


class SchemaTooNew(StateBackendError):
    """The file's ``user_version`` is above the highest this package knows; it was not touched."""

    path: Path
    problem: str
    found_version: int
    supported_version: int

    def __init__(self, path: Path, found_version: int, supported_version: int) -> None:
        problem = (
            f"schema version {found_version}, this program knows up to {supported_version}; "
            "update it (a damaged file header can look the same)"
        )
        super().__init__(
            f"{path}: {problem}",
            path=path,
            problem=problem,
            found_version=found_version,
            supported_version=supported_version,
        )


class SchemaOutdated(StateBackendError):
    """The file's schema is old and cannot be migrated now."""

    path: Path
    found_version: int
    required_version: int

    def __init__(self, path: Path, found_version: int, required_version: int, problem: str) -> None:
        super().__init__(
            f"{path}: schema version {found_version} must be migrated to {required_version} "
            f"first, which is not possible now: {problem}",
            path=path,
            found_version=found_version,
            required_version=required_version,
        )


class MigrationFailed(StateBackendError):
    """A migration step failed; the file is at the version it had."""

    path: Path
    from_version: int
    to_version: int

    def __init__(self, path: Path, from_version: int, to_version: int, problem: str) -> None:
        super().__init__(
            f"{path}: migration from version {from_version} to {to_version} failed, the file "
            f"is unchanged: {problem}",
            path=path,
            from_version=from_version,
            to_version=to_version,
        )


class SessionDamaged(StateBackendError):
    """The file fails its check. ``findings`` holds what was found, at most 100 lines."""

    path: Path
    problem: str
    findings: tuple[str, ...]

    def __init__(self, path: Path, findings: tuple[str, ...]) -> None:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        problem = f"is damaged: {findings[0]}{more}"
        super().__init__(
            f"{path}: {problem}; nothing was changed",
            path=path,
            problem=problem,
            findings=findings,
        )


class SessionUnreadable(StateBackendError):
    """The path holds no session: not a regular file, no schema version, or nothing readable."""

    path: Path
    problem: str

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}", path=path, problem=problem)


class StorageError(StateBackendError):
    """The operating system refused. ``path`` is the file or folder it was about."""

    path: Path
    problem: str

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}", path=path, problem=problem)


class StorageFull(StorageError):
    """No room left; nothing of the operation was kept, and the session stays usable."""


class StorageBusy(StorageError):
    """SQLite's own lock was not free within the busy timeout; try again."""


class StorageUnsupported(StorageError):
    """The file system cannot do what a session file needs (WAL mode, locks)."""


class OutcomeUnknown(StorageError):
    """A commit failed in a way that leaves its result open; the session was closed.

    Open it again and append with the same event id: :class:`DuplicateEvent` with ``same_content``
    means that the first try had succeeded.
    """
