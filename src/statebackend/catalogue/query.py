"""Questions across all sessions, each with the same answer from the catalogue and from a scan."""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from statebackend.catalogue.refresh import Current
from statebackend.catalogue.schema import TOTALS
from statebackend.catalogue.soundness import Unsound
from statebackend.scanning import aggregates, scan
from statebackend.values import rows
from statebackend.values.recorded import CostTotals, SessionInfo, SessionStatus
from statebackend.values.results import BadSession

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Question(NamedTuple, Generic[_T_co]):
    """What is asked of every session.

    ``read`` answers it from a file, ``select`` from the catalogue, newest first. An answer is the
    session's summary, or a pair of that and what else was asked.
    """

    read: scan.Reader[_T_co]
    select: Callable[[sqlite3.Connection], Iterator[_T_co]]


def each(
    current: Current, directory: Path, question: Question[_T], stems: Collection[str] | None
) -> Iterator[_T | BadSession]:
    """Return the answers of these sessions (None: all), newest first, lazily, as a scan would."""
    entries: Iterator[_T | BadSession] = question.select(current.driver)
    if current.unread:
        unread = scan.read_each(directory, question.read, current.unread, current.look.listed)
        entries = heapq.merge(
            entries, unread, key=lambda one: scan.in_order(session_id(one)), reverse=True
        )
    if stems is None:
        return entries
    wanted = frozenset(stems)
    return (one for one in entries if session_id(one) in wanted)


def session_id(answer: object) -> str:
    """Return the id of the session that an answer is about."""
    summary = answer[0] if isinstance(answer, tuple) else answer
    assert isinstance(summary, SessionInfo | BadSession)
    return summary.session_id


# -- the questions ---------------------------------------------------------------------------------

_INFO = (
    "stem, parent_session_id, profile, status, depth, started_at, ended_at, cost_usd, "
    "unpriced_rows, live, incomplete"
)
_WIDTH = len(_INFO.split(","))
_NEWEST_FIRST = "ORDER BY stem DESC"


