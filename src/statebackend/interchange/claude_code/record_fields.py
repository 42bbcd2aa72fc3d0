"""Reads fields of one record of a Claude Code transcript; malformed fields never raise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from statebackend.errors import InvalidValue
from statebackend.values.timestamps import normalize
from statebackend.values.validation import MAX_INTEGER

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_NAME = 200
_REFUSED = "The user doesn't want to proceed with this tool use"
_INTERRUPTED = "[Request interrupted by user"
_PROMPT_BLOCKS = frozenset({"text", "image", "document"})
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
    """Tell whether this is a user or assistant record of Claude Code."""
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
    """Tell whether the content is text, or holds a block of text, an image or a document."""
    content = message.get("content")
    return isinstance(content, str) or any(
        blocks_of(message, name) for name in sorted(_PROMPT_BLOCKS)
    )


def text_of(content: object) -> str:
    """Return the text of *content*, which is text or a list of blocks."""
    if isinstance(content, str):
        return content
    texts = [block.get("text") for block in blocks_of({"content": content}, "text")]
    return "\n".join(text for text in texts if isinstance(text, str))


def is_refusal(result: Json) -> bool:
    """Tell whether this result says that the user refused the call."""
    return result.get("is_error") is True and text_of(result.get("content")).startswith(_REFUSED)


def is_interruption(message: Json) -> bool:
    """Tell whether this is the client's note that the user stopped the turn."""
    return text_of(message.get("content")).startswith(_INTERRUPTED)


def is_requested(record: Json) -> bool:
    """Tell whether a model wrote this assistant line; else the client did."""
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


@dataclass(frozen=True, slots=True)
class Counters:
    """The four token counters of a cost row, which do not overlap in this source."""

    input: int = 0
    output: int = 0
    cache_write: int = 0
    cache_read: int = 0

    def as_tuple(self) -> tuple[int, int, int, int]:
        """Return the four numbers in the order of the fields."""
        return self.input, self.output, self.cache_write, self.cache_read

    def plus(self, other: Counters) -> Counters:
        """Return the sums."""
        pairs = zip(self.as_tuple(), other.as_tuple(), strict=True)
        return Counters(*(mine + theirs for mine, theirs in pairs))

    def increase_since(self, earlier: Counters) -> tuple[Counters, int]:
        """Return the increase since *earlier*, and how many counters decreased (counted as 0)."""
        pairs = zip(self.as_tuple(), earlier.as_tuple(), strict=True)
        steps = [now - before for now, before in pairs]
        return Counters(*(max(step, 0) for step in steps)), sum(step < 0 for step in steps)


def usage_of(message: Json) -> tuple[Counters, int] | None:
    """Return the counters and how many are not numbers (read as 0); None without usage."""
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return None
    given = [usage.get(name) for name in _COUNTERS]
    numbers = [_counter(value) for value in given]
    odd = sum(
        value is not None and number is None for value, number in zip(given, numbers, strict=True)
    )
    return Counters(*(number or 0 for number in numbers)), odd


def _counter(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INTEGER:
        return None
    return value
