"""Reads JSON Lines as foreign programs leave them behind, keeping each object's exact bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_SPACE_BYTES = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SourceObject:
    """One JSON object of the file.

    ``data`` is exactly the object's bytes and ``start`` their offset in the file; ``place`` counts
    the objects of one line from 0.
    """

    value: dict[str, Any]
    data: bytes
    start: int
    place: int


@dataclass(frozen=True, slots=True)
class BadText:
    """Text of the file that is no object.

    ``torn`` marks the end of a file that was cut off in the middle of a line.
    """

    reason: str
    torn: bool


def read_objects(lines: Iterable[bytes]) -> Iterator[SourceObject | BadText]:
    """Iterate over everything in *lines*, in file order; nothing in them raises.

    *lines* are the file's, with their line ends, as a file opened in binary mode gives them.
    """
    start = 0
    for line in lines:
        body, at = line, start
        if start == 0 and line.startswith(_BYTE_ORDER_MARK):
            body, at = line[3:], 3
        found = _only_object(body, at)
        if found is not None:
            yield found
        else:
            yield from _split(body, at, unfinished=not line.endswith(b"\n"))
        start += len(line)


def _only_object(line: bytes, start: int) -> SourceObject | None:
    """Return the object that fills the line, which is nearly every line."""
    try:
        value = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    body = line.lstrip(_SPACE_BYTES)
    return SourceObject(value, body.rstrip(_SPACE_BYTES), start + len(line) - len(body), 0)


def _split(line: bytes, start: int, *, unfinished: bool) -> Iterator[SourceObject | BadText]:
    # Bytes that are not UTF-8 become surrogates, so that whole objects before them can be kept
    # and every piece turns back into the bytes it came from.
    text = line.decode("utf-8", "surrogateescape")
    place, at = 0, _after_space(text, 0)
    offset = start + at  # white space is one byte a character
    while at < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
        except RecursionError:
            yield BadText("nested too deeply", torn=False)
            return
        except ValueError:
            yield BadText("cut off" if unfinished else "not JSON", torn=unfinished)
            return
        data = text[at:end].encode("utf-8", "surrogateescape")
        after = _after_space(text, end)
        yield _judge(value, data, offset, place, torn=unfinished and after == len(text))
        place += 1
        offset += len(data) + after - end
        at = after


def _judge(
    value: object, data: bytes, start: int, place: int, *, torn: bool
) -> SourceObject | BadText:
    if not isinstance(value, dict):
        return BadText("cut off" if torn else "not an object", torn)
    try:
        data.decode()
    except UnicodeDecodeError:
        return BadText("not UTF-8", torn=False)
    return SourceObject(value, data, start, place)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
