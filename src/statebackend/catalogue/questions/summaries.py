"""The summary of every session, or of those that match a filter."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from statebackend.catalogue.questions.question import Question
from statebackend.scanning import scan
from statebackend.scanning.scan import ALL_SESSIONS, SessionFilter
from statebackend.values.recorded import SessionInfo, SessionStatus

COLUMNS = (
    "stem, parent_session_id, profile, status, depth, started_at, ended_at, cost_usd, "
    "unpriced_rows, live, incomplete"
)
"""The columns of ``sessions`` that make a summary."""
WIDTH = len(COLUMNS.split(","))
NEWEST_FIRST = "ORDER BY stem DESC"

_Row = tuple[Any, ...]
_parse_time = datetime.fromisoformat
_STATUSES = {status.value: status for status in SessionStatus}


def question(wanted: SessionFilter = ALL_SESSIONS) -> Question[SessionInfo]:
    """Ask for the summaries that match."""
    matches = None if wanted == ALL_SESSIONS else wanted.matches
    return Question(scan.read_summary, partial(_select, wanted), matches)


def _select(wanted: SessionFilter, driver: sqlite3.Connection) -> Iterator[SessionInfo]:
    names = ("status", "profile", "parent_session_id")
    values = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    conditions = [f"{name} = :{name}" for name in values]
    conditions += ["parent_session_id IS NULL"] * wanted.roots
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    if conditions and wanted.parent_session_id is None:  # which has an index
        # A zeroed row meets no condition: it is selected too, and then counts as damage.
        where += " OR started_at IS NULL"
    query = f"SELECT {COLUMNS} FROM sessions {where} {NEWEST_FIRST}"
    return map(info_of, driver.execute(query, values))


def select_details(
    driver: sqlite3.Connection, table: str, columns: str, *grouping: str
) -> Iterator[tuple[SessionInfo, list[Any]]]:
    """Return each session, newest first, with its details from a *table*, or of one grouping."""
    of_grouping = "AND grouping = ?" if grouping else ""
    query = (
        f"SELECT {qualify('sessions', COLUMNS)}, {table}.number, {qualify(table, columns)} "
        f"FROM sessions LEFT JOIN {table} ON {table}.number = sessions.number {of_grouping} "
        f"{NEWEST_FIRST}"
    )
    for _stem, group in groupby(driver.execute(query, grouping), key=itemgetter(0)):
        joined = list(group)
        details = [row[WIDTH + 1 :] for row in joined if row[WIDTH] is not None]
        yield info_of(joined[0][:WIDTH]), details


def qualify(table: str, columns: str) -> str:
    """Return the *columns* with the name of their table before each."""
    return ", ".join(f"{table}.{name.strip()}" for name in columns.split(","))


class _MutableInfo:
    """A summary whose slots are being filled, before it becomes a :class:`SessionInfo`.

    Filling the slots of the frozen class takes 311 ms for 100,000 sessions, this way 68 ms: all of
    a warm catalogue, which may take twice as long as scandir and stat, would take four times.
    """

    __slots__ = SessionInfo.__slots__


def info_of(row: _Row) -> SessionInfo:
    """Return the summary of the columns ``COLUMNS``, as ``rows.session_info`` does, but quicker."""
    stem, parent, profile, status, depth, started_at, ended_at, cost, unpriced, live, lost = row
    info: Any = _MutableInfo()
    info.session_id = stem
    info.parent_session_id = parent
    info.profile = profile
    info.status = _STATUSES.get(status, status)
    info.depth = depth
    # A text that is not a time in our format is stored as bytes.
    info.started_at = _parse_time(started_at) if type(started_at) is str else started_at.decode()
    if ended_at is not None:
        ended_at = _parse_time(ended_at) if type(ended_at) is str else ended_at.decode()
    info.ended_at = ended_at
    info.cost_usd = cost
    info.unpriced_rows = unpriced
    info.live = live == 1
    info.incomplete = lost == 1
    info.__class__ = SessionInfo
    return info  # type: ignore[no-any-return]