def summary(
    *,
    status: str | None = None,
    profile: str | None = None,
    parent_session_id: str | None = None,
    roots: bool = False,
) -> Question[SessionInfo]:
    """Ask for the summaries; of those in the catalogue only the ones that match."""
    wanted: dict[str, str | None] = {
        "status": status,
        "profile": profile,
        "parent_session_id": parent_session_id,
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    conditions = [f"{name} = :{name}" for name in given] + ["parent_session_id IS NULL"] * roots
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    if conditions and parent_session_id is None:  # which has an index
        # A row that was zeroed meets no condition: it comes too, and then counts as damage.
        where += " OR started_at IS NULL"
    query = f"SELECT {_INFO} FROM sessions {where} {_NEWEST_FIRST}"

    return Question(scan.read_summary, lambda driver: map(_info, driver.execute(query, given)))


def totals() -> Question[tuple[SessionInfo, CostTotals]]:
    """Ask for the summaries and the sums of the ledgers."""
    return Question(scan.read_totals, lambda driver: _totals(driver, ""))


def groups(by: str) -> Question[tuple[SessionInfo, aggregates.Groups]]:
    """Ask for the sums by group."""

    def select(driver: sqlite3.Connection) -> Iterator[tuple[SessionInfo, aggregates.Groups]]:
        for info, found in _details(driver, "costs", f"key, {TOTALS}", by):
            yield info, [(row[0], rows.cost_totals(row[1:])) for row in found]

    return Question(aggregates.groups(by), select)


def plan_rules() -> Question[tuple[SessionInfo, list[tuple[str, str, int]]]]:
    """Ask how often each rule took each decision."""
    return Question(
        aggregates.plan_rules,
        lambda driver: _details(driver, "plan_rules", "decided_by, decision, count"),
    )


def producers() -> Question[tuple[SessionInfo, list[tuple[str, str, str]]]]:
    """Ask for the plug-in builds that the sessions refer to."""
    return Question(
        aggregates.producers,
        lambda driver: _details(driver, "producers", "category, name, version"),
    )


def below(
    current: Current, directory: Path, roots: Iterable[str]
) -> tuple[list[tuple[SessionInfo, CostTotals]], list[BadSession]]:
    """Return at least *roots*, what is below and right above them; and the files that are bad."""
    sessions: list[tuple[SessionInfo, CostTotals]] = []
    bad: list[BadSession] = []
    for one in scan.read_each(directory, scan.read_totals, current.unread, current.look.listed):
        if isinstance(one, BadSession):
            bad.append(one)
        else:
            sessions.append(one)
    # One that is read only in part has no entry, so nobody knows what is below it in there.
    condition = "" if sessions else f"WHERE stem IN ({_BELOW})"
    wanted = list(roots)
    sessions += _totals(current.driver, condition, {"roots": json.dumps(wanted)})
    found = {info.session_id for info, _totals in sessions}.union(one.session_id for one in bad)
    if any(map(current.look.__contains__, {*wanted} - found)):
        raise Unsound("a session has no entry")
    return sessions, bad


_BELOW = (
    "WITH RECURSIVE below (stem) AS (SELECT value FROM json_each(:roots) UNION "
    "SELECT sessions.stem FROM sessions JOIN below ON parent_session_id = below.stem) "
    "SELECT stem FROM below UNION SELECT parent_session_id FROM sessions "
    "WHERE stem IN (SELECT value FROM json_each(:roots))"
)


# -- from rows to values ---------------------------------------------------------------------------

_Row = tuple[Any, ...]
_time = datetime.fromisoformat
_STATUSES = {status.value: status for status in SessionStatus}


class _Draft:
    """A summary that is being filled: setting the fields of the frozen class takes twice as long.

    With the same slots, it can be made one.
    """

    __slots__ = SessionInfo.__slots__


def _info(row: _Row) -> SessionInfo:
    """Return the summary of the columns ``_INFO``, as ``rows.session_info`` does, but quicker."""
    stem, parent, profile, status, depth, started_at, ended_at, cost, unpriced, live, lost = row
    info: Any = _Draft()
    info.session_id = stem
    info.parent_session_id = parent
    info.profile = profile
    info.status = _STATUSES.get(status, status)
    info.depth = depth
    # A time that is no time of ours is stored as bytes.
    info.started_at = _time(started_at) if type(started_at) is str else started_at.decode()
    if ended_at is not None:
        ended_at = _time(ended_at) if type(ended_at) is str else ended_at.decode()
    info.ended_at = ended_at
    info.cost_usd = cost
    info.unpriced_rows = unpriced
    info.live = live == 1
    info.incomplete = lost == 1
    info.__class__ = SessionInfo
    return info  # type: ignore[no-any-return]


def _totals(
    driver: sqlite3.Connection, where: str, given: Mapping[str, str] | None = None
) -> Iterator[tuple[SessionInfo, CostTotals]]:
    columns = _of("sessions", TOTALS)
    query = f"SELECT {_INFO}, {columns} FROM sessions {where} {_NEWEST_FIRST}"
    for row in driver.execute(query, given or {}):
        yield _info(row[:_WIDTH]), rows.cost_totals(row[_WIDTH:])


def _details(
    driver: sqlite3.Connection, table: str, columns: str, *given: str
) -> Iterator[tuple[SessionInfo, list[Any]]]:
    """Return each session with its rows in a table of details: those of one *given* grouping."""
    of_one = "AND grouping = ?" if given else ""
    query = (
        f"SELECT {_of('sessions', _INFO)}, {table}.number, {_of(table, columns)} FROM sessions "
        f"LEFT JOIN {table} ON {table}.number = sessions.number {of_one} {_NEWEST_FIRST}"
    )
    for _stem, found in groupby(driver.execute(query, given), key=itemgetter(0)):
        every = list(found)
        rows_of_it = [row[_WIDTH + 1 :] for row in every if row[_WIDTH] is not None]
        yield _info(every[0][:_WIDTH]), rows_of_it


def _of(table: str, columns: str) -> str:
    return ", ".join(f"{table}.{name.strip()}" for name in columns.split(","))
