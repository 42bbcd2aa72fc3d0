"""The spend of every session by group: model, provider, session, day or profile."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, get_args

from statebackend.catalogue.questions.question import Question, split
from statebackend.catalogue.questions.summaries import select_details
from statebackend.catalogue.schema import TOTALS as STORED_TOTALS
from statebackend.scanning.connections import TOTALS
from statebackend.values import rows
from statebackend.values.recorded import CostTotals, SessionInfo
from statebackend.values.results import BadSession, CostGroup, CostGrouping, CostReport

GROUPINGS: tuple[str, ...] = get_args(CostGrouping)
Groups = list[tuple[str, CostTotals]]

# Constant SQL: what a caller passes only chooses among these.
_KEYS: dict[str, str] = {
    "model": "model_id",
    "provider": "provider_name",
    "session": "(SELECT session_id FROM session_meta)",
    "profile": "(SELECT profile FROM session_meta)",
    "day": "(SELECT substr(timestamp, 1, 10) FROM events WHERE sequence = event_sequence)",
}


def question(by: str) -> Question[tuple[SessionInfo, Groups]]:
    """Ask for the sums by group."""
    return Question(partial(_read, by), partial(_select, by))


def group_rows(driver: sqlite3.Connection, by: str) -> list[tuple[Any, ...]]:
    """Return one ledger's sums by group: the key, then what ``rows.cost_totals`` takes.

    A key is there more than once when it is stored in several ways, as a text and as a blob.
    """
    query = f"SELECT {_KEYS[by]}, {TOTALS} FROM cost_ledger GROUP BY 1"
    return [(rows.as_text(key), *totals) for key, *totals in driver.execute(query)]


def _read(by: str, driver: sqlite3.Connection, info: SessionInfo) -> tuple[SessionInfo, Groups]:
    return (info, _groups(group_rows(driver, by)))


def _select(by: str, driver: sqlite3.Connection) -> Iterator[tuple[SessionInfo, Groups]]:
    for info, details in select_details(driver, "costs", f"key, {STORED_TOTALS}", by):
        yield info, _groups(details)


def _groups(group_rows: Iterable[tuple[Any, ...]]) -> Groups:
    return [(key, rows.cost_totals(totals)) for key, *totals in group_rows]


def add_up(answers: Iterable[tuple[SessionInfo, Groups] | BadSession]) -> CostReport:
    """Add the sums of the sessions by group, the group with the highest cost first."""
    parts, unreadable, incomplete = split(answers)
    sums: dict[str, list[CostTotals]] = {}
    for groups in parts:
        for key, totals in groups:
            sums.setdefault(key, []).append(totals)
    added = [CostGroup(key=key, totals=rows.add_totals(totals)) for key, totals in sums.items()]
    added.sort(key=lambda group: (-(group.totals.cost_usd or 0.0), group.key))
    return CostReport(groups=tuple(added), unreadable=unreadable, incomplete=incomplete)
