"""The default text extractor: JSON, plain text, or protobuf's wire format, by the look of it.

From JSON it takes the strings, not the keys. Ids, digests and encoded bytes are left out. It never
raises an error for a payload.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from statebackend.values.recorded import Event

MOST_BYTES = 1024 * 1024
"""How much of a payload is read; the rest is ignored."""

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\))")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_JSON_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"(\s*:)?|\\?\Z)', re.DOTALL)
# A value that is only one of these is not text: identifiers, digests, times, encoded bytes.
_OPAQUE = re.compile(
    r"(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|[0-9a-f]{32,}"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[0-9.:+Z-]*"
    r"|(?:[a-z]+[_-])?(?=[^\W_]*\d)(?=[^\W_]*[A-Z])(?=[^\W_]*[a-z])[0-9A-Za-z]{20,})\Z"
)
_LONG_WORD = 200
_ENCODED = re.compile(r"(?<![0-9A-Za-z+/_=-])[0-9A-Za-z+/_=-]{200,}+")
_MOST_DEPTH = 20
# At most one character in this many may be damaged.
_DAMAGED_SHARE = 20
_DAMAGED_SHARE_WITHOUT_CONTROLS = 2
# A path or a name of many words has a separator at least this often; base64, every 32 characters.
_MOST_BETWEEN = 12


def extract(event: Event) -> str:
    """Return the text of an event's payload, empty if there is none."""
    return text_of(event.payload)


def text_of(payload: bytes) -> str:
    """Return the text of *payload*, which may be cut anywhere."""
    text = _decode(payload)
    if "\ufffd" not in text and not _CONTROL.search(text):
        return _of_text(text)
    if texts := _protobuf_texts(payload):
        return join(texts)
    damaged, controls = text.count("\ufffd"), len(_CONTROL.findall(text))
    # Binary data contains control characters as well; text in another encoding does not.
    share = _DAMAGED_SHARE if controls else _DAMAGED_SHARE_WITHOUT_CONTROLS
    return _of_text(text) if (damaged + controls) * share <= len(text) else ""


def join(texts: Iterable[str]) -> str:
    """Return *texts* as lines of one text, each cleaned."""
    return "\n".join(kept for text in texts if (kept := clean(text)).strip())


def clean(text: str) -> str:
    """Return *text* without terminal escapes and long runs of encoded bytes; empty if opaque."""
    if len(text) >= 20:
        if " " not in text and len(text) < _LONG_WORD and _OPAQUE.match(text):
            return ""
        if _may_hold_long_word(text) and max(map(len, text.split()), default=0) >= _LONG_WORD:
            text = _ENCODED.sub(_unless_encoded, text)
    return _ESCAPE_SEQUENCE.sub("", text) if "\x1b" in text else text


def _unless_encoded(run: re.Match[str]) -> str:
    separators = sum(map(run[0].count, "/+_-"))
    return run[0] if separators * _MOST_BETWEEN >= len(run[0]) else " "


def _may_hold_long_word(text: str) -> bool:
    """Return whether a piece of half the length of a long word has no space."""
    half = _LONG_WORD // 2
    return len(text) >= _LONG_WORD and any(
        text.find(" ", start, start + half) < 0 for start in range(0, len(text) - half, half)
    )


def json_strings(value: Any) -> Iterator[str]:
    """Return the strings in a JSON value, in their order, without the keys."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            nested = _parse_nested(item)
            if nested is None:
                yield item
            else:
                waiting.append(nested)
        elif isinstance(item, dict):
            waiting.extend(reversed(item.values()))
        elif isinstance(item, list):
            waiting.extend(reversed(item))


# An object becomes the list of its values, so that none of a repeated key is lost.
_VALUES = json.JSONDecoder(object_pairs_hook=lambda pairs: [value for _key, value in pairs])


def _of_text(text: str) -> str:
    text = text.removeprefix("\ufeff")
    if not text.lstrip(" \t\r\n").startswith(("{", "[", '"')):
        return clean(text)
    for values in ([text], text.split("\n")):  # one value, or one a line
        try:
            loaded = [_VALUES.decode(each) for each in values if each.strip()]
        except (ValueError, RecursionError):
            continue
        return join(json_strings(loaded))
    if _looks_like_cut_json(text):
        return join(_strings_of_cut(text))
    return clean(text)


def _parse_nested(text: str) -> Any:
    """Return the JSON object or array that a string is, as arguments of calls are, or None."""
    if len(text) < 2 or text[0] + text[-1] not in ("{}", "[]"):
        return None
    try:
        return _VALUES.decode(text)
    except (ValueError, RecursionError):
        return None


def _looks_like_cut_json(text: str) -> bool:
    return re.match(r'\s*(?:\{\s*"[^"\\]*"\s*:|\[\s*[\[{"])', text) is not None


def _strings_of_cut(text: str) -> Iterator[str]:
    for match in _JSON_STRING.finditer(text):
        if match[2] is None:
            try:
                yield json.loads(f'"{match[1]}"', strict=False) if "\\" in match[1] else match[1]
            except ValueError:  # an invalid escape
                yield match[1]


def _decode(payload: bytes) -> str:
    """Return the payload as text, with U+FFFD for damaged bytes, without a truncated end."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        cut = error.reason == "unexpected end of data"
        return (payload[: error.start] if cut else payload).decode(errors="replace")


def _protobuf_texts(payload: bytes, depth: int = 0) -> list[str] | None:
    """Return the texts in a protobuf message, or None if it cannot be one.

    The wire format has no types: a field with a length is text if it is printable UTF-8, else a
    nested message if it can be one, else bytes. A truncated message is read up to its end.
    """
    texts: list[str] = []
    place, end = 0, len(payload)
    while place < end:
        key, place = _varint(payload, place)
        if key is None or not 0 < key >> 3 < 1 << 29:
            return None
        wire = key & 7
        if wire == 0:
            number, place = _varint(payload, place)
            if number is None:
                return None
        elif wire in (1, 5):
            place += 8 if wire == 1 else 4
        elif wire == 2:
            size, place = _varint(payload, place)
            if size is None:
                return None
            field = payload[place : place + size]
            place += size
            texts += _field_texts(field, depth)
        else:
            return None
    # Only the outermost message may be truncated.
    return texts if place == end or (depth == 0 and end >= MOST_BYTES) else None


def _field_texts(field: bytes, depth: int) -> list[str]:
    if not field:
        return []
    try:
        text = field.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and not _CONTROL.search(text):
        return [_of_text(text)]
    inner = _protobuf_texts(field, depth + 1) if depth < _MOST_DEPTH else None
    return inner or []


def _varint(payload: bytes, place: int) -> tuple[int | None, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(payload):
            return None, place
        byte = payload[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    return None, place
