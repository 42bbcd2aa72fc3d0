"""The five mapped tables, for queries through :meth:`SessionView.orm`."""

from statebackend.schema.models import (
    Base,
    CostLedger,
    Event,
    PlanItem,
    Producer,
    SessionMeta,
)

__all__ = ["Base", "CostLedger", "Event", "PlanItem", "Producer", "SessionMeta"]
