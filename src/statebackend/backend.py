"""``StateBackend``: the folder of sessions."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from statebackend.bulk import pages
from statebackend.errors import InvalidValue
from statebackend.files.paths import SessionFiles, sessions_directory
from statebackend.scanning import listing, scan
from statebackend.values import ids, timestamps, validation
from statebackend.values.recorded import EventKind, Producer, SessionInfo, SessionStatus
from statebackend.values.reports import MigrationResult, ReapResult, Recovery, VerificationResult
from statebackend.values.results import (
    BadSession,
    CostGrouping,
    CostReport,
    PlanRules,
    ReferencedProducers,
    SearchResult,
    SessionCost,
    SessionTree,
)

if TYPE_CHECKING:
    from statebackend.bulk.cross_session import CrossSession
    from statebackend.interchange.claude_code.prices import ModelPrice
    from statebackend.interchange.report import ImportReport
    from statebackend.reading.view import SessionView
    from statebackend.recording.session import Session


class StateBackend:
    """The sessions of one folder, one SQLite file each (specification, "File layout").

    Without *directory* it is ``$XDG_STATE_HOME/agent/sessions``, as the specification requires; the
    argument is for tests, backups and tools. The path is made absolute once, so a later change of
    the working directory does not matter. The folder is created with the first session.

    >>> from statebackend import Producer, StateBackend
    >>> backend = StateBackend("sessions")
    >>> with backend.create("default") as session:
    ...     prompt = session.append_prompt(payload=b"Hello", schema_version="1")
    ...     session.set_status("completed")
    >>> [info.status for info in backend.list()]
    [<SessionStatus.COMPLETED: 'completed'>]
    >>> with backend.read(session.session_id) as view:
    ...     [event.payload for event in view.events()]
    [b'Hello']
    >>> [hit.sequence for hit in backend.search("hello").hits]
    [1]

    Questions across sessions read the files with ``sqlite3`` alone and never write to them. Those
    about more than the newest sessions use the catalogue, a derived copy outside the folder that
    gives the same answers, if it exists or the folder is large; not with ``catalogue=False``.
    Nothing here deletes a session.
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, *, catalogue: bool = True
    ) -> None:
        self._uses_catalogue = catalogue
        if directory is None:
            directory = sessions_directory()
        self.directory = Path(os.path.abspath(validation.check_path("directory", directory)))

    def __repr__(self) -> str:
        return f"StateBackend({str(self.directory)!r})"

    # -- one session ---------------------------------------------------------------------------

    def create(
        self,
        profile: str,
        *,
        parent_session_id: str | None = None,
        depth: int = 0,
        session_id: str | None = None,
        started_at: datetime | None = None,
    ) -> Session:
        """Create a session with status running and return it open for writing; durable on return.

        Without *session_id*, a new id with the time *started_at* is used (None: now). Raises
        :class:`InvalidValue`, :class:`SessionExists` and the storage errors.
        """
        from statebackend.opening.create import create

        validation.check_text("profile", profile)
        validation.check_integer("depth", depth)
        if parent_session_id is not None:
            ids.check_session_id(parent_session_id, "parent_session_id")
        if started_at is None:
            started_at = timestamps.now()
        started_at = timestamps.normalize("started_at", started_at)
        if session_id is None:
            session_id = ids.new_session_id(started_at)
        path = SessionFiles.of(self.directory, session_id).path
        if session_id == parent_session_id:
            raise InvalidValue("parent_session_id", "a session cannot be its own parent")
        start = timestamps.to_text(started_at)
        row = (session_id, parent_session_id, profile, SessionStatus.RUNNING, depth, start, None)
        return create(path, row)

    def open(self, session_id: str) -> Session:
        """Open a session for writing, as its sole writer: claim, check, migrate if old.

        A damaged one is recovered: what can be saved goes into a new file, the damaged one is kept
        beside it, and the session's ``recovery`` is the report (specification, "Corruption
        recovery"). Raises :class:`SessionNotFound`, :class:`SessionLocked` naming the other writer,
        :class:`SchemaTooNew`, :class:`SessionUnreadable` (also when nothing can be saved; the
        original is then kept as ``.corrupt``), :class:`MigrationFailed` and the storage errors.
        """
        from statebackend.opening.write import open_for_writing

        return open_for_writing(SessionFiles.of(self.directory, session_id).path)

    def read(self, session_id: str, *, check: bool = True) -> SessionView:
        """Open a session for reading, also while a writer has it; the folder stays as it is.

        *check* runs SQLite's integrity check first, whose time grows with the file. Raises as
        :meth:`open` does, except :class:`SessionLocked` and :class:`MigrationFailed`; and
        :class:`SchemaOutdated` and :class:`SessionDamaged`: reading neither migrates nor repairs.
        """
        from statebackend.opening.read import open_for_reading

        return open_for_reading(SessionFiles.of(self.directory, session_id).path, check=check)

    def read_partial(self, session_id: str) -> AbstractContextManager[SessionView]:
        """Open for reading what can be saved of a damaged session, for a ``with`` block.

        The view's ``recovery`` says what is missing; it is None if the session is not damaged. The
        saved rows are in a temporary folder until the block ends; the session's own folder stays as
        it is. Raises as :meth:`read` does; :class:`SessionUnreadable` when nothing can be saved.
        """
        from statebackend.opening.read import open_partial

        return open_partial(SessionFiles.of(self.directory, session_id).path)

    def copy(self, session_id: str, path: str | os.PathLike[str]) -> Path:
        """Write a consistent copy of a session, also of a live one, and return its path.

        *path* must not exist yet; if it is a folder, the copy is written into it under the
        session's own name. The copy is made by SQLite's backup, checked, and readable by its owner
        only. Raises as :meth:`read` does, and :class:`StorageError` when *path* cannot be written.
        """
        from statebackend.reading import copying

        target = Path(validation.check_path("path", path))
        with self.read(session_id, check=False) as view:
            return copying.copy(view, target)

    def recoveries(self) -> builtins.list[Recovery]:
        """Return the reports of all recoveries in the folder, newest first.

        A report that cannot be read is left out, with a warning to the logger. Raises
        :class:`StorageError` when the folder cannot be listed.
        """
        from statebackend.files import recovery_reports

        return recovery_reports.read_all(self.directory)

    # -- maintenance ---------------------------------------------------------------------------

    def verify(
        self, session_ids: Iterable[str] | None = None, *, threads: int = 2
    ) -> Iterator[VerificationResult]:
        """Check these sessions (None: all, newest first), lazily; one result for each.

        The check covers integrity, references, schema, version and every row. It changes nothing,
        also while a writer has the session. A bad file gives a result and does not stop the others.
        Raises :class:`InvalidValue` for a single string, and :class:`StorageError` when the folder
        cannot be listed.
        """
        from statebackend.bulk import migration

        return migration.verify_each(self.directory, _distinct_ids(session_ids), threads=threads)

    def migrate(
        self,
        session_ids: Iterable[str] | None = None,
        *,
        dry_run: bool = False,
        threads: int = 4,
    ) -> Iterator[MigrationResult]:
        """Bring these sessions (None: all, newest first) to the current version, lazily.

        Each session gives one result, and the sessions whose results were not consumed may be left
        as they are. With *dry_run* nothing is changed. A session that a program writes is skipped;
        a bad file does not stop the others. An interrupted run continues with the next one. Raises
        :class:`InvalidValue` for a single string, and :class:`StorageError` when the folder cannot
        be listed.
        """
        from statebackend.bulk import migration

        return migration.migrate_each(
            self.directory, _distinct_ids(session_ids), dry_run=dry_run, threads=threads
        )

    def recover(self, session_id: str) -> Recovery | None:
        """Recover a damaged session now and return the report; None if it is not damaged.

        :meth:`open` recovers the same way. A sound session is left as it is, also one of an older
        version. Raises :class:`SessionNotFound`, :class:`SessionLocked`, :class:`SchemaTooNew`,
        :class:`SessionUnreadable` when nothing can be saved, and the storage errors
        (specification, "Corruption recovery").
        """
        from statebackend.bulk import migration

        return migration.recover_damaged(SessionFiles.of(self.directory, session_id).path)

    def import_transcripts(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        prices: Mapping[str, ModelPrice] | None = None,
        profile: str | None = None,
    ) -> ImportReport:
        """Import Claude Code transcripts: each main or sub-agent file becomes a session.

        A folder stands for every ``*.jsonl`` file below it. *prices* are US dollars per million
        tokens by model name; a turn without a price is stored at 0.0 and counted. *profile* is
        that of the sessions created (default ``claude-code``). Importing a file again adds only
        what is new. A file that cannot be imported is reported as refused and does not stop the
        others. Raises :class:`InvalidValue` for a wrong argument, and :class:`StorageError` when
        the folder of sessions cannot be listed.
        """
        from statebackend.interchange.claude_code import importer

        if isinstance(paths, str | os.PathLike):
            raise InvalidValue("paths", "must be several paths, such as [path]")
        if profile is not None:
            validation.check_text("profile", profile)
        return importer.import_claude_code(
            self.directory,
            [Path(validation.check_path("paths", path)) for path in paths],
            prices=prices,
            profile=profile,
        )

    # -- across sessions -----------------------------------------------------------------------

    def ids(self) -> Iterator[str]:
        """Return the stem of every session file, newest first, without opening any.

        Raises :class:`StorageError` when the folder cannot be listed.
        """
        return iter(listing.stems(self.directory))

    def scan(self) -> Iterator[SessionInfo | BadSession]:
        """Return every session, newest first, lazily; a file that cannot be read is a `BadSession`.

        Raises :class:`StorageError` when the folder cannot be listed.
        """
        return scan.read_all(self.directory, scan.read_summary)

    def list(
        self,
        *,
        limit: int | None = 20,
        after: str | None = None,
        status: SessionStatus | str | None = None,
        profile: str | None = None,
        parent_session_id: str | None = None,
        roots: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[SessionInfo | BadSession]:
        """Return the newest sessions that match every filter, at most *limit* (None: all).

        *after* is the last ``session_id`` of the page before; it need not exist any more. *since*
        (inclusive) and *until* (exclusive) compare the time in the id. *roots* leaves out sessions
        with a parent. A file that cannot be read may match, so it is in, as a
        :class:`BadSession`. Only the files shown, or read to apply a filter, are opened. Raises
        :class:`InvalidValue`, and :class:`StorageError` when the folder cannot be listed.
        """
        if limit is not None:
            validation.check_integer("limit", limit)
        if status is not None:
            status = validation.check_word("status", SessionStatus, status)
        if parent_session_id is not None:
            ids.check_session_id(parent_session_id, "parent_session_id")
        if profile is not None:
            validation.check_text("profile", profile, empty=True)
        if limit == 0:
            return []
        return pages.list_page(
            self.directory,
            scan.SessionFilter(
                status=status, profile=profile, parent_session_id=parent_session_id, roots=roots
            ),
            limit=limit,
            after=_check_cursor(after),
            first_time=_id_prefix("since", since),
            end_time=_id_prefix("until", until),
            catalogue=self._uses_catalogue,
        )

    def children(self, session_id: str) -> builtins.list[SessionInfo | BadSession]:
        """Return the sessions whose parent is *session_id*, newest first.

        A file that cannot be read may be one of them, and is in, as a :class:`BadSession`. Raises
        as :meth:`list` does.
        """
        return self.list(limit=None, parent_session_id=session_id)

    def stale(self) -> builtins.list[SessionInfo | BadSession]:
        """Return the sessions with status running but without a living writer, newest first.

        A file that cannot be read may be one of them, and is in, as a :class:`BadSession`. Raises
        :class:`StorageError` when the folder cannot be listed.
        """
        return self._cross_session().stale()

    def reap(
        self,
        status: SessionStatus | str,
        *,
        session_ids: Iterable[str] | None = None,
        dry_run: bool = True,
    ) -> builtins.list[ReapResult]:
        """Give *status* to these stale sessions (None: all): running, but without a living writer.

        A dry run changes nothing and returns what would be done. ``ended_at`` becomes the time of
        the last event, or the start if there is none. A live, damaged or newer session is left as
        it is and has a result that says so. An older one is migrated, as by :meth:`open`. Raises
        :class:`InvalidValue`, and :class:`StorageError` when the folder cannot be listed.
        """
        from statebackend.bulk import stale

        target = validation.check_word("status", SessionStatus, status)
        if target is SessionStatus.RUNNING:
            raise InvalidValue("status", "a session that is closed is not running")
        chosen = _distinct_ids(session_ids)
        return [*stale.reap_each(self.directory, target, chosen, dry_run=dry_run)]

    def tree(self, session_id: str | None = None) -> SessionTree:
        """Return all sessions as trees, or the tree below *session_id*, with their cost.

        Raises :class:`InvalidValue` for a wrong id, :class:`SessionNotFound`, for an unreadable
        *session_id* what :meth:`read` raises, and :class:`StorageError` when the folder cannot be
        listed.
        """
        if session_id is not None:
            ids.check_session_id(session_id)
        return self._cross_session().tree(session_id)

    def cost(self, session_id: str, *, tree: bool = False) -> SessionCost:
        """Return what a session cost, summed now from its ledger; with *tree*, inclusive too.

        No roll-up is stored anywhere, so sums over all sessions count nothing twice. Raises as
        :meth:`tree` does.
        """
        ids.check_session_id(session_id)
        questions = self._cross_session()
        return questions.tree_cost(session_id) if tree else questions.cost(session_id)

    def cost_by(
        self,
        by: CostGrouping,
        *,
        session_ids: Iterable[str] | None = None,
        tree: bool = False,
    ) -> CostReport:
        """Return the spend of these sessions (None: all) by group, the highest cost first.

        With *tree*, their descendants are included, each session once. A day is the UTC date of
        the event that caused the spend, as stored. Raises :class:`InvalidValue`, and for each of
        the *session_ids* as :meth:`tree` does.
        """
        groupings = get_args(CostGrouping)
        if by not in groupings:
            raise InvalidValue("by", f"{by!r} is not one of: {', '.join(groupings)}")
        chosen = _distinct_ids(session_ids)
        for session_id in chosen or ():
            ids.check_session_id(session_id)
        return self._cross_session().cost_by(by, chosen, with_descendants=tree)

    def plan_rules(self) -> PlanRules:
        """Return how often each rule took each decision, over all sessions.

        Raises :class:`StorageError` when the folder cannot be listed.
        """
        return self._cross_session().plan_rules()

    def referenced_producers(self) -> ReferencedProducers:
        """Return every plug-in build that a session refers to: what a cache must keep.

        Raises :class:`StorageError` when the folder cannot be listed.
        """
        return self._cross_session().referenced_producers()

    def search(
        self,
        words: str,
        *,
        limit: int | None = 20,
        kind: EventKind | str | None = None,
        producer: Producer | str | None = None,
        profile: str | None = None,
        session_ids: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> SearchResult:
        """Return the events whose text contains all the *words*, at most *limit* (None: all).

        The best come first, of equally good ones the newest. *words* is plain text; a part in
        double quotes is searched as a phrase. Without a letter or digit, nothing matches. Only
        events that match every filter count: *producer* is a :class:`Producer`, or a text such as
        ``name``, ``category/name`` or ``category/name@version``; *since* (inclusive) and *until*
        (exclusive) compare the event's time.

        The index is in the catalogue and is brought up to date first; *progress* is called with
        how many sessions, then events, are done, and of how many. Raises :class:`InvalidValue`,
        :class:`SessionNotFound` for one of the *session_ids*, and :class:`StorageError` when there
        can be no index.
        """
        from statebackend.catalogue import search
        from statebackend.catalogue.words import phrases

        if not isinstance(words, str):
            raise InvalidValue("words", f"must be text, not {type(words).__name__}")
        if limit is not None:
            validation.check_integer("limit", limit)
        if profile is not None:
            validation.check_text("profile", profile, empty=True)
        if isinstance(producer, str):
            validation.check_text("producer", producer)
        elif producer is not None and not isinstance(producer, Producer):
            raise InvalidValue("producer", "must be a Producer or a text")
        chosen = _distinct_ids(session_ids)
        query = search.Query(
            phrases(words),
            limit,
            kind if kind is None else validation.check_word("kind", EventKind, kind),
            producer,
            profile,
            None if chosen is None else [*map(ids.check_session_id, chosen)],
            _stored_time("since", since),
            _stored_time("until", until),
        )
        return search.search(self.directory, query, progress)

    def _cross_session(self) -> CrossSession:
        from statebackend.bulk.cross_session import CrossSession

        return CrossSession(self.directory, catalogue=self._uses_catalogue)


def _distinct_ids(session_ids: Iterable[str] | None) -> list[str] | None:
    if session_ids is None:
        return None
    if isinstance(session_ids, str):
        raise InvalidValue("session_ids", "must be several ids, such as [session_id]")
    distinct = list(dict.fromkeys(session_ids))
    for session_id in distinct:
        validation.check_text("session_ids", session_id)
    return distinct


def _check_cursor(after: str | None) -> str | None:
    if after is not None and (
        not isinstance(after, str) or not after or "/" in after or "\0" in after
    ):
        raise InvalidValue("after", f"{after!r} can be the session_id of no listed session")
    return after


def _id_prefix(field: str, moment: datetime | None) -> str | None:
    return None if moment is None else ids.time_prefix(timestamps.normalize(field, moment))


def _stored_time(field: str, moment: datetime | None) -> str | None:
    return None if moment is None else timestamps.to_text(timestamps.normalize(field, moment))
