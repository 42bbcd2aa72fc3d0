"""The text of imported Claude Code transcripts: messages, tool calls and tool results.

A payload is the original lines. One line makes several events, so each event gets the part of its
kind. Ids, signatures, counters and copies are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from statebackend.catalogue.payload_text import join, json_strings, text_of
from statebackend.values.recorded import Event, EventKind

SCHEMA_VERSION = "claude-code-jsonl"
"""The ``schema_version`` that the importer gives its events."""

_NO_TEXT = frozenset({"type", "id", "tool_use_id", "signature", "source", "cache_control", "data"})
_NAMES_OF_KINDS = {EventKind.TOOL_CALL: "tool_use", EventKind.TOOL_RESULT: "tool_result"}


def extract(event: Event) -> str:
    """Return the text of one imported event."""
    try:
        records = [json.loads(line) for line in event.payload.splitlines() if line.strip()]
    except (ValueError, RecursionError):  # truncated, since it is large
        return text_of(event.payload)
    wanted = _NAMES_OF_KINDS.get(event.kind) if isinstance(event.kind, EventKind) else None
    texts = (text for record in records for text in _texts(record, wanted))
    return join(texts)


def _texts(record: Any, wanted: str | None) -> Iterator[str]:
    if not isinstance(record, dict):
        yield from json_strings(record)
        return
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from _of_blocks(content, wanted)
    else:
        for key in ("attachment", "hookErrors", "content"):
            yield from _without_ids(record.get(key))


def _of_blocks(blocks: list[Any], wanted: str | None) -> Iterator[str]:
    for block in blocks:
        sort = block.get("type") if isinstance(block, dict) else None
        if sort == wanted or (wanted is None and sort not in _NAMES_OF_KINDS.values()):
            yield from _without_ids(block)


def _without_ids(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "input":  # of a tool, whose keys are its own
                yield from json_strings(each)
            elif key not in _NO_TEXT:
                yield from _without_ids(each)
    elif isinstance(value, list):
        for each in value:
            yield from _without_ids(each)
    elif isinstance(value, str):
        yield value
