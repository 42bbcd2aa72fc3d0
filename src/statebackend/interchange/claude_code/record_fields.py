"""Reads fields of one record of a Claude Code transcript; malformed fields never raise."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from statebackend.errors import InvalidValue
from statebackend.values.recorded import Cost
from statebackend.values.timestamps import normalize
from statebackend.values.validation import MAX_INTEGER

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_NAME = 200
_REFUSED = "The user doesn't want to proceed with this tool use"
_INTERRUPTED = "[Request interrupted by user"
_PROMPT_BLOCKS = ("document", "image", "text")
_COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)

Json = dict[str, Any]


def clean_text(value: object, default: str = "unknown") -> str:
    """Return *value* as text that a TEXT column can store, or *default* if it is not text."""
    if not isinstance(value, str) or not value:
        return default
    text = value[:_LONGEST_NAME]
    if text.isascii() and "\0" not in text:
        return text
    text = text.replace("\0", "\ufffd")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def version_of(record: Json) -> str:
    """Return the client's version, or ``unknown``."""
    return clean_text(record.get("version"))


def time_of(record: Json) -> datetime | None:
    """Return the record's timestamp as aware UTC, or None if it has no usable one."""
    text = record.get("timestamp")
    if not isinstance(text, str):
        return None
    try:
        timestamp = normalize("timestamp", datetime.fromisoformat(text))
    except (ValueError, InvalidValue):
        return None
    return timestamp if timestamp >= _EPOCH else None


def message_of(record: Json) -> Json | None:
    """Return the record's message, or None if there is none."""
    message = record.get("message")
    return message if isinstance(message, dict) else None


def is_conversation(record: Json) -> bool:
    """Return whether this is a user or assistant record of Claude Code."""
    return (
        record.get("type") in ("user", "assistant")
        and message_of(record) is not None
        and (isinstance(record.get("sessionId"), str) or isinstance(record.get("uuid"), str))
    )


def blocks_of(message: Json, name: str) -> list[Json]:
    """Return the message's content blocks of one type, in order."""
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict) and block.get("type") == name]


def says_something(message: Json) -> bool:
    """Return whether the content is text, or holds a block of text, an image or a document."""
    content = message.get("content")
    return isinstance(content, str) or any(blocks_of(message, name) for name in _PROMPT_BLOCKS)


def text_of(content: object) -> str:
    """Return the text of *content*, which is text or a list of blocks."""
    if isinstance(content, str):
        return content
    texts = [block.get("text") for block in blocks_of({"content": content}, "text")]
    return "\n".join(text for text in texts if isinstance(text, str))


def is_refusal(result: Json) -> bool:
    """Return whether this result says that the user refused the call."""
    return result.get("is_error") is True and text_of(result.get("content")).startswith(_REFUSED)


def is_interruption(message: Json) -> bool:
    """Return whether this is the client's note that the user stopped the turn."""
    return text_of(message.get("content")).startswith(_INTERRUPTED)


def is_requested(record: Json) -> bool:
    """Return whether a model wrote this assistant line; else the client did."""
    message = message_of(record) or {}
    return message.get("model") != "<synthetic>" and record.get("isApiErrorMessage") is not True


def tool_of(name: object) -> tuple[str, str]:
    """Return the provider and the name of a tool, both from ``mcp__server__tool``."""
    text = clean_text(name)
    if text.startswith("mcp__"):
        server, _, tool = text.removeprefix("mcp__").partition("__")
        if server and tool:
            return server, tool
    return "claude-code", text


class Counters(NamedTuple):
    """The four token counters of a cost row, which do not overlap in this source."""

    input: int = 0
    output: int = 0
    cache_write: int = 0
    cache_read: int = 0

    def plus_cost(self, cost: Cost) -> Counters:
        """Return the sums with the counters of a stored cost."""
        return Counters(
            self.input + cost.input_tokens,
            self.output + cost.output_tokens,
            self.cache_write + cost.cache_write_tokens,
            self.cache_read + cost.cache_read_tokens,
        )

    def increase_since(self, earlier: Counters) -> tuple[Counters, int]:
        """Return the increase since *earlier*, and how many counters decreased (counted as 0)."""
        steps = [now - before for now, before in zip(self, earlier, strict=True)]
        return Counters(*(max(step, 0) for step in steps)), sum(step < 0 for step in steps)


def usage_of(message: Json) -> tuple[Counters, int] | None:
    """Return the counters and how many are not numbers (read as 0); None without usage."""
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return None
    given: list[Any] = [usage.get(name) for name in _COUNTERS]
    valid = [type(value) is int and 0 <= value <= MAX_INTEGER for value in given]
    numbers: list[int] = [value if ok else 0 for value, ok in zip(given, valid, strict=True)]
    odd = sum(not ok and value is not None for value, ok in zip(given, valid, strict=True))
    return Counters(*numbers), odd
