"""Fill events.size_bytes.

Revision ID: 0005
Revises: 0004
"""

from alembic.operations import Operations

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade(op: Operations) -> None:
    """Fill the column of every row."""
    op.execute("UPDATE events SET size_bytes = length(payload)")
