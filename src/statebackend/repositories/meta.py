"""``session_meta``: the one row that is updated in place (SB-20)."""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection, bindparam, func, select

from statebackend.repositories import costs
from statebackend.repositories.statements import table_of, text_of
from statebackend.schema import models
from statebackend.values import rows
from statebackend.values.recorded import SessionInfo

_table = table_of(models.SessionMeta)
_ledger = table_of(models.CostLedger)
_OTHER_DEPTH = text_of(_table.update().values(depth=-1 - _table.c.depth))
_SELECT_STATUS = text_of(select(_table.c.status))
_UPDATE_STATUS = text_of(
    _table.update()
    .values(status=bindparam("new_status"), ended_at=bindparam("new_ended_at"))
    .where(_table.c.session_id == bindparam("id"))
)


def select_info(connection: Connection, *, live: bool, incomplete: bool) -> SessionInfo:
    """Return the row with the cost summed now (SB-22)."""
    query = select(
        *_table.columns,
        select(func.sum(_ledger.c.cost_usd)).scalar_subquery(),
        select(costs.unpriced_count()).select_from(_ledger).scalar_subquery(),
    )
    row = tuple(connection.execute(query).one())
    return rows.session_info(row, live=live, incomplete=incomplete)


def select_status(driver: sqlite3.Connection) -> str:
    """Return the stored status word."""
    (status,) = driver.execute(_SELECT_STATUS).fetchone()
    return str(status)


def update_status(
    driver: sqlite3.Connection, session_id: str, status: str, ended_at_text: str | None
) -> None:
    """Set the status and the end, in the caller's transaction (SB-21).

    Raises :class:`sqlite3.DatabaseError` when there is not exactly one row of *session_id*.
    """
    count = driver.execute(_UPDATE_STATUS, (status, ended_at_text, session_id)).rowcount
    if count != 1:
        raise sqlite3.DatabaseError(f"session_meta has {count} rows of session {session_id}")


def rewrite(driver: sqlite3.Connection) -> None:
    """Rewrite the row unchanged, so that the WAL holds its page; inside a transaction.

    New sessions differ only in this row. Without it in the WAL, the first WAL of one session would
    fit the file of another. SQLite skips pages that do not change, so the row is changed twice.
    """
    driver.execute(_OTHER_DEPTH, (-1,))
    driver.execute(_OTHER_DEPTH, (-1,))
