"""``StateBackend``: the folder of sessions."""

from __future__ import annotations

import builtins
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from statebackend.bulk.tree import arrange, descendants
from statebackend.errors import InvalidValue, SessionNotFound
from statebackend.files.paths import SessionFiles, sessions_directory
from statebackend.scanning import aggregates, scan
from statebackend.values import ids, rows, timestamps, validation
from statebackend.values.recorded import CostTotals, EventKind, Producer, SessionInfo, SessionStatus
from statebackend.values.reports import (
    MigrationResult,
    ReapResult,
    Recovery,
    VerificationResult,
)
from statebackend.values.results import (
    BadSession,
    CostGroup,
    CostGrouping,
    CostReport,
    PlanRule,
    PlanRules,
    ReferencedProducers,
    SearchResult,
    SessionCost,
    SessionTree,
)

if TYPE_CHECKING:
    from statebackend.bulk.across import Across
    from statebackend.catalogue.query import Question
    from statebackend.interchange.claude_code.prices import ModelPrice
    from statebackend.interchange.report import ImportReport
    from statebackend.reading.view import SessionView
    from statebackend.recording.session import Session

_T = TypeVar("_T")

# So many files take less time than a look at all of a large folder, and often hold a whole page.
_LOOKED_AT_FIRST = 200


