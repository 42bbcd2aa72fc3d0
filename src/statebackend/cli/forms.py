"""Values as JSON objects. The keys are part of the interface: none is renamed or removed."""

from __future__ import annotations

from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from statebackend.values.recorded import (
    CostTotals,
    Event,
    EventHeader,
    Producer,
    ProducerEntry,
    SessionCounts,
    SessionInfo,
    SessionStatus,
)
from statebackend.values.reports import Recovery
from statebackend.values.results import BadSession
from statebackend.values.timestamps import to_text

Form = dict[str, Any]
ROWS_LOST = "rows were lost to damage: see `statebackend doctor`"
# Of a bad file most values are null, but no key is absent.
_SESSION_KEYS = (*(field.name for field in fields(SessionInfo)), "problem")


def session(entry: SessionInfo | BadSession) -> Form:
    """Return one row of ``list``; of a bad file only the id and the problem are known."""
    if isinstance(entry, BadSession):
        known = {"session_id": entry.session_id, "problem": entry.problem}
        return {**dict.fromkeys(_SESSION_KEYS), **known}
    return {
        "session_id": entry.session_id,
        "parent_session_id": entry.parent_session_id,
        "profile": entry.profile,
        "status": str(entry.status),
        "depth": entry.depth,
        "started_at": moment(entry.started_at),
        "ended_at": moment(entry.ended_at),
        "cost_usd": entry.cost_usd,
        "unpriced_rows": entry.unpriced_rows,
        "live": entry.live,
        "incomplete": entry.incomplete,
        "problem": problem(entry),
    }


def problem(entry: SessionInfo | BadSession) -> str | None:
    """Return what is wrong with a session, in one line, or None."""
    if isinstance(entry, BadSession):
        return entry.problem
    found = []
    if not isinstance(entry.status, SessionStatus):
        found.append("unknown status word")
    times = {"started_at": entry.started_at, "ended_at": entry.ended_at}
    found += [f"{name} is no time" for name, value in times.items() if isinstance(value, str)]
    if entry.incomplete:
        found.append(ROWS_LOST)
    return "; ".join(found) or None


def recovery(value: Recovery) -> Form:
    """Return the report of a recovery as its file has it, with whole paths."""
    from statebackend.files import recovery_reports

    names = ("path", "original", "report", "aside")
    paths = {name: getattr(value, name) for name in names}
    whole = {name: None if path is None else str(path) for name, path in paths.items()}
    return {**recovery_reports.to_json(value), **whole}


def moment(value: datetime | str | None) -> str | None:
    """Return a time in its stored form, UTC; a stored text that is no time of ours as it is."""
    return to_text(value) if isinstance(value, datetime) else value


def totals(value: CostTotals) -> Form:
    """Return sums over ledger rows."""
    return asdict(value)


def producer(value: Producer) -> Form:
    """Return a producer."""
    return asdict(value)


def producer_entry(value: ProducerEntry) -> Form:
    """Return a producer with the sequence of its first event."""
    return {**producer(value.producer), "first_seen_sequence": value.first_seen_sequence}


def counts(value: SessionCounts) -> Form:
    """Return rows per table, and events per kind."""
    return asdict(value)


def header(event: EventHeader) -> Form:
    """Return one event without its payload."""
    return {
        "sequence": event.sequence,
        "id": event.id,
        "timestamp": moment(event.timestamp),
        "kind": str(event.kind),
        "producer": producer(event.producer),
        "schema_version": event.schema_version,
    }


def event(value: Event) -> Form:
    """Return one event; a payload that is not UTF-8 is given as ``payload_base64``."""
    try:
        return {**header(value), "payload": value.payload.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {**header(value), "payload_base64": b64encode(value.payload).decode()}
