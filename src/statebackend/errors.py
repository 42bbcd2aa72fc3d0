"""The errors that this package raises.

::

    StateBackendError
    ├── InvalidValue            a value that cannot be stored; nothing was written
    ├── InvalidTransition       the session's status forbids this change or this append
    ├── DuplicateEvent          the session already has an event with this id
    ├── SessionNotFound         there is no session with this id
    ├── SessionExists           there is already a session with this id
    ├── SessionLocked           another writer holds the session
    ├── SessionClosed           the session object is closed
    │   └── SessionForked       the session was open when this process was forked
    ├── SchemaTooNew            a newer version of this package wrote the file
    ├── SchemaOutdated          the file must be migrated, which is not possible now
    ├── MigrationFailed         a migration step failed; the file is unchanged
    ├── SessionDamaged          the file fails its integrity check
    ├── SessionUnreadable       the file is not a session, or nothing of it can be read
    └── StorageError            the system refused: permissions, input/output, descriptors
        ├── StorageFull         no space left on the device
        ├── StorageBusy         SQLite's lock was not free within the busy timeout
        ├── StorageUnsupported  the file system cannot do what a session needs
        └── OutcomeUnknown      a commit failed; the append may or may not be stored

Facts are attributes; ``problem`` is the message without the path. The message says what happened,
to which file or session, and what to do next. Every error can be pickled.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any


class StateBackendError(Exception):
    """Base class of the errors that this package raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call __init__ with the message only.
        return (_create, (type(self), *self.args), self.__dict__.copy())


def _create(cls: type[StateBackendError], *args: Any) -> StateBackendError:
    return cls.__new__(cls, *args)


class InvalidValue(StateBackendError):
    """Raised for an argument that cannot be stored or has no meaning; nothing was written.

    ``field`` is the name of the argument or of its field.
    """

    field: str

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class InvalidTransition(StateBackendError):
    """Raised by a status change or an append that the session's status forbids (SB-21).

    ``session_id`` is the session, ``status`` its status; nothing was written.
    """

    session_id: str
    status: str

    def __init__(self, session_id: str, status: str, problem: str) -> None:
        super().__init__(f"session {session_id}: {problem}")
        self.session_id, self.status = session_id, status


class DuplicateEvent(StateBackendError):
    """Raised by an append whose event id the session already has; nothing was written (SB-11).

    ``session_id`` and ``event_id`` name the event; ``sequence`` is that of the stored event, None
    if both events are in one batch. ``same_content`` tells whether the stored event, with its cost
    and plan rows, equals the new one: an earlier try of the same append has then succeeded.
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
        super().__init__(f"session {session_id}: event id {event_id!r} is {where}, {verdict}")
        self.session_id, self.event_id = session_id, event_id
        self.sequence, self.same_content = sequence, same_content


class SessionNotFound(StateBackendError):
    """Raised when the folder ``directory`` has no session ``session_id``."""

    session_id: str
    directory: Path

    def __init__(self, session_id: str, directory: Path) -> None:
        super().__init__(f"no session {session_id} in {directory}")
        self.session_id, self.directory = session_id, directory


class SessionExists(StateBackendError):
    """Raised by ``create`` when the id is in use, even if only a damaged original is left.

    ``session_id`` is the id, ``path`` the file that has it.
    """

    session_id: str
    path: Path

    def __init__(self, session_id: str, path: Path) -> None:
        super().__init__(
            f"session {session_id} exists already ({path}); open it, or use another id"
        )
        self.session_id, self.path = session_id, path


class SessionLocked(StateBackendError):
    """Raised when another writer has the session open (SB-05).

    ``session_id`` is the session, ``pid`` the writer's process id, ``host`` its machine and
    ``since`` the time (aware UTC) of its claim; the last two are None if not recorded yet.
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
            "read it instead, or wait until that writer closes it"
        )
        self.session_id, self.pid, self.host, self.since = session_id, pid, host, since


