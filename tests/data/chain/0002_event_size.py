"""Add a column to events.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade(op: Operations) -> None:
    """Add ``size_bytes``, which older rows do not know."""
    op.add_column("events", sa.Column("size_bytes", sa.Integer()))
