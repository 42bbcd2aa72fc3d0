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
    """The operations that a revision is given: Alembic's, and ``rebuild_table``."""

    def rebuild_table(self, table: str, create: str, copy: Mapping[str, str] | None = None) -> None:
        """Replace *table* by the table of the statement *create*; keep all rows and row numbers.

        *copy* maps a column of the new table to an SQL expression over the old one; a column that
        both have is copied. The AUTOINCREMENT counter, the indexes and the references of other
        tables are kept too. Raises ValueError where something would be lost, before or after the
        copy; the migration then fails as a whole.
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
    indexes = _select_indexes(driver, table, create)
    rows, highest = _count(driver, table), _highest(driver, table)
    driver.execute(_rename(create, table, new))
    columns = _map_columns(driver, table, new, copy)
    driver.execute(
        f"INSERT INTO {new} ({', '.join(map(_quote, columns))}) "
        f"SELECT {', '.join(columns.values())} FROM {table} ORDER BY rowid"
    )
    if highest is not None:  # also of a table whose last rows were deleted
        driver.execute("DELETE FROM main.sqlite_sequence WHERE name = ?", (new,))
        driver.execute("INSERT INTO main.sqlite_sequence VALUES (?, ?)", (new, highest))
    driver.execute(f"DROP TABLE {table}")
    driver.execute(f"ALTER TABLE {new} RENAME TO {table}")
    for statement in indexes:
        driver.execute(statement)
    if _count(driver, table) != rows or (highest and _highest(driver, table) != highest):
        raise ValueError(f"the rebuild of {table} lost rows, or the highest number given out")


def _check_settings(driver: sqlite3.Connection) -> None:
    # With foreign keys enforced, DROP TABLE would fail or delete child rows; with the legacy ALTER
    # TABLE, renaming would change what other tables refer to.
    for pragma in ("foreign_keys", "legacy_alter_table"):
        if driver.execute(f"PRAGMA {pragma}").fetchone() != (0,):
            raise ValueError(f"a table can only be rebuilt with {pragma} off")


def _select_indexes(driver: sqlite3.Connection, table: str, create: str) -> list[str]:
    """Return the statements of the table's indexes; refuse what a rebuild would lose."""
    objects = driver.execute(
        "SELECT type, name, sql FROM main.sqlite_schema "
        "WHERE tbl_name = ? AND sql NOT NULL ORDER BY rowid",
        (table,),
    ).fetchall()
    triggers = [name for kind, name, _sql in objects if kind == "trigger"]
    (old,) = [sql for kind, _name, sql in objects if kind == "table"] or [None]
    if old is None:
        raise ValueError(f"there is no table {table}")
    if triggers:
        raise ValueError(f"the triggers of {table} would be lost: {', '.join(triggers)}")
    if _has_autoincrement(old) and not _has_autoincrement(create):
        raise ValueError(f"the new {table} lacks AUTOINCREMENT, so numbers would be given twice")
    return [sql for kind, _name, sql in objects if kind == "index"]


def _rename(create: str, table: str, new: str) -> str:
    matched = _CREATE.match(create)
    if matched is None or table not in matched.groups():
        raise ValueError(f"the statement must begin with CREATE TABLE {table}")
    return f"CREATE TABLE {new}{create[matched.end() :]}"


def _map_columns(
    driver: sqlite3.Connection, table: str, new: str, copy: dict[str, str]
) -> dict[str, str]:
    """Return the columns of the new table to fill, each with its expression."""
    old_columns, new_columns = (
        [row[0] for row in driver.execute("SELECT name FROM pragma_table_info(?)", (name,))]
        for name in (table, new)
    )
    if unknown := copy.keys() - set(new_columns):
        raise ValueError(f"the new {table} has no column {', '.join(sorted(unknown))}")
    copied = {name: _quote(name) for name in new_columns if name in old_columns}
    return copied | copy


def _quote(name: str) -> str:
    return f'"{name}"'


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