class StateBackend:
    """The sessions of one folder, one SQLite file each (specification, "File layout").

    Without *directory* it is ``$XDG_STATE_HOME/agent/sessions``, as the specification fixes it;
    the argument is for tests, backups and tools. The path is made absolute once, so a later change
    of the working directory does not matter. Nothing is made until a session is.

    Listing and everything else across sessions scans the files, reads them with ``sqlite3`` alone
    and never writes. What asks for more than the newest ones uses the catalogue, a derived copy
    outside the folder that gives the same answers, if there is one or the folder is large; not with
    ``catalogue=False``. Nothing here ever deletes a session.
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

        Without *session_id* one is made whose time is *started_at* (now when None). Raises
        :class:`InvalidValue`, :class:`SessionExists` and the storage errors.
        """
        from statebackend.opening.create import create

        validation.check_text("profile", profile)
        validation.check_integer("depth", depth)
        if parent_session_id is not None:
            ids.check_session_id(parent_session_id, "parent_session_id")
        started_at = (
            timestamps.now()
            if started_at is None
            else timestamps.normalize("started_at", started_at)
        )
        if session_id is None:
            session_id = ids.new_session_id(started_at)
        path = SessionFiles.of(self.directory, session_id).path
        if session_id == parent_session_id:
            raise InvalidValue("parent_session_id", "a session cannot be its own parent")
        return create(
            path,
            (
                session_id,
                parent_session_id,
                profile,
                SessionStatus.RUNNING,
                depth,
                timestamps.to_text(started_at),
                None,
            ),
        )

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
        :meth:`open` does, but :class:`SessionLocked`; and :class:`SchemaOutdated`, and
        :class:`SessionDamaged`, since reading never repairs.
        """
        from statebackend.opening.read import open_for_reading

        return open_for_reading(SessionFiles.of(self.directory, session_id).path, check=check)

    def read_partial(self, session_id: str) -> AbstractContextManager[SessionView]:
        """Open for reading what can be saved of a damaged session, for a ``with`` block.

        The view's ``recovery`` says what is missing; None means that the session is sound, and
        shown as it is. What is saved lies in a temporary folder until the block ends; the session's
        own folder stays as it is. Raises as :meth:`read` does, and :class:`SessionUnreadable` when
        nothing can be saved.
        """
        from statebackend.opening.read import open_partial

        return open_partial(SessionFiles.of(self.directory, session_id).path)

    def copy(self, session_id: str, path: str | os.PathLike[str]) -> Path:
        """Write a consistent copy of a session, also of a live one, and return its path.

        *path* must not exist yet; if it is a folder, the copy goes into it under the session's
        own name. The copy is made by SQLite's backup, checked, and readable by its owner only.
        """
        from statebackend.reading import copying

        target = Path(validation.check_path("path", path))
        with self.read(session_id, check=False) as view:
            return copying.copy(view, target)

    def recoveries(self) -> builtins.list[Recovery]:
        """Return the reports of all recoveries in the folder, newest first.

        A report that cannot be read is left out, with a warning in the log.
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
        from statebackend.bulk import recovery

        return recovery.recover_damaged(SessionFiles.of(self.directory, session_id).path)

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
        """Return the stem of every session file, newest first, without opening any."""
        return iter(scan.stems(self.directory))

    def scan(self) -> Iterator[SessionInfo | BadSession]:
        """Return every session, newest first, lazily; a bad file is a :class:`BadSession`."""
        listed = scan.listing(self.directory)
        return scan.read_each(self.directory, scan.read_summary, listed.stems, listed)

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
        """Return the newest sessions, at most *limit* (None: all), those that match every filter.

        *after* goes on behind the last ``session_id`` of the page before, also when that session is
        gone by now. *since* (inclusive) and *until* (exclusive) go by the time in the id. *roots*
        leaves out sessions with a parent. A file that cannot be read matches every filter, since
        nobody knows, and comes as a :class:`BadSession`. Only the files shown, or looked at by a
        filter, are opened.
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
        matches = _Filter(status, profile, parent_session_id, roots)
        whole = limit is None and after is None and since is None and until is None
        if whole and not matches.all_match:
            return list(filter(matches, self._across().each(matches.question())))
        listed = scan.listing(self.directory)
        stems = _between(_after(listed.stems, after), since, until)
        looked_at = len(stems) if matches.all_match else _LOOKED_AT_FIRST
        first, rest = stems[:looked_at], stems[looked_at:]
        each = scan.read_each(self.directory, scan.read_summary, first, listed)
        found = list(islice(filter(matches, each), limit))
        if not rest or len(found) == limit:
            return found
        left = None if limit is None else limit - len(found)

        def take(each: Iterator[SessionInfo | BadSession]) -> list[SessionInfo | BadSession]:
            return list(islice(filter(matches, each), left))

        return found + self._across().ask(matches.question(), take, rest)

    def children(self, session_id: str) -> builtins.list[SessionInfo | BadSession]:
        """Return the sessions whose parent is *session_id*, newest first.

        A file that cannot be read may be one of them, and comes as a :class:`BadSession`.
        """
        return self.list(limit=None, parent_session_id=session_id)

    def stale(self) -> builtins.list[SessionInfo | BadSession]:
        """Return the sessions that say running but have no living writer, newest first.

        A file that cannot be read may be one of them, and comes as a :class:`BadSession`.
        """
        from statebackend.catalogue import query

        return [
            one
            for one in self._across().each(query.summary(status=SessionStatus.RUNNING))
            if isinstance(one, BadSession) or (one.status == SessionStatus.RUNNING and not one.live)
        ]

    def reap(
        self,
        status: SessionStatus | str,
        *,
        session_ids: Iterable[str] | None = None,
        dry_run: bool = True,
    ) -> builtins.list[ReapResult]:
        """Give *status* to these sessions (None: all) that say running but have no living writer.

        A dry run only tells what would be done. ``ended_at`` becomes the time of the last event
        (without one, the start), since nothing happened after it. A live session is never touched,
        nor is a damaged or newer one: they are told. An older one is migrated, as by :meth:`open`.
        """
        from statebackend.bulk import stale

        target = validation.check_word("status", SessionStatus, status)
        if target is SessionStatus.RUNNING:
            raise InvalidValue("status", "a session that is closed is not running")
        chosen = _distinct_ids(session_ids)
        return [*stale.reap_each(self.directory, target, chosen, dry_run=dry_run)]

    def tree(self, session_id: str | None = None) -> SessionTree:
        """Return all sessions as trees, or the one below *session_id*, with their cost.

        Raises :class:`SessionNotFound` if *session_id* is not among the readable sessions.
        """
        root = None if session_id is None else self._read_one(session_id)
        sessions, bad = self._totals(None if session_id is None else [session_id])
        if root is not None and root[0].session_id not in {info.session_id for info, _ in sessions}:
            sessions.append(root)  # it went between two readings
        return SessionTree(nodes=tuple(arrange(sessions, session_id)), unreadable=tuple(bad))

    def cost(self, session_id: str, *, tree: bool = False) -> SessionCost:
        """Return what a session cost, summed now from its ledger; with *tree*, inclusive too.

        No roll-up is stored anywhere, so sums over all sessions count nothing twice.
        """
        ids.check_session_id(session_id)
        if not tree:
            info, own = self._read_one(session_id)
            return SessionCost(
                session_id=session_id,
                own=own,
                inclusive=None,
                sessions=1,
                unreadable=(),
                incomplete=(session_id,) if info.incomplete else (),
            )
        nodes = self.tree(session_id)
        return SessionCost(
            session_id=session_id,
            own=nodes.nodes[0].own,
            inclusive=nodes.nodes[0].inclusive,
            sessions=len(nodes.nodes),
            unreadable=nodes.unreadable,
            incomplete=nodes.incomplete,
        )

    def cost_by(
        self,
        by: CostGrouping,
        *,
        session_ids: Iterable[str] | None = None,
        tree: bool = False,
    ) -> CostReport:
        """Return the spend of these sessions (None: all) by group, the dearest group first.

        With *tree*, their descendants are in as well, each session once. A day is the UTC date of
        the event that caused the spend, as stored.
        """
        if not isinstance(by, str) or by not in aggregates.GROUPINGS:
            raise InvalidValue("by", f"{by!r} is not one of: {', '.join(aggregates.GROUPINGS)}")
        stems = _distinct_ids(session_ids)
        from statebackend.catalogue import query

        lacking = _Lacking()
        for stem in stems or ():
            self._read_one(stem)
        if stems is not None and tree:
            sessions, bad = self._totals(stems)
            lacking.unreadable.extend(bad)
            stems = descendants(sessions, stems)
        sums: dict[str, list[CostTotals]] = {}
        for one in lacking.read_from(self._each(query.groups(by), stems)):
            for key, totals in one:
                sums.setdefault(key, []).append(totals)
        groups = [CostGroup(key=key, totals=rows.add_totals(parts)) for key, parts in sums.items()]
        groups.sort(key=lambda group: (-(group.totals.cost_usd or 0.0), group.key))
        return CostReport(
            groups=tuple(groups),
            unreadable=tuple(lacking.unreadable),
            incomplete=tuple(lacking.incomplete),
        )

    def plan_rules(self) -> PlanRules:
        """Return how often each rule took each decision, over all sessions."""
        from statebackend.catalogue import query

        counts: dict[tuple[str, str], int] = {}
        lacking = _Lacking()
        for one in lacking.read_from(self._each(query.plan_rules())):
            for decided_by, decision, count in one:
                key = (decided_by, decision)
                counts[key] = counts.get(key, 0) + count
        rules = [
            PlanRule(decided_by=decided_by, decision=decision, count=count)
            for (decided_by, decision), count in counts.items()
        ]
        rules.sort(key=lambda rule: (-rule.count, rule.decided_by, rule.decision))
        return PlanRules(
            rules=tuple(rules),
            unreadable=tuple(lacking.unreadable),
            incomplete=tuple(lacking.incomplete),
        )

    def referenced_producers(self) -> ReferencedProducers:
        """Return every plug-in build that a session refers to: what a cache must keep."""
        from statebackend.catalogue import query

        referenced: set[tuple[str, str, str]] = set()
        lacking = _Lacking()
        for one in lacking.read_from(self._each(query.producers())):
            referenced.update(one)
        return ReferencedProducers(
            producers=tuple(Producer(*one) for one in sorted(referenced)),
            unreadable=tuple(lacking.unreadable),
            incomplete=tuple(lacking.incomplete),
        )

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
        """Return the events whose text holds all the *words*, at most *limit* (None: all).

        The best come first, of equally good ones the newest. *words* is plain text; what is in
        double quotes is looked for as a phrase. Without a letter or digit, nothing is found. Only
        events that meet every filter count: *producer* is a :class:`Producer`, or a text such as
        ``name``, ``category/name`` or ``category/name@version``; *since* (inclusive) and *until*
        (exclusive) go by the event's time.

        The index is the catalogue's, and is brought up to date first; *progress* hears of how many
        sessions, then events, of how many. Raises :class:`InvalidValue`, :class:`SessionNotFound`
        for one of the *session_ids*, and :class:`StorageError` when there can be no index.
        """
        from statebackend.catalogue import search
        from statebackend.catalogue.words import phrases

        if not isinstance(words, str):
            raise InvalidValue("words", f"must be text, not {type(words).__name__}")
        if limit is not None:
            validation.check_integer("limit", limit)
        if isinstance(session_ids, str):
            raise InvalidValue("session_ids", "must be several ids, such as [session_id]")
        if profile is not None:
            validation.check_text("profile", profile, empty=True)
        if isinstance(producer, str):
            validation.check_text("producer", producer)
        elif producer is not None and not isinstance(producer, Producer):
            raise InvalidValue("producer", "must be a Producer or a text")
        query = search.Query(
            phrases(words),
            limit,
            kind if kind is None else validation.check_word("kind", EventKind, kind),
            producer,
            profile,
            None if session_ids is None else [*map(ids.check_session_id, session_ids)],
            None if since is None else timestamps.to_text(timestamps.normalize("since", since)),
            None if until is None else timestamps.to_text(timestamps.normalize("until", until)),
        )
        return search.search(self.directory, query, progress)

    def _across(self) -> Across:
        from statebackend.bulk.across import Across

        return Across(self.directory, catalogue=self._uses_catalogue)

    def _each(
        self, question: Question[tuple[SessionInfo, _T]], stems: builtins.list[str] | None = None
    ) -> Iterable[tuple[SessionInfo, _T] | BadSession]:
        if stems is None:
            return self._across().each(question)
        if len(stems) <= _LOOKED_AT_FIRST:
            return scan.read_each(self.directory, question.read, stems)
        place = {stem: number for number, stem in enumerate(stems)}
        from statebackend.catalogue.query import session_id

        return self._across().ask(
            question, lambda each: sorted(each, key=lambda one: place[session_id(one)]), stems
        )

    def _totals(
        self, roots: builtins.list[str] | None
    ) -> tuple[builtins.list[tuple[SessionInfo, CostTotals]], builtins.list[BadSession]]:
        """Return all sessions with their sums, or at least those that the trees of *roots* need."""
        from statebackend.catalogue import query

        across = self._across()
        if roots is not None and (found := across.below(roots)) is not None:
            return found
        sessions: list[tuple[SessionInfo, CostTotals]] = []
        bad: list[BadSession] = []
        for one in across.each(query.totals()):
            if isinstance(one, BadSession):
                bad.append(one)
            else:
                sessions.append(one)
        return sessions, bad

    def _read_one(self, session_id: str) -> tuple[SessionInfo, CostTotals]:
        """Read one session, raising what a listing would only flag."""
        ids.check_session_id(session_id)
        for one in scan.read_each(self.directory, scan.read_totals, [session_id]):
            if isinstance(one, BadSession):
                raise one.error
            return one
        raise SessionNotFound(session_id, self.directory)


@dataclass(frozen=True, slots=True)
class _Filter:
    """What a session must be to be listed; None and False ask for nothing."""

    status: str | None
    profile: str | None
    parent_session_id: str | None
    roots: bool

    @property
    def all_match(self) -> bool:
        """Tell whether it asks for nothing."""
        return self == _Filter(None, None, None, roots=False)

    def question(self) -> Question[SessionInfo]:
        """Return what to ask the catalogue, which leaves most others out by itself."""
        from statebackend.catalogue import query

        return query.summary(**asdict(self))

    def __call__(self, one: SessionInfo | BadSession) -> bool:
        return isinstance(one, BadSession) or (
            (self.status is None or one.status == self.status)
            and (self.profile is None or one.profile == self.profile)
            and (self.parent_session_id is None or one.parent_session_id == self.parent_session_id)
            and not (self.roots and one.parent_session_id is not None)
        )


class _Lacking:
    """What a result over several sessions lacks: files left out, and sessions that lost rows."""

    def __init__(self) -> None:
        self.unreadable: list[BadSession] = []
        self.incomplete: list[str] = []

    def read_from(self, found: Iterable[tuple[SessionInfo, _T] | BadSession]) -> Iterator[_T]:
        """Return what was read of each session, noting what is not whole."""
        for one in found:
            if isinstance(one, BadSession):
                self.unreadable.append(one)
                continue
            info, result = one
            if info.incomplete:
                self.incomplete.append(info.session_id)
            yield result


def _distinct_ids(session_ids: Iterable[str] | None) -> list[str] | None:
    if session_ids is None:
        return None
    if isinstance(session_ids, str):
        raise InvalidValue("session_ids", "must be several ids, such as [session_id]")
    distinct = list(dict.fromkeys(session_ids))
    for session_id in distinct:
        validation.check_text("session_ids", session_id)
    return distinct


def _after(stems: list[str], cursor: str | None) -> list[str]:
    """Return what is listed behind *cursor*, or its place if it was deleted meanwhile."""
    if cursor is None:
        return stems
    if not isinstance(cursor, str) or not cursor or "/" in cursor or "\0" in cursor:
        raise InvalidValue("after", f"{cursor!r} can be the session_id of no listed session")
    place = scan.in_order(cursor)
    return stems[bisect_left(stems, True, key=lambda stem: scan.in_order(stem) < place) :]


def _between(stems: list[str], since: datetime | None, until: datetime | None) -> list[str]:
    if since is not None or until is not None:
        stems = [stem for stem in stems if ids.is_session_id(stem)]
    if since is not None:
        first = ids.time_prefix(timestamps.normalize("since", since))
        stems = [stem for stem in stems if stem[:10] >= first]
    if until is not None:
        end = ids.time_prefix(timestamps.normalize("until", until))
        stems = [stem for stem in stems if stem[:10] < end]
    return stems
