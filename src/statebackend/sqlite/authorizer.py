"""What a connection may do (SB-10): the authorizer, and triggers for what it is not asked."""

from __future__ import annotations

import sqlite3
from functools import lru_cache

from statebackend.sqlite.checkpoint import CHECKPOINT_TIMEOUT_MS
from statebackend.sqlite.settings import BUSY_TIMEOUT_MS
from statebackend.values.tables import APPEND_ONLY

# The TEMP database holds nothing but the triggers, so small pages and no cache spare 85 kB.
_APPEND_ONLY = "".join(
    (
        "PRAGMA temp.page_size = 512; PRAGMA temp.cache_size = 1;",
        "PRAGMA recursive_triggers = ON; BEGIN;",
        *(
            f"CREATE TEMP TRIGGER {table}_is_append_only BEFORE DELETE ON main.{table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END;"
            for table in sorted(APPEND_ONLY)
        ),
        "COMMIT",
    )
)


def allow_appends_only(driver: sqlite3.Connection) -> None:
    """Limit a writing connection to what a session's writer does (SB-10).

    It may insert into the append-only tables and update ``session_meta``. UPDATE, DELETE and
    REPLACE elsewhere, DDL, ATTACH and every pragma that could lift the limit fail.
    """
    # SQLite does not ask the authorizer about the deletes of INSERT OR REPLACE; they fire triggers
    # only while recursive_triggers is on. TEMP triggers belong to the connection, not to the file.
    driver.executescript(_APPEND_ONLY)
    driver.set_authorizer(authorize_writer)


_ALWAYS_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_TRANSACTION,
    sqlite3.SQLITE_SAVEPOINT,
}


# Pragmas that only read; those of the second list write when given a value.
_READING_PRAGMAS = (
    "collation_list compile_options data_version database_list foreign_key_check foreign_key_list "
    "freelist_count function_list index_info index_list index_xinfo integrity_check page_count "
    "pragma_list quick_check table_info table_list table_xinfo"
)
_READING_WITHOUT_VALUE = (
    "auto_vacuum busy_timeout cache_size encoding foreign_keys journal_mode max_page_count "
    "page_size query_only read_uncommitted recursive_triggers schema_version synchronous "
    "user_version wal_autocheckpoint"
)
# What the writer needs for checkpoints.
_WRITERS_PRAGMAS = {("wal_checkpoint", "RESTART")} | {
    ("busy_timeout", str(timeout_ms)) for timeout_ms in (BUSY_TIMEOUT_MS, CHECKPOINT_TIMEOUT_MS)
}


# Cached, so that a repeated call runs no Python code: the driver swallows an interrupt that arrives
# in Python code here and takes it for a refusal.
@lru_cache(maxsize=4096)
def authorize_reader(action: int, name: str | None, detail: str | None, *_rest: str | None) -> int:
    """Allow reading, and pragmas that only read."""
    if action in _ALWAYS_ALLOWED or (
        action == sqlite3.SQLITE_PRAGMA and _is_reading_pragma(name, detail)
    ):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


@lru_cache(maxsize=4096)
def authorize_writer(
    action: int, name: str | None, detail: str | None, database: str | None, trigger: str | None
) -> int:
    """Allow reading, inserts into the append-only tables, and updates of ``session_meta``."""
    if action == sqlite3.SQLITE_INSERT and database == "main" and name in APPEND_ONLY:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_UPDATE and database == "main" and name == "session_meta":
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and (name, detail) in _WRITERS_PRAGMAS:
        return sqlite3.SQLITE_OK
    return authorize_reader(action, name, detail, database, trigger)


def _is_reading_pragma(pragma: str | None, value: str | None) -> bool:
    return pragma in _READING_PRAGMAS.split() or (
        value is None and pragma in _READING_WITHOUT_VALUE.split()
    )
