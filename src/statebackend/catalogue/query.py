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
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, cast

from statebackend import readers, rows, scan
from statebackend.catalogue.look import in_order
from statebackend.catalogue.refresh import Current
from statebackend.catalogue.schema import TOTALS
from statebackend.values import BadSession, CostTotals, SessionInfo, SessionStatus

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
Entries = Iterator[tuple[str, _T]]


class Question(NamedTuple, Generic[_T_co]):
    """What is asked of every session.

    ``read`` answers it from a file, ``select`` from the catalogue: stems and answers, newest first.
    """

    read: scan.Reader[_T_co]
    select: Callable[[sqlite3.Connection], Entries[_T_co]]


def each(
    current: Current, directory: Path, question: Question[_T], stems: Collection[str] | None
) -> Iterator[_T | BadSession]:
    """Return the answers of these sessions (None: all), newest first, lazily, as a scan would."""
    entries: Entries[_T | BadSession] = cast(
        "Entries[_T | BadSession]", question.select(current.driver)
    )
    if current.unread:
        listed = current.look.listed
        unread = (
            (stem, one)
            for stem in current.unread
            for one in scan.read_each(directory, question.read, [stem], listed)
        )
        entries = heapq.merge(entries, unread, key=lambda entry: in_order(entry[0]), reverse=True)
    if stems is None:
        return (one for _stem, one in entries)
    wanted = frozenset(stems)
    return (one for stem, one in entries if stem in wanted)


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
    query = f"SELECT {_INFO} FROM sessions {where} {_NEWEST_FIRST}"

    def select(driver: sqlite3.Connection) -> Entries[SessionInfo]:
        return ((row[0], _info(row)) for row in driver.execute(query, given))

    return Question(scan.read_summary, select)


def totals() -> Question[tuple[SessionInfo, CostTotals]]:
    """Ask for the summaries and the sums of the ledgers."""
    return Question(scan.read_totals, lambda driver: _totals(driver, ""))


def groups(by: str) -> Question[tuple[SessionInfo, readers.Groups]]:
    """Ask for the sums by group."""

    def select(driver: sqlite3.Connection) -> Entries[tuple[SessionInfo, readers.Groups]]:
        for stem, info, found in _details(driver, "costs", f"key, {TOTALS}", by):
            yield stem, (info, [(row[0], rows.cost_totals(row[1:])) for row in found])

    return Question(readers.groups(by), select)


def plan_rules() -> Question[tuple[SessionInfo, list[tuple[str, str, int]]]]:
    """Ask how often each rule took each decision."""

    def select(driver: sqlite3.Connection) -> Entries[tuple[SessionInfo, list[Any]]]:
        for stem, info, found in _details(driver, "plan_rules", "decided_by, decision, count"):
            yield stem, (info, found)

    return Question(readers.plan_rules, select)


def producers() -> Question[tuple[SessionInfo, list[tuple[str, str, str]]]]:
    """Ask for the plug-in builds that the sessions refer to."""

    def select(driver: sqlite3.Connection) -> Entries[tuple[SessionInfo, list[Any]]]:
        for stem, info, found in _details(driver, "producers", "category, name, version"):
            yield stem, (info, found)

    return Question(readers.producers, select)


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
    given = json.dumps(list(roots))
    sessions += [one for _stem, one in _totals(current.driver, condition, {"roots": given})]
    return sessions, bad


_BELOW = (
    "WITH RECURSIVE below (stem) AS (SELECT value FROM json_each(:roots) UNION "
    "SELECT sessions.stem FROM sessions JOIN below ON parent_session_id = below.stem) "
    "SELECT stem FROM below UNION SELECT parent_session_id FROM sessions "
    "WHERE stem IN (SELECT value FROM json_each(:roots))"
)


# -- from rows to values ---------------------------------------------------------------------------

_Row = tuple[Any, ...]
_STATUSES = {status.value: status for status in SessionStatus}
# The fields of a frozen dataclass, set one by one: its own __init__ takes more than twice as long.
(
    _set_session_id,
    _set_parent_session_id,
    _set_profile,
    _set_status,
    _set_depth,
    _set_started_at,
    _set_ended_at,
    _set_cost_usd,
    _set_unpriced_rows,
    _set_live,
    _set_incomplete,
) = (getattr(SessionInfo, name).__set__ for name in SessionInfo.__slots__)


def _info(row: _Row) -> SessionInfo:
    """Return the summary of the columns ``_INFO``, as ``rows.session_info`` does, but quicker."""
    stem, parent, profile, status, depth, started_at, ended_at, cost, unpriced, live, lost = row
    info = object.__new__(SessionInfo)
    _set_session_id(info, stem)
    _set_parent_session_id(info, parent)
    _set_profile(info, profile)
    _set_status(info, _STATUSES.get(status, status))
    _set_depth(info, depth)
    _set_started_at(info, _moment(started_at))
    _set_ended_at(info, None if ended_at is None else _moment(ended_at))
    _set_cost_usd(info, cost)
    _set_unpriced_rows(info, unpriced)
    _set_live(info, live == 1)
    _set_incomplete(info, lost == 1)
    return info


def _moment(stored: str | bytes) -> datetime | str:
    """Return a time; what is stored as bytes is a text that is no time of ours."""
    return datetime.fromisoformat(stored) if isinstance(stored, str) else stored.decode()


def _totals(
    driver: sqlite3.Connection, where: str, given: Mapping[str, str] = MappingProxyType({})
) -> Entries[tuple[SessionInfo, CostTotals]]:
    columns = _of("sessions", TOTALS)
    query = f"SELECT {_INFO}, {columns} FROM sessions {where} {_NEWEST_FIRST}"
    for row in driver.execute(query, given):
        yield row[0], (_info(row[:_WIDTH]), rows.cost_totals(row[_WIDTH:]))


def _details(
    driver: sqlite3.Connection, table: str, columns: str, *given: str
) -> Iterator[tuple[str, SessionInfo, list[_Row]]]:
    """Return each session with its rows in a table of details: those of one *given* grouping."""
    of_one = "AND grouping = ?" if given else ""
    query = (
        f"SELECT {_of('sessions', _INFO)}, {table}.number, {_of(table, columns)} FROM sessions "
        f"LEFT JOIN {table} ON {table}.number = sessions.number {of_one} {_NEWEST_FIRST}"
    )
    for stem, found in groupby(driver.execute(query, given), key=itemgetter(0)):
        every = list(found)
        rows_of_it = [row[_WIDTH + 1 :] for row in every if row[_WIDTH] is not None]
        yield stem, _info(every[0][:_WIDTH]), rows_of_it


def _of(table: str, columns: str) -> str:
    return ", ".join(f"{table}.{name.strip()}" for name in columns.split(","))
