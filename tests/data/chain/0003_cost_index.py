"""Add an index to cost_ledger.

Revision ID: 0003
Revises: 0002
"""

from alembic.operations import Operations

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade(op: Operations) -> None:
    """Add the index."""
    op.create_index("idx_cost_ledger_event", "cost_ledger", ["event_sequence"])
