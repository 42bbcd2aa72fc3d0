"""Makes Claude Code transcripts for tests, and measures the sessions that come of them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from statebackend import EventKind, StateBackend
from statebackend.interchange.report import FileReport

SESSION = "3f2b8f0e-54a1-4d0c-9f2e-1c7a6b5d4e3f"
USAGE = {
    "input_tokens": 2,
    "output_tokens": 10,
    "cache_creation_input_tokens": 30,
    "cache_read_input_tokens": 400,
}
REFUSAL = "The user doesn't want to proceed with this tool use. The tool use was rejected."
Json = dict[str, Any]


class Lines:
    """Collects the lines of a transcript; every record is one second after the one before."""

    def __init__(self, session: str = SESSION, **fields: object) -> None:
        self.data = b""
        self._fields = {"sessionId": session, "version": "2.1.40", "isSidechain": False} | fields
        self._number = count(1)

    def record(self, kind: str, **fields: object) -> Json:
        """Make a record without adding it."""
        number = next(self._number)
        return {
            "type": kind,
            "uuid": f"u{number}",
            "timestamp": f"2026-05-04T10:{number // 60:02d}:{number % 60:02d}.500Z",
            **self._fields,
            **fields,
        }

    def raw(self, data: bytes) -> Lines:
        """Add bytes as they are."""
        self.data += data
        return self

    def add(self, kind: str, **fields: object) -> Lines:
        """Add a record."""
        return self.raw(json.dumps(self.record(kind, **fields)).encode() + b"\n")

    def user(self, content: object, **fields: object) -> Lines:
        """Add a user record."""
        return self.add("user", message={"role": "user", "content": content}, **fields)

    def assistant(self, message_id: str, *blocks: Json, **message: object) -> Lines:
        """Add one assistant line; *message* overrides what the message holds."""
        standard: Json = {"id": message_id, "model": "sample-1", "content": list(blocks)}
        return self.add("assistant", message=standard | {"usage": USAGE} | message)

    def write(self, path: Path) -> Path:
        """Write what was collected so far."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path


def text(words: str) -> Json:
    """Make a block of text."""
    return {"type": "text", "text": words}


def tool_use(call_id: str, name: str = "Bash") -> Json:
    """Make a block with a tool call."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def tool_result(call_id: str, content: object = "done", **fields: object) -> Json:
    """Make a block with a tool's result."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


@dataclass(frozen=True)
class Measured:
    """What must not depend on how a transcript came in: at once, or in growing pieces."""

    prompts: bytes
    messages: dict[str, bytes]
    calls: bytes
    results: bytes
    contexts: bytes
    refusals: tuple[tuple[str, str, str], ...]
    tokens: tuple[int, int, int, int]
    status: str

    @property
    def all_messages(self) -> bytes:
        """Return the lines of all messages, in the order of their first lines."""
        return b"\n".join(self.messages.values())


def measure(backend: StateBackend, session_id: str) -> Measured:
    """Read a session back."""
    streams: dict[str, list[bytes]] = defaultdict(list)
    messages: dict[str, list[bytes]] = {}
    with backend.read(session_id) as view:
        for event in view.events():
            if event.producer.category == "model":
                identity = json.loads(event.payload.split(b"\n")[0])["message"].get("id", "")
                messages.setdefault(identity, []).append(event.payload)
            else:
                streams[str(event.kind)].append(event.payload)
        totals, status = view.cost_totals(), str(view.info.status)
        denied = [entry.item for entry in view.plan_items("deny")]
    return Measured(
        prompts=b"\n".join(streams[EventKind.MESSAGE]),
        messages={name: b"\n".join(parts) for name, parts in messages.items()},
        calls=b"\n".join(streams[EventKind.TOOL_CALL]),
        results=b"\n".join(streams[EventKind.TOOL_RESULT]),
        contexts=b"\n".join(streams[EventKind.CONTEXT_CONTRIBUTION]),
        refusals=tuple((item.turn_id, item.tool_call_id, item.tool_name) for item in denied),
        tokens=(
            totals.input_tokens,
            totals.output_tokens,
            totals.cache_read_tokens,
            totals.cache_write_tokens,
        ),
        status=status,
    )


def take(backend: StateBackend, path: Path) -> FileReport:
    """Import one file and return its report."""
    (report,) = backend.import_transcripts([path]).files
    return report


def rows(backend: StateBackend) -> dict[str, list[object]]:
    """Return everything that the sessions hold, to compare before and after."""
    found: dict[str, list[object]] = {}
    for session_id in backend.ids():
        with backend.read(session_id) as view:
            found[session_id] = [
                view.info,
                *view.events(),
                *view.costs(),
                *view.plan_items(),
                *view.producers(),
            ]
    return found
