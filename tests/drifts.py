"""Fifty ways in which the tables of a file can differ from the mapped ones."""

from __future__ import annotations

from dataclasses import dataclass

from statebackend.schema import migrate


@dataclass(frozen=True, slots=True)
class Drift:
    """A change of the DDL: *old* becomes *new* in it, and *more* is run after it."""

    name: str
    old: str = ""
    new: str = ""
    more: str = ""


def drifted(drift: Drift) -> list[str]:
    """Return the statements that make a database with *drift*."""
    text = ";;".join(migrate.scripts().get_revision("0001").module.STATEMENTS)
    changed = text.replace(drift.old, drift.new, 1) if drift.old else text
    assert (changed != text) == bool(drift.old)
    return [each for each in [*changed.split(";;"), drift.more] if each.strip()]


def _spaced(text: str) -> str:
    """Return the words of a column, as far apart as in the table ``events``."""
    name, rest = text.split(" ", 1)
    return f"{name:<17} {rest}"


_KIND = "CREATE INDEX idx_events_kind ON events(kind)"
_ID = _spaced("id TEXT NOT NULL UNIQUE")
_TIME = _spaced("timestamp TEXT NOT NULL")
_LEDGER_KEY = "event_sequence     INTEGER NOT NULL REFERENCES events(sequence)"
_ITEM_KEY = "event_sequence   INTEGER NOT NULL REFERENCES events(sequence)"
_DEPTH = "depth              INTEGER NOT NULL"
_CACHE = "cache_write_tokens INTEGER NOT NULL DEFAULT 0"
_KEY_OF_PRODUCERS = ",\n  PRIMARY KEY (category, name, version)"

DRIFTS = (
    Drift("index missing", _KIND, ""),
    Drift("index extra", more="CREATE INDEX extra ON events(timestamp)"),
    Drift("index on another column", _KIND, _KIND.replace("(kind)", "(timestamp)")),
    Drift(
        "index columns reordered",
        "(producer_category, producer_name,",
        "(producer_name, producer_category,",
    ),
    Drift("index unique", _KIND, _KIND.replace("INDEX", "UNIQUE INDEX")),
    Drift("index on an expression", _KIND, _KIND.replace("(kind)", "(lower(kind))")),
    Drift("index partial", _KIND, f"{_KIND} WHERE kind <> 'plan'"),
    Drift("index descending", _KIND, _KIND.replace("(kind)", "(kind DESC)")),
    Drift("index collation", _KIND, _KIND.replace("(kind)", "(kind COLLATE NOCASE)")),
    Drift("index on an expression extra", more="CREATE INDEX extra ON events(lower(kind))"),
    Drift("NOT NULL added", "ended_at           TEXT", "ended_at           TEXT NOT NULL"),
    Drift("NOT NULL dropped", _DEPTH, "depth              INTEGER"),
    Drift(
        "NOT NULL on a key",
        "session_id         TEXT PRIMARY KEY",
        "session_id         TEXT NOT NULL PRIMARY KEY",
    ),
    Drift("default changed", _CACHE, _CACHE.replace("0", "1")),
    Drift("default added", _DEPTH, f"{_DEPTH} DEFAULT 0"),
    Drift("default dropped", _CACHE, _CACHE.replace(" DEFAULT 0", "")),
    Drift("default of another type", _CACHE, _CACHE.replace("0", "'0'")),
    Drift("foreign key missing", _LEDGER_KEY, "event_sequence     INTEGER NOT NULL"),
    Drift(
        "foreign key to another table", _LEDGER_KEY, _LEDGER_KEY.replace("events(", "plan_items(")
    ),
    Drift("foreign key with ON DELETE", _LEDGER_KEY, f"{_LEDGER_KEY} ON DELETE CASCADE"),
    Drift("foreign key deferrable", _ITEM_KEY, f"{_ITEM_KEY} DEFERRABLE INITIALLY DEFERRED"),
    Drift(
        "primary key moved",
        _KEY_OF_PRODUCERS,
        ",\n  PRIMARY KEY (category, name, first_seen_sequence)",
    ),
    Drift("primary key dropped", _KEY_OF_PRODUCERS, ""),
    Drift(
        "primary key reordered", "KEY (category, name, version)", "KEY (name, category, version)"
    ),
    Drift(
        "AUTOINCREMENT dropped",
        "sequence          INTEGER PRIMARY KEY AUTOINCREMENT",
        "sequence          INTEGER PRIMARY KEY",
    ),
    Drift("UNIQUE dropped", _ID, _ID.replace(" UNIQUE", "")),
    Drift("UNIQUE added", _TIME, f"{_TIME} UNIQUE"),
    Drift("type VARCHAR", _TIME, _TIME.replace("TEXT", "VARCHAR(24)")),
    Drift("type FLOAT", "cost_usd           REAL", "cost_usd           FLOAT"),
    Drift("type NUMERIC", "cost_usd           REAL", "cost_usd           NUMERIC"),
    Drift("type BIGINT", _DEPTH, _DEPTH.replace("INTEGER", "BIGINT")),
    Drift("type INTEGER", _TIME, _TIME.replace("TEXT", "INTEGER")),
    Drift("type TEXT for BLOB", "BLOB NOT NULL", "TEXT NOT NULL"),
    Drift("column extra", "payload           BLOB", "note TEXT,\n  payload           BLOB"),
    Drift("column missing", "  tool_name        TEXT NOT NULL,\n", ""),
    Drift("column in another case", _TIME, _TIME.replace("timestamp", "Timestamp")),
    Drift(
        "column generated",
        "payload           BLOB",
        "size INTEGER AS (length(payload)),\n  payload           BLOB",
    ),
    Drift(
        "column order",
        "profile            TEXT NOT NULL,\n  status             TEXT NOT NULL,",
        "status             TEXT NOT NULL,\n  profile            TEXT NOT NULL,",
    ),
    Drift("column collation", _TIME, f"{_TIME} COLLATE NOCASE"),
    Drift("CHECK", _DEPTH, f"{_DEPTH} CHECK (depth >= 0)"),
    Drift("CHECK with a name", _DEPTH, f"{_DEPTH} CONSTRAINT deep CHECK (depth >= 0)"),
    Drift("ON CONFLICT", _ID, f"{_ID} ON CONFLICT REPLACE"),
    Drift("table STRICT", _KEY_OF_PRODUCERS + "\n)", _KEY_OF_PRODUCERS + "\n) STRICT"),
    Drift(
        "table WITHOUT ROWID", _KEY_OF_PRODUCERS + "\n)", _KEY_OF_PRODUCERS + "\n) WITHOUT ROWID"
    ),
    Drift("table extra", more="CREATE TABLE extra (x TEXT)"),
    Drift("table missing", "CREATE TABLE producers", "CREATE TEMP TABLE producers"),
    Drift(
        "table alembic_version",
        more="CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
    ),
    Drift("virtual table", more="CREATE VIRTUAL TABLE extra USING fts5(x)"),
    Drift("view", more="CREATE VIEW extra AS SELECT * FROM events"),
    Drift("trigger", more="CREATE TRIGGER extra BEFORE DELETE ON events BEGIN SELECT 1; END"),
)
