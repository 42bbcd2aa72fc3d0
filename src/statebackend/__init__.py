"""The durable, replayable, auditable record of AI-agent sessions: one SQLite file each.

``import statebackend`` is light; SQLAlchemy is loaded when the first session is created, opened
or read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statebackend.aio import AsyncSession as AsyncSession
    from statebackend.aio import AsyncSessionView as AsyncSessionView
    from statebackend.aio import AsyncStateBackend as AsyncStateBackend
    from statebackend.backend import StateBackend as StateBackend
    from statebackend.errors import DuplicateEvent as DuplicateEvent
    from statebackend.errors import InvalidTransition as InvalidTransition
    from statebackend.errors import InvalidValue as InvalidValue
    from statebackend.errors import MigrationFailed as MigrationFailed
    from statebackend.errors import OutcomeUnknown as OutcomeUnknown
    from statebackend.errors import SchemaOutdated as SchemaOutdated
    from statebackend.errors import SchemaTooNew as SchemaTooNew
    from statebackend.errors import SessionClosed as SessionClosed
    from statebackend.errors import SessionDamaged as SessionDamaged
    from statebackend.errors import SessionExists as SessionExists
    from statebackend.errors import SessionForked as SessionForked
    from statebackend.errors import SessionLocked as SessionLocked
    from statebackend.errors import SessionNotFound as SessionNotFound
    from statebackend.errors import SessionUnreadable as SessionUnreadable
    from statebackend.errors import StateBackendError as StateBackendError
    from statebackend.errors import StorageBusy as StorageBusy
    from statebackend.errors import StorageError as StorageError
    from statebackend.errors import StorageFull as StorageFull
    from statebackend.errors import StorageUnsupported as StorageUnsupported
    from statebackend.reading.view import SessionView as SessionView
    from statebackend.recording.session import Session as Session
    from statebackend.telemetry import configure_telemetry as configure_telemetry
    from statebackend.values.recorded import Cost as Cost
    from statebackend.values.recorded import Event as Event
    from statebackend.values.recorded import EventKind as EventKind
    from statebackend.values.recorded import PlanDecision as PlanDecision
    from statebackend.values.recorded import PlanItem as PlanItem
    from statebackend.values.recorded import Producer as Producer
    from statebackend.values.recorded import SessionInfo as SessionInfo
    from statebackend.values.recorded import SessionStatus as SessionStatus
    from statebackend.values.reports import Recovery as Recovery
    from statebackend.values.reports import TableRecovery as TableRecovery
    from statebackend.values.results import BadSession as BadSession
    from statebackend.values.results import SearchHit as SearchHit
    from statebackend.values.results import SearchResult as SearchResult

    __version__: str

_LAZY = {
    "AsyncSession": "aio",
    "AsyncSessionView": "aio",
    "AsyncStateBackend": "aio",
    "StateBackend": "backend",
    "DuplicateEvent": "errors",
    "InvalidTransition": "errors",
    "InvalidValue": "errors",
    "MigrationFailed": "errors",
    "OutcomeUnknown": "errors",
    "SchemaOutdated": "errors",
    "SchemaTooNew": "errors",
    "SessionClosed": "errors",
    "SessionDamaged": "errors",
    "SessionExists": "errors",
    "SessionForked": "errors",
    "SessionLocked": "errors",
    "SessionNotFound": "errors",
    "SessionUnreadable": "errors",
    "StateBackendError": "errors",
    "StorageBusy": "errors",
    "StorageError": "errors",
    "StorageFull": "errors",
    "StorageUnsupported": "errors",
    "SessionView": "reading.view",
    "Session": "recording.session",
    "configure_telemetry": "telemetry",
    "Cost": "values.recorded",
    "Event": "values.recorded",
    "EventKind": "values.recorded",
    "PlanDecision": "values.recorded",
    "PlanItem": "values.recorded",
    "Producer": "values.recorded",
    "SessionInfo": "values.recorded",
    "SessionStatus": "values.recorded",
    "Recovery": "values.reports",
    "TableRecovery": "values.reports",
    "BadSession": "values.results",
    "SearchHit": "values.results",
    "SearchResult": "values.results",
}


__all__ = [
    "AsyncSession",
    "AsyncSessionView",
    "AsyncStateBackend",
    "BadSession",
    "Cost",
    "DuplicateEvent",
    "Event",
    "EventKind",
    "InvalidTransition",
    "InvalidValue",
    "MigrationFailed",
    "OutcomeUnknown",
    "PlanDecision",
    "PlanItem",
    "Producer",
    "Recovery",
    "SchemaOutdated",
    "SchemaTooNew",
    "SearchHit",
    "SearchResult",
    "Session",
    "SessionClosed",
    "SessionDamaged",
    "SessionExists",
    "SessionForked",
    "SessionInfo",
    "SessionLocked",
    "SessionNotFound",
    "SessionStatus",
    "SessionUnreadable",
    "SessionView",
    "StateBackend",
    "StateBackendError",
    "StorageBusy",
    "StorageError",
    "StorageFull",
    "StorageUnsupported",
    "TableRecovery",
    "configure_telemetry",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(f"statebackend.{_LAZY[name]}"), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("statebackend")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
