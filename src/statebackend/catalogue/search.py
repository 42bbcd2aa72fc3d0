"""Full-text search over the events of all sessions."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statebackend.catalogue import indexing, schema, words
from statebackend.catalogue.entries import entry_reader
from statebackend.catalogue.extractors import installed
from statebackend.catalogue.file import Progress, catalogue_path, use
from statebackend.catalogue.indexing import Pending
from statebackend.catalogue.refresh import Current, current, renumber
from statebackend.errors import SessionNotFound
from statebackend.scanning import scan
from statebackend.scanning.listing import Listing
from statebackend.values import rows
from statebackend.values.recorded import Producer
from statebackend.values.results import BadSession, SearchHit, SearchResult

# After a file changed, at most so many bytes of its indexed events are read again, to see whether
# events were only appended; with a living writer, at each search.
_CHECKED = 64 * 1024 * 1024
_CHECKED_LIVE = 256 * 1024
_PENDING = (
    "SELECT s.number, s.stem, s.last_sequence, iif(s.mtime_ns IS NULL, 0, s.read_at_ns), "
    "p.sequence, p.rows, p.events_sum, p.events_bytes, "
    f"p.read_at_ns <> s.read_at_ns AND p.events_bytes <= iif(s.live, {_CHECKED_LIVE}, {_CHECKED}) "
    "FROM sessions AS s LEFT JOIN text_progress AS p ON p.number = s.number "
    "WHERE s.last_sequence > coalesce(p.sequence, 0) OR p.read_at_ns <> s.read_at_ns"
)
_KNOWN_SAME = "UPDATE text_progress SET read_at_ns = ? WHERE number = ? AND sequence = ?"
# The best rows are selected by their ids alone; the other columns are read for these only.
_HITS = f"""
    WITH best AS (
        SELECT texts.rowid AS id, sessions.stem AS stem, rank AS score
        FROM texts CROSS JOIN sessions ON sessions.number = texts.rowid >> {schema.ROW_BITS}
        WHERE texts MATCH :expression {{filters}}
        ORDER BY score, stem DESC, id DESC LIMIT :limit)
    SELECT stem, sequence, kind, category, name, version, timestamp, coalesce(shown, folded)
    FROM best CROSS JOIN texts ON texts.rowid = best.id
    ORDER BY score, stem DESC, id DESC"""
_FILTERS = {
    "kind": "kind = :kind",
    "producer": ":producer IN (name, category || '/' || name, "
    "category || '/' || name || '@' || version)",
    "category": "category = :category AND name = :name AND version = :version",
    "profile": "profile = :profile",
    "since": "timestamp >= :since",
    "until": "timestamp < :until",
    "session_ids": "stem IN (SELECT value FROM json_each(:session_ids))",
}


class Query(NamedTuple):
    """The phrases to search for, and the filters; at most *limit* events are returned.

    Times are stored texts. A text as *producer* is a name, ``category/name`` or
    ``category/name@version``.
    """

    phrases: Sequence[words.Phrase]
    limit: int | None = 20
    kind: str | None = None
    producer: Producer | str | None = None
    profile: str | None = None
    session_ids: Sequence[str] | None = None
    since: str | None = None
    until: str | None = None


class _Work(NamedTuple):
    """The sessions to index before the search can be answered.

    The indexed events of the ``doubtful`` ones may have changed.
    """

    doubtful: list[Pending]
    pending: list[Pending]
    listed: Listing


class _Answer(NamedTuple):
    """The answer of the index; the ``unread`` sessions could not be read, so it lacks them."""

    hits: tuple[SearchHit, ...]
    incomplete: tuple[str, ...]
    unread: list[str]
    listed: Listing


def search(directory: Path, query: Query, progress: Progress | None = None) -> SearchResult:
    """Bring the index of *directory* up to date, and search it.

    Raises :class:`SessionNotFound` for a session id that is not in the folder, and
    :class:`StorageError` if there can be no index.
    """
    if not query.phrases:
        return SearchResult(hits=(), unreadable=(), incomplete=())
    return use(directory, lambda driver: _Search(driver, directory, query, progress).run())


class _Search:
    """One search; the sessions by number that are indexed by now, and no longer doubtful."""

    def __init__(
        self, driver: sqlite3.Connection, directory: Path, query: Query, progress: Progress | None
    ) -> None:
        self._driver = driver
        self._directory = directory
        self._query = query
        self._progress = progress
        self._done: set[int] = set()
        self._checked: set[int] = set()
        self._bad: dict[str, BadSession] = {}

    def run(self) -> SearchResult:
        if not schema.has_index(self._driver):
            with schema.transaction(self._driver, "BEGIN IMMEDIATE"):
                schema.create_index(self._driver, catalogue_path(self._directory))
                schema.check_text_count(self._driver)  # it may have existed, and be lost
        repeated = False
        while True:
            with current(self._driver, self._directory, self._progress) as now:
                answer = self._answer(now)
            if isinstance(answer, _Work):
                self._index(answer)
                continue
            bad = self._unreadable(answer)
            if len(bad) < len(answer.unread) and not repeated:  # deleted by now, or readable again
                repeated = True
                continue
            by_id = {session.session_id: session for session in (*self._bad.values(), *bad)}
            return SearchResult(
                hits=answer.hits,
                unreadable=tuple(by_id[name] for name in sorted(by_id, reverse=True)),
                incomplete=answer.incomplete,
            )

    def _index(self, work: _Work) -> None:
        self._check(work)
        indexing.delete_gone(self._driver)
        done, unreadable = indexing.index(
            self._driver,
            self._directory,
            work.pending,
            listed=work.listed,
            extractors=installed(),
            progress=self._progress,
        )
        self._done |= done
        self._bad.update({bad.session_id: bad for bad in unreadable})

    def _check(self, work: _Work) -> None:
        """Renumber a session whose indexed events changed: its events are all indexed again."""
        if not work.doubtful:
            return
        same, changed, bad = indexing.compare_indexed(self._directory, work.doubtful, work.listed)
        self._checked.update(pending.number for pending in (*same, *changed))
        self._bad.update({session.session_id: session for session in bad})
        with schema.transaction(self._driver, "BEGIN IMMEDIATE"):
            for pending in changed:
                renumber(self._driver, pending.number)
            for pending in same:
                if pending.read_at_ns:
                    values = (pending.read_at_ns, pending.number, pending.place.sequence)
                    self._driver.execute(_KNOWN_SAME, values)

    def _unreadable(self, answer: _Answer) -> list[BadSession]:
        read = scan.read_each(self._directory, entry_reader({}), answer.unread, answer.listed)
        return [session for session in read if isinstance(session, BadSession)]

    @schema.value_errors_are_damage()
    def _answer(self, now: Current) -> _Work | _Answer:
        """Answer from the index, or return what it lacks; inside the transaction of *now*."""
        wanted = self._query.session_ids
        unread = [stem for stem in now.unread if wanted is None or stem in wanted]
        if wanted is not None:
            known = {stem for (stem,) in self._driver.execute("SELECT stem FROM sessions")}
            for session_id in wanted:
                if session_id not in known and session_id not in unread:
                    raise SessionNotFound(session_id, self._directory)
        doubtful: list[Pending] = []
        pending: list[Pending] = []
        for number, stem, last, read_at_ns, *place, changed in self._driver.execute(_PENDING):
            if stem in self._bad or not (wanted is None or stem in wanted):
                continue
            if stem not in now.state:
                raise schema.CatalogueDamaged("an entry belongs to no session")
            session = Pending(number, stem, indexing.place_of(place), last, read_at_ns)
            if changed and number not in self._checked:
                doubtful.append(session)
            elif last > session.place.sequence and number not in self._done:
                pending.append(session)
        listed = now.state.listed
        if doubtful or pending or self._driver.execute(indexing.GONE).fetchone():
            return _Work(doubtful, pending, listed)
        schema.check_text_count(self._driver)
        return _Answer(
            hits(self._driver, self._query),
            _select_incomplete(self._driver, self._query),
            unread,
            listed,
        )


def hits(driver: sqlite3.Connection, query: Query) -> tuple[SearchHit, ...]:
    """Return the events that match the *query*, the best first, of equally good ones the newest."""
    filters = _filters(query)
    limit = -1 if query.limit is None else query.limit
    best = driver.execute(
        _HITS.format(filters=_conditions(filters)),
        {**filters, "expression": words.expression(query.phrases), "limit": limit},
    )
    return tuple(_hit(row, query.phrases) for row in best)


def _hit(row: Sequence[Any], phrases: Sequence[words.Phrase]) -> SearchHit:
    stem, sequence, kind, category, name, version, timestamp, text = row
    if type(sequence) is not int:
        raise schema.CatalogueDamaged("a text belongs to no event")
    # Foreign words and times are shown as those of an event that is read.
    event = rows.event_header((sequence, "", timestamp, kind, category, name, version, ""))
    snippet = words.snippet(text, phrases)
    return SearchHit(
        session_id=stem,
        sequence=sequence,
        kind=event.kind,
        producer=event.producer,
        timestamp=event.timestamp,
        snippet=snippet.text,
        marks=snippet.marks,
    )


def _select_incomplete(driver: sqlite3.Connection, query: Query) -> tuple[str, ...]:
    filters = _filters(query._replace(kind=None, producer=None, since=None, until=None))
    incomplete = driver.execute(
        f"SELECT stem FROM sessions WHERE incomplete {_conditions(filters)} ORDER BY stem DESC",
        filters,
    )
    return tuple(stem for (stem,) in incomplete)


def _filters(query: Query) -> dict[str, Any]:
    """Return the values of the filters, by name."""
    values: dict[str, Any] = {
        name: value
        for name in ("kind", "profile", "since", "until")
        if (value := getattr(query, name)) is not None
    }
    if isinstance(query.producer, Producer):
        values |= dataclasses.asdict(query.producer)
    elif query.producer is not None:
        values["producer"] = query.producer
    if query.session_ids is not None:
        values["session_ids"] = json.dumps([*query.session_ids])
    return values


def _conditions(filters: dict[str, Any]) -> str:
    return "".join(f" AND {_FILTERS[name]}" for name in filters if name in _FILTERS)
