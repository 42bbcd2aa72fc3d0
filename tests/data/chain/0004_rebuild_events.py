"""Give events.schema_version a default, which takes a rebuild.

Revision ID: 0004
Revises: 0003
"""

from typing import Any

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

EVENTS = """\
CREATE TABLE events (
  sequence          INTEGER PRIMARY KEY AUTOINCREMENT,
  id                TEXT NOT NULL UNIQUE,
  timestamp         TEXT NOT NULL,
  kind              TEXT NOT NULL,
  producer_category TEXT NOT NULL,
  producer_name     TEXT NOT NULL,
  producer_version  TEXT NOT NULL,
  schema_version    TEXT NOT NULL DEFAULT '1',
  payload           BLOB NOT NULL,
  size_bytes        INTEGER
)"""


def upgrade(op: Any) -> None:
    """Rebuild ``events`` with everything in it."""
    op.rebuild_table("events", EVENTS)
