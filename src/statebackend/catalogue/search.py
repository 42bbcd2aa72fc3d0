"""Full-text search over the events of all sessions."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statebackend.catalogue import words
from statebackend.catalogue.extractors import installed
from statebackend.catalogue.file import Progress, catalogue_path, shielded, using
from statebackend.catalogue.indexing import GONE, Pending, forget_gone, index, place_of, still_same
from statebackend.catalogue.reading import reader
from statebackend.catalogue.refresh import Current, answer, renumber
from statebackend.catalogue.soundness import Unsound, changing, check
from statebackend.catalogue.text_schema import ROW_BITS, has_index, make_index
from statebackend.errors import SessionNotFound
from statebackend.scanning import scan
from statebackend.scanning.scan import Listing
from statebackend.values import rows
from statebackend.values.recorded import Producer
from statebackend.values.results import BadSession, SearchHit, SearchResult

# When a file changed, so much of its events is read again to see whether it only grew; beside a
# living writer, at each search.
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
# The best are found by their numbers alone; only of these is more than that read.
_HITS = f"""
    WITH best AS (
        SELECT texts.rowid AS id, sessions.stem AS stem, rank AS score
        FROM texts CROSS JOIN sessions ON sessions.number = texts.rowid >> {ROW_BITS}
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
    """What is looked for: the *phrases*, at most *limit* events, those that meet every filter.

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
    """What there is to do before the index can answer.

    Of the ``doubtful`` sessions, what is in the index may have changed.
    """

    doubtful: list[Pending]
    pending: list[Pending]
    listed: Listing


class _Answer(NamedTuple):
    """What the index says; the ``unread`` sessions are not in it, since they could not be read."""

    hits: tuple[SearchHit, ...]
    incomplete: tuple[str, ...]
    unread: list[str]
    listed: Listing


def search(directory: Path, query: Query, progress: Progress | None = None) -> SearchResult:
    """Bring the index of *directory* up to date, and return what it has for the *query*.

    Raises :class:`SessionNotFound` for a session id that is none, and :class:`StorageError` if
    there can be no index.
    """
    if not query.phrases:
        return SearchResult(hits=(), unreadable=(), incomplete=())
    heard = shielded(progress)
    return using(directory, lambda driver: _Search(driver, directory, query, heard).run())


class _Search:
    """One search.

    ``_done`` are the sessions, by number, that it need not index any more, ``_checked`` those that
    are no longer doubtful.
    """

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
        self._make_index()
        looked_again = False
        while True:
            found = answer(self._driver, self._directory, self._look, self._progress)
            if isinstance(found, _Work):
                self._index(found)
                continue
            bad = self._unreadable(found)
            if len(bad) < len(found.unread) and not looked_again:  # gone by now, or whole again
                looked_again = True
                continue
            by_id = {one.session_id: one for one in (*self._bad.values(), *bad)}
            return SearchResult(
                hits=found.hits,
                unreadable=tuple(by_id[name] for name in sorted(by_id, reverse=True)),
                incomplete=found.incomplete,
            )

    def _make_index(self) -> None:
        if has_index(self._driver):
            return
        with changing(self._driver, "texts"):  # which finds out if it was there and is gone
            make_index(self._driver, catalogue_path(self._directory))

    def _index(self, work: _Work) -> None:
        self._check(work)
        forget_gone(self._driver)
        outcome = index(
            self._driver,
            self._directory,
            work.pending,
            listed=work.listed,
            extractors=installed(),
            progress=self._progress,
        )
        self._done |= outcome.done
        self._bad.update({bad.session_id: bad for bad in outcome.unreadable})

    def _check(self, work: _Work) -> None:
        """Let a session that did not only grow be indexed from its start."""
        if not work.doubtful:
            return
        same, other, bad = still_same(self._directory, work.doubtful, work.listed)
        self._checked.update(one.number for one in (*same, *other))
        self._bad.update({one.session_id: one for one in bad})
        if other:
            with changing(self._driver, "entries"):
                for one in other:
                    renumber(self._driver, one.number)
        if known := [one for one in same if one.read_at_ns]:
            with changing(self._driver, "texts"):
                for one in known:
                    values = (one.read_at_ns, one.number, one.place.sequence)
                    self._driver.execute(_KNOWN_SAME, values)

    def _unreadable(self, found: _Answer) -> list[BadSession]:
        read = scan.read_each(self._directory, reader({}), found.unread, found.listed)
        return [one for one in read if isinstance(one, BadSession)]

    def _look(self, current: Current) -> _Work | _Answer:
        """Answer from the index, or say what it lacks; inside a transaction that sees all of it."""
        wanted = self._query.session_ids
        unread = [stem for stem in current.unread if wanted is None or stem in wanted]
        if wanted is not None:
            self._refuse_unknown(wanted, unread)
        doubtful: list[Pending] = []
        pending: list[Pending] = []
        for number, stem, last, read_at_ns, *place, changed in self._driver.execute(_PENDING):
            if stem in self._bad or not (wanted is None or stem in wanted):
                continue
            one = Pending(number, stem, place_of(place), last, read_at_ns)
            if changed and number not in self._checked:
                doubtful.append(one)
            elif last > one.place.sequence and number not in self._done:
                pending.append(one)
        listed = current.look.listed
        if doubtful or pending or self._driver.execute(GONE).fetchone():
            return _Work(doubtful, pending, listed)
        check(self._driver, "texts")
        found = hits(self._driver, self._query)
        return _Answer(found, _incomplete(self._driver, self._query), unread, listed)

    def _refuse_unknown(self, wanted: Collection[str], unread: list[str]) -> None:
        known = {stem for (stem,) in self._driver.execute("SELECT stem FROM sessions")}
        for session_id in wanted:
            if session_id not in known and session_id not in unread:
                raise SessionNotFound(session_id, self._directory)


def hits(driver: sqlite3.Connection, query: Query) -> tuple[SearchHit, ...]:
    """Return what the index has for the *query*, the best first, of equals the newest."""
    filters = _filters(query)
    limit = -1 if query.limit is None else query.limit
    found = driver.execute(
        _HITS.format(filters=_conditions(filters)),
        {**filters, "expression": words.expression(query.phrases), "limit": limit},
    )
    return tuple(_hit(row, query.phrases) for row in found)


def _hit(row: Sequence[Any], phrases: Sequence[words.Phrase]) -> SearchHit:
    stem, sequence, kind, category, name, version, timestamp, text = row
    if type(sequence) is not int:
        raise Unsound("a text is of no event")
    # The rules for foreign words and times are those of a read event.
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


def _incomplete(driver: sqlite3.Connection, query: Query) -> tuple[str, ...]:
    filters = _filters(query._replace(kind=None, producer=None, since=None, until=None))
    found = driver.execute(
        f"SELECT stem FROM sessions WHERE incomplete {_conditions(filters)} ORDER BY stem DESC",
        filters,
    )
    return tuple(stem for (stem,) in found)


def _filters(query: Query) -> dict[str, Any]:
    """Return the values that the filters compare with, by name."""
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
