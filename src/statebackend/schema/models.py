"""The five tables of a session file, mapped; structurally equal to the specification's DDL.

``primary_key=True, nullable=True`` looks odd: SQLAlchemy would otherwise write NOT NULL where the
DDL has none. With it, inserting several rows through the ORM needs a way to match rows to their
keys: the client-made ``id`` serves as sentinel for events, the ledgers do without RETURNING.
"""

from __future__ import annotations

from sqlalchemy import BLOB, REAL, ForeignKey, Index, Integer, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Declarative base of the session file; names are the specification's, so no convention."""


class Event(Base):
    """A row of ``events``, the append-only log."""

    __tablename__ = "events"
    __table_args__ = (
        Index("idx_events_kind", "kind"),
        Index("idx_events_producer", "producer_category", "producer_name", "producer_version"),
        {"sqlite_autoincrement": True},
    )

    sequence: Mapped[int] = mapped_column(Integer, primary_key=True, nullable=True)
    id: Mapped[str] = mapped_column(Text, unique=True, insert_sentinel=True)
    timestamp: Mapped[str] = mapped_column(Text)
    kind: Mapped[str] = mapped_column(Text)
    producer_category: Mapped[str] = mapped_column(Text)
    producer_name: Mapped[str] = mapped_column(Text)
    producer_version: Mapped[str] = mapped_column(Text)
    schema_version: Mapped[str] = mapped_column(Text)
    payload: Mapped[bytes] = mapped_column(BLOB)


class SessionMeta(Base):
    """The one row of ``session_meta``, updated in place."""

    __tablename__ = "session_meta"

    session_id: Mapped[str] = mapped_column(Text, primary_key=True, nullable=True)
    parent_session_id: Mapped[str | None] = mapped_column(Text)
    profile: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text)
    depth: Mapped[int] = mapped_column(Integer)
    started_at: Mapped[str] = mapped_column(Text)
    ended_at: Mapped[str | None] = mapped_column(Text)


class CostLedger(Base):
    """A row of ``cost_ledger``, the spend of one model turn."""

    __tablename__ = "cost_ledger"
    __table_args__ = {"sqlite_autoincrement": True, "implicit_returning": False}

    sequence: Mapped[int] = mapped_column(Integer, primary_key=True, nullable=True)
    event_sequence: Mapped[int] = mapped_column(Integer, ForeignKey("events.sequence"))
    provider_name: Mapped[str] = mapped_column(Text)
    model_id: Mapped[str] = mapped_column(Text)
    input_tokens: Mapped[int] = mapped_column(Integer)
    output_tokens: Mapped[int] = mapped_column(Integer)
    cache_write_tokens: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    cache_read_tokens: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    cost_usd: Mapped[float] = mapped_column(REAL)


class PlanItem(Base):
    """A row of ``plan_items``, one decision about one planned call."""

    __tablename__ = "plan_items"
    __table_args__ = {"sqlite_autoincrement": True, "implicit_returning": False}

    sequence: Mapped[int] = mapped_column(Integer, primary_key=True, nullable=True)
    event_sequence: Mapped[int] = mapped_column(Integer, ForeignKey("events.sequence"))
    turn_id: Mapped[str] = mapped_column(Text)
    tool_call_id: Mapped[str] = mapped_column(Text)
    provider_name: Mapped[str] = mapped_column(Text)
    tool_name: Mapped[str] = mapped_column(Text)
    decision: Mapped[str] = mapped_column(Text)
    decided_by: Mapped[str] = mapped_column(Text)


class Producer(Base):
    """A row of ``producers``, one distinct plug-in build."""

    __tablename__ = "producers"

    category: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    version: Mapped[str] = mapped_column(Text, primary_key=True)
    first_seen_sequence: Mapped[int] = mapped_column(Integer, ForeignKey("events.sequence"))