class SessionClosed(StateBackendError):
    """Raised by every method of a closed session or view; ``session_id`` is the session."""

    session_id: str

    def __init__(self, session_id: str, problem: str = "is closed; open it again") -> None:
        super().__init__(f"session {session_id} {problem}")
        self.session_id = session_id


class SessionForked(SessionClosed):
    """Raised in a forked process for a session that its parent had open.

    A fork does not inherit SQLite's locks, so neither the inherited object nor a new one on the
    same file is safe here. Use the session in the parent process or in a spawned one.
    """

    def __init__(self, session_id: str) -> None:
        super().__init__(
            session_id,
            "was open when this process was forked; use it in the parent process, "
            "or in a spawned one",
        )


class SchemaTooNew(StateBackendError):
    """Raised for a file whose schema is newer than this package; the file is unchanged (SB-31).

    ``path`` is the file, ``found_version`` its ``user_version``, ``supported_version`` the highest
    that this package can open, ``problem`` the message without the path.
    """

    path: Path
    problem: str
    found_version: int
    supported_version: int

    def __init__(self, path: Path, found_version: int, supported_version: int) -> None:
        problem = (
            f"schema version {found_version}, this program knows up to {supported_version}; "
            "update it (a damaged file header can look the same)"
        )
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem
        self.found_version, self.supported_version = found_version, supported_version


class SchemaOutdated(StateBackendError):
    """Raised by ``read`` when the file must be migrated first and that is not possible now.

    ``path`` is the file, ``found_version`` its version, ``required_version`` the current one.
    """

    path: Path
    found_version: int
    required_version: int

    def __init__(self, path: Path, found_version: int, required_version: int, problem: str) -> None:
        super().__init__(
            f"{path}: schema version {found_version} must be migrated to {required_version} "
            f"first, which is not possible now: {problem}"
        )
        self.path = path
        self.found_version, self.required_version = found_version, required_version


class MigrationFailed(StateBackendError):
    """Raised when a migration step failed; the file still has its old version.

    ``path`` is the file, ``from_version`` its version, ``to_version`` the version aimed at.
    """

    path: Path
    from_version: int
    to_version: int

    def __init__(self, path: Path, from_version: int, to_version: int, problem: str) -> None:
        super().__init__(
            f"{path}: migration from version {from_version} to {to_version} failed, the file "
            f"is unchanged: {problem}"
        )
        self.path, self.from_version, self.to_version = path, from_version, to_version


class SessionDamaged(StateBackendError):
    """Raised by ``read`` for a file that fails the integrity check; the file is unchanged.

    ``path`` is the file, ``findings`` what the check found (at most 100 lines), ``problem`` the
    message without the path.
    """

    path: Path
    problem: str
    findings: tuple[str, ...]

    def __init__(self, path: Path, findings: tuple[str, ...]) -> None:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        problem = f"is damaged: {findings[0]}{more}"
        super().__init__(f"{path}: {problem}; nothing was changed")
        self.path, self.problem, self.findings = path, problem, findings


class SessionUnreadable(StateBackendError):
    """Raised for a path that is not a session: no regular file, no version, or nothing readable.

    ``path`` is the path, ``problem`` the message without it.
    """

    path: Path
    problem: str

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


class StorageError(StateBackendError):
    """Raised when the operating system or SQLite refuses an operation.

    ``path`` is the file or folder concerned, ``problem`` the message without it.
    """

    path: Path
    problem: str

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


class StorageFull(StorageError):
    """Raised when the device is full; nothing was written, and the session stays usable."""


class StorageBusy(StorageError):
    """Raised when SQLite's lock was not free within the busy timeout; try again."""


class StorageUnsupported(StorageError):
    """Raised when the file system lacks what a session needs: WAL mode or locks."""


class OutcomeUnknown(StorageError):
    """Raised when a commit failed and its result is unknown; the session is then closed (SB-19).

    Open the session again and append with the same event id: :class:`DuplicateEvent` with
    ``same_content`` means that the first try succeeded.
    """
