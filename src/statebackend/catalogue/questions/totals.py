"""The sums of every session's ledger, for trees and inclusive costs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from statebackend.catalogue.questions import summaries
from statebackend.catalogue.questions.question import Question
from statebackend.catalogue.schema import TOTALS as STORED_TOTALS
from statebackend.errors import SessionNotFound
from statebackend.scanning import scan
from statebackend.scanning.connections import TOTALS
from statebackend.values import rows
from statebackend.values.recorded import CostTotals, SessionInfo
from statebackend.values.results import BadSession

Costed = tuple[SessionInfo, CostTotals]

_BELOW = (
    "WITH RECURSIVE below (stem) AS (SELECT value FROM json_each(:roots) UNION "
    "SELECT sessions.stem FROM sessions JOIN below ON parent_session_id = below.stem) "
    "SELECT stem FROM below UNION SELECT parent_session_id FROM sessions "
    "WHERE stem IN (SELECT value FROM json_each(:roots))"
)


def question() -> Question[Costed]:
    """Ask for the summaries and the sums of the ledgers."""
    return Question(read, select)


def read(driver: sqlite3.Connection, info: SessionInfo) -> Costed:
    """Read the sums of one file's ledger."""
    totals = driver.execute(f"SELECT {TOTALS} FROM cost_ledger").fetchone()
    return (info, rows.cost_totals(totals))


def read_one(directory: Path, session_id: str) -> Costed:
    """Read the file of one session, raising what a listing would only flag."""
    for answer in scan.read_each(directory, read, [session_id]):
        if isinstance(answer, BadSession):
            raise answer.error
        return answer
    raise SessionNotFound(session_id, directory)


def select(driver: sqlite3.Connection) -> Iterator[Costed]:
    """Return the sums of all sessions in the catalogue, newest first."""
    return _select(driver, "", {})


def select_below(driver: sqlite3.Connection, roots: Iterable[str]) -> Iterator[Costed]:
    """Return the sums of *roots*, their descendants and their parents, newest first."""
    return _select(driver, f"WHERE stem IN ({_BELOW})", {"roots": json.dumps([*roots])})


def _select(driver: sqlite3.Connection, where: str, values: Mapping[str, str]) -> Iterator[Costed]:
    columns = summaries.qualify("sessions", STORED_TOTALS)
    query = f"SELECT {summaries.COLUMNS}, {columns} FROM sessions {where} {summaries.NEWEST_FIRST}"
    for row in driver.execute(query, values):
        yield summaries.info_of(row[: summaries.WIDTH]), rows.cost_totals(row[summaries.WIDTH :])
