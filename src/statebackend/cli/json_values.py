"""Values as JSON objects. The keys are part of the interface: none is renamed or removed."""

from __future__ import annotations

from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from statebackend.values.recorded import (
    Event,
    EventHeader,
    ProducerEntry,
    SessionInfo,
    SessionStatus,
)
from statebackend.values.reports import Recovery
from statebackend.values.results import BadSession
from statebackend.values.timestamps import to_text

JsonObject = dict[str, Any]
ROWS_LOST = "rows were lost to damage: see `statebackend doctor`"
# A bad file has all keys too; most values are null.
_SESSION_KEYS = (*(field.name for field in fields(SessionInfo)), "problem")


def session(entry: SessionInfo | BadSession) -> JsonObject:
    """Return a session; of a bad file only the id and the problem are known."""
    if isinstance(entry, BadSession):
        known = {"session_id": entry.session_id, "problem": entry.problem}
        return {**dict.fromkeys(_SESSION_KEYS), **known}
    return {
        **asdict(entry),
        "status": str(entry.status),
        "started_at": time(entry.started_at),
        "ended_at": time(entry.ended_at),
        "problem": problem(entry),
    }


def problem(entry: SessionInfo | BadSession) -> str | None:
    """Return what is wrong with a session, in one line, or None."""
    if isinstance(entry, BadSession):
        return entry.problem
    problems = []
    if not isinstance(entry.status, SessionStatus):
        problems.append("unknown status word")
    times = {"started_at": entry.started_at, "ended_at": entry.ended_at}
    problems += [f"{name} is not a time" for name, value in times.items() if isinstance(value, str)]
    if entry.incomplete:
        problems.append(ROWS_LOST)
    return "; ".join(problems) or None


def recovery(report: Recovery) -> JsonObject:
    """Return the report of a recovery as its file has it, with whole paths."""
    paths = {name: getattr(report, name) for name in ("path", "original", "report", "aside")}
    return {
        **asdict(report),
        **{name: None if path is None else str(path) for name, path in paths.items()},
        "recovered_at": to_text(report.recovered_at),
        "complete": report.complete,
        "tables": [{**asdict(table), "lost": table.lost} for table in report.tables],
    }


def time(value: datetime | str | None) -> str | None:
    """Return a time in its stored form, UTC; text that could not be parsed is unchanged."""
    return to_text(value) if isinstance(value, datetime) else value


def producer_entry(entry: ProducerEntry) -> JsonObject:
    """Return a producer with the sequence of its first event."""
    return {**asdict(entry.producer), "first_seen_sequence": entry.first_seen_sequence}


def event_header(event: EventHeader) -> JsonObject:
    """Return one event without its payload."""
    return {
        "sequence": event.sequence,
        "id": event.id,
        "timestamp": time(event.timestamp),
        "kind": str(event.kind),
        "producer": asdict(event.producer),
        "schema_version": event.schema_version,
    }


def event(value: Event) -> JsonObject:
    """Return one event; a payload that is not UTF-8 is given as ``payload_base64``."""
    try:
        return {**event_header(value), "payload": value.payload.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {**event_header(value), "payload_base64": b64encode(value.payload).decode()}
