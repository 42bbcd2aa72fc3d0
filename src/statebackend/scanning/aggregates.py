"""What is read of each open file for a question across sessions, beside its summary and sums."""

from __future__ import annotations

import sqlite3
from typing import Any, get_args

from statebackend.scanning import scan
from statebackend.scanning.scan import Reader
from statebackend.values import rows
from statebackend.values.recorded import CostTotals, ProducerCategory, SessionInfo
from statebackend.values.results import CostGrouping

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
_PLAN_RULES = "SELECT decided_by, decision, count(*) FROM plan_items GROUP BY 1, 2"
_PRODUCERS = "SELECT category, name, version FROM producers"


def group_rows(driver: sqlite3.Connection, by: str) -> list[tuple[Any, ...]]:
    """Return the ledger's sums by group: the key, then what ``rows.cost_totals`` takes.

    A key comes more than once when it is stored in several ways, as a text and as a blob.
    """
    query = f"SELECT {_KEYS[by]}, {scan.TOTALS} FROM cost_ledger GROUP BY 1"
    return [(rows.as_text(key), *totals) for key, *totals in driver.execute(query)]


def groups(by: str) -> Reader[tuple[SessionInfo, Groups]]:
    """Return what reads the sums by group of one file."""

    def read(driver: sqlite3.Connection, info: SessionInfo) -> tuple[SessionInfo, Groups]:
        found = group_rows(driver, by)
        return (info, [(key, rows.cost_totals(totals)) for key, *totals in found])

    return read


def plan_rules(
    driver: sqlite3.Connection, info: SessionInfo
) -> tuple[SessionInfo, list[tuple[str, str, int]]]:
    """Read how often each rule took each decision; a pair may come more than once, as a key may."""
    found = driver.execute(_PLAN_RULES)
    return (info, [(rows.as_text(rule), rows.as_text(word), count) for rule, word, count in found])


def producers(
    driver: sqlite3.Connection, info: SessionInfo
) -> tuple[SessionInfo, list[tuple[str, str, str]]]:
    """Read the plug-in builds that the session refers to."""
    found = [
        (rows.as_text(category), rows.as_text(name), rows.as_text(version))
        for category, name, version in driver.execute(_PRODUCERS)
    ]
    return (info, [one for one in found if one[0] != ProducerCategory.KERNEL])
