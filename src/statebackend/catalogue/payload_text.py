"""The default text extractor: JSON, plain text, or protobuf's wire format, whichever it looks like.

Of JSON the strings count, not the keys. What looks like an id, a digest or encoded bytes is left
out. Nothing here raises for what a payload holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from statebackend.values.recorded import Event

MOST_BYTES = 1024 * 1024
"""How much of a payload is looked at: a longer one is cut there."""

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\))")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_JSON_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"(\s*:)?|\\?\Z)', re.DOTALL)
# A whole value of these is no text: identifiers, digests, times, encoded bytes.
_OPAQUE = re.compile(
    r"(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|[0-9a-f]{32,}"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[0-9.:+Z-]*"
    r"|(?:[a-z]+[_-])?(?=[^\W_]*\d)(?=[^\W_]*[A-Z])(?=[^\W_]*[a-z])[0-9A-Za-z]{20,})\Z"
)
_LONG_WORD = 200
_ENCODED = re.compile(r"(?<![0-9A-Za-z+/_=-])[0-9A-Za-z+/_=-]{200,}+")
_MOST_DEPTH = 20
# Characters that are damaged: one of so many at most.
_DAMAGED_SHARE = 20
_DAMAGED_SHARE_WITHOUT_CONTROLS = 2
# A path or a name of many words has a separator so often; of base64, it is one of 32 characters.
_MOST_BETWEEN = 12


def extract(event: Event) -> str:
    """Return the text of an event's payload, empty when it holds none."""
    return text_of(event.payload)


def text_of(payload: bytes) -> str:
    """Return the text of *payload*, which may be cut anywhere."""
    text = _decoded(payload)
    if "\ufffd" not in text and not _CONTROL.search(text):
        return _of_text(text)
    if found := _protobuf_texts(payload):
        return joined(found)
    damaged, controls = text.count("\ufffd"), len(_CONTROL.findall(text))
    # Bytes that are no text hold control characters as well; a text in another encoding does not.
    share = _DAMAGED_SHARE if controls else _DAMAGED_SHARE_WITHOUT_CONTROLS
    return _of_text(text) if (damaged + controls) * share <= len(text) else ""


def joined(texts: Iterable[str]) -> str:
    """Return *texts* as one, without what is no text, a line each."""
    return "\n".join(kept for text in texts if (kept := cleaned(text)).strip())


def cleaned(text: str) -> str:
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
    """Tell whether a piece of half that length, at one of so many places, has no space."""
    half = _LONG_WORD // 2
    return len(text) >= _LONG_WORD and any(
        text.find(" ", start, start + half) < 0 for start in range(0, len(text) - half, half)
    )


def json_strings(value: Any) -> Iterator[str]:
    """Return the strings in a value of JSON, in their order, without the keys."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            nested = _whole_json(one)
            if nested is None:
                yield one
            else:
                waiting.append(nested)
        elif isinstance(one, dict):
            waiting.extend(reversed(one.values()))
        elif isinstance(one, list):
            waiting.extend(reversed(one))


# An object as the list of its values, so that those of a repeated key are all there.
_VALUES = json.JSONDecoder(object_pairs_hook=lambda pairs: [value for _key, value in pairs])


def _of_text(text: str) -> str:
    text = text.removeprefix("\ufeff")
    if not text.lstrip(" \t\r\n").startswith(("{", "[", '"')):
        return cleaned(text)
    for values in ([text], text.split("\n")):  # one value, or one a line
        try:
            loaded = [_VALUES.decode(each) for each in values if each.strip()]
        except (ValueError, RecursionError):
            continue
        return joined(json_strings(loaded))
    if _looks_like_cut_json(text):
        return joined(_strings_of_cut(text))
    return cleaned(text)


def _whole_json(text: str) -> Any:
    """Return the object or array that a string holds as JSON, as arguments of calls do, or None."""
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
            except ValueError:  # an escape that is none
                yield match[1]


def _decoded(payload: bytes) -> str:
    """Return the payload as text, a sign for what is damaged, nothing for a cut end."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        cut = error.reason == "unexpected end of data"
        return (payload[: error.start] if cut else payload).decode(errors="replace")


def _protobuf_texts(payload: bytes, depth: int = 0) -> list[str] | None:
    """Return the texts in a message of protobuf, or None when it cannot be one.

    The wire format has no types: a field with a length that is printable UTF-8 is taken for text,
    else for a message in the message, else for bytes. A cut message counts up to the cut.
    """
    found: list[str] = []
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
            found += _field_texts(field, depth)
        else:
            return None
    # Only the end of the whole message may be cut away.
    return found if place == end or (depth == 0 and end >= MOST_BYTES) else None


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
