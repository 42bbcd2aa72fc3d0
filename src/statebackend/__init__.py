"""The durable, replayable, auditable record of AI-agent sessions: one SQLite file each.

``import statebackend`` is light: a name is imported on first use, and SQLAlchemy with the first
session that is created, opened or read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# fmt: off
# isort: off
if TYPE_CHECKING:  # the same names as below, for type checkers
    from statebackend.aio import AsyncSession, AsyncSessionView, AsyncStateBackend
    from statebackend.backend import StateBackend
    from statebackend.errors import (
        DuplicateEvent, InvalidTransition, InvalidValue, MigrationFailed, OutcomeUnknown,
        SchemaOutdated, SchemaTooNew, SessionClosed, SessionDamaged, SessionExists, SessionForked,
        SessionLocked, SessionNotFound, SessionUnreadable, StateBackendError, StorageBusy,
        StorageError, StorageFull, StorageUnsupported,
    )
    from statebackend.reading.view import SessionView
    from statebackend.recording.session import Session
    from statebackend.telemetry import configure_telemetry
    from statebackend.values.recorded import (
        Cost, Event, EventKind, PlanDecision, PlanItem, Producer, SessionInfo, SessionStatus,
    )
    from statebackend.values.reports import Recovery, TableRecovery
    from statebackend.values.results import BadSession, SearchHit, SearchResult

    __version__: str

__all__ = [
    "AsyncSession", "AsyncSessionView", "AsyncStateBackend", "BadSession", "Cost", "DuplicateEvent",
    "Event", "EventKind", "InvalidTransition", "InvalidValue", "MigrationFailed", "OutcomeUnknown",
    "PlanDecision", "PlanItem", "Producer", "Recovery", "SchemaOutdated", "SchemaTooNew",
    "SearchHit", "SearchResult", "Session", "SessionClosed", "SessionDamaged", "SessionExists",
    "SessionForked", "SessionInfo", "SessionLocked", "SessionNotFound", "SessionStatus",
    "SessionUnreadable", "SessionView", "StateBackend", "StateBackendError", "StorageBusy",
    "StorageError", "StorageFull", "StorageUnsupported", "TableRecovery", "configure_telemetry",
]
# isort: on
# fmt: on

# The module of each name; those that are not here are in ``errors``.
_MODULES = {
    "aio": ("AsyncSession", "AsyncSessionView", "AsyncStateBackend"),
    "backend": ("StateBackend",),
    "reading.view": ("SessionView",),
    "recording.session": ("Session",),
    "telemetry": ("configure_telemetry",),
    "values.recorded": (
        *("Cost", "Event", "EventKind", "PlanDecision", "PlanItem"),
        *("Producer", "SessionInfo", "SessionStatus"),
    ),
    "values.reports": ("Recovery", "TableRecovery"),
    "values.results": ("BadSession", "SearchHit", "SearchResult"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name in __all__:
        module = import_module(f"statebackend.{_MODULE_OF.get(name, 'errors')}")
        return getattr(module, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("statebackend")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
