"""Rebuilding a table of a session file, for what ALTER TABLE cannot do.

Alembic's own way (``batch_alter_table``) loses AUTOINCREMENT and the highest number given out,
so revisions are given operations without it and with :meth:`SessionOperations.rebuild_table`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from typing import Any, NoReturn

from alembic.operations import Operations
from alembic.util import CommandError

from statebackend.sqlite.engine import driver_of

_CREATE = re.compile(r"\s*CREATE\s+TABLE\s+(?:\"(\w+)\"|(\w+))", re.IGNORECASE)


class SessionOperations(Operations):
    """What a revision's ``upgrade(op)`` is given: Alembic's operations, and ``rebuild_table``."""

    def rebuild_table(self, table: str, create: str, copy: Mapping[str, str] | None = None) -> None:
        """Replace *table* by what the statement *create* makes, keeping all rows and row numbers.

        *copy* maps a column of the new table to an SQL expression over the old one; a column that
        both have is copied. Kept are also the highest number that AUTOINCREMENT ever gave out,
        the indexes, and what other tables refer to. Raises ValueError where something would be
        lost, before or after the copy; the migration then fails as a whole.
        """
        if self.get_context().as_sql:
            raise CommandError("a table cannot be rebuilt in --sql mode; upgrade a file instead")
        connection = self.get_bind()
        _rebuild(driver_of(connection), table, create, dict(copy or {}))

    def batch_alter_table(self, *_given: Any, **_named: Any) -> NoReturn:
        """Refuse: a rebuild by Alembic loses AUTOINCREMENT and its highest number."""
        raise NotImplementedError(
            "batch_alter_table loses AUTOINCREMENT and numbers given out; use a native ALTER "
            "(op.add_column, op.drop_column, ...) or op.rebuild_table"
        )


def _rebuild(driver: sqlite3.Connection, table: str, create: str, copy: dict[str, str]) -> None:
    _check_settings(driver)
    new = f"{table}_rebuilt"
    later = _dependents(driver, table, create)
    rows, highest = _count(driver, table), _highest(driver, table)
    driver.execute(_renamed(create, table, new))
    columns = _copied(driver, table, new, copy)
    driver.execute(
        f"INSERT INTO {new} ({', '.join(map(_quoted, columns))}) "
        f"SELECT {', '.join(columns.values())} FROM {table} ORDER BY rowid"
    )
    _keep_highest(driver, table, new)
    driver.execute(f"DROP TABLE {table}")
    driver.execute(f"ALTER TABLE {new} RENAME TO {table}")
    for statement in later:
        driver.execute(statement)
    if _count(driver, table) != rows or (highest and _highest(driver, table) != highest):
        raise ValueError(f"the rebuild of {table} lost rows, or the highest number given out")


def _check_settings(driver: sqlite3.Connection) -> None:
    # With references enforced, dropping the old table would fail or take child rows with it; the
    # old way of renaming would change what other tables refer to.
    for pragma in ("foreign_keys", "legacy_alter_table"):
        if driver.execute(f"PRAGMA {pragma}").fetchone() != (0,):
            raise ValueError(f"a table can only be rebuilt with {pragma} off")


def _dependents(driver: sqlite3.Connection, table: str, create: str) -> list[str]:
    """Return the statements of the table's indexes; refuse what a rebuild would lose."""
    found = driver.execute(
        "SELECT type, name, sql FROM main.sqlite_schema "
        "WHERE tbl_name = ? AND sql NOT NULL ORDER BY rowid",
        (table,),
    ).fetchall()
    statements = {name: sql for kind, name, sql in found if kind == "index"}
    triggers = [name for kind, name, _sql in found if kind == "trigger"]
    (old,) = [sql for kind, _name, sql in found if kind == "table"] or [None]
    if old is None:
        raise ValueError(f"there is no table {table}")
    if triggers:
        raise ValueError(f"the triggers of {table} would be lost: {', '.join(triggers)}")
    if _has_autoincrement(old) and not _has_autoincrement(create):
        raise ValueError(f"the new {table} lacks AUTOINCREMENT, so numbers would be given twice")
    return list(statements.values())


def _renamed(create: str, table: str, new: str) -> str:
    matched = _CREATE.match(create)
    if matched is None or table not in matched.groups():
        raise ValueError(f"the statement must begin with CREATE TABLE {table}")
    return f"CREATE TABLE {new}{create[matched.end() :]}"


def _copied(
    driver: sqlite3.Connection, table: str, new: str, copy: dict[str, str]
) -> dict[str, str]:
    """Return for each column of the new table that is filled the expression that fills it."""
    old_columns, new_columns = _columns(driver, table), _columns(driver, new)
    if unknown := copy.keys() - set(new_columns):
        raise ValueError(f"the new {table} has no column {', '.join(sorted(unknown))}")
    copied = {name: _quoted(name) for name in new_columns if name in old_columns}
    return copied | copy


def _quoted(name: str) -> str:
    return f'"{name}"'


def _columns(driver: sqlite3.Connection, table: str) -> list[str]:
    return [row[0] for row in driver.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def _keep_highest(driver: sqlite3.Connection, table: str, new: str) -> None:
    """Keep the AUTOINCREMENT counter, also of a table whose last rows were deleted."""
    highest = _highest(driver, table)
    if highest is not None:
        driver.execute("DELETE FROM main.sqlite_sequence WHERE name = ?", (new,))
        driver.execute("INSERT INTO main.sqlite_sequence VALUES (?, ?)", (new, highest))


def _highest(driver: sqlite3.Connection, table: str) -> int | None:
    exists = "SELECT 1 FROM main.sqlite_schema WHERE name = 'sqlite_sequence'"
    if driver.execute(exists).fetchone() is None:
        return None
    query = "SELECT seq FROM main.sqlite_sequence WHERE name = ?"
    (highest,) = driver.execute(query, (table,)).fetchone() or (None,)
    return highest


def _count(driver: sqlite3.Connection, table: str) -> int:
    (count,) = driver.execute(f"SELECT count(*) FROM main.{table}").fetchone()
    return int(count)


def _has_autoincrement(create: str) -> bool:
    without_comments = re.sub(r"--[^\n]*|/\*.*?\*/", " ", create, flags=re.DOTALL)
    return re.search(r"\bAUTOINCREMENT\b", without_comments, re.IGNORECASE) is not None
