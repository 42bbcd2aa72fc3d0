"""Reads JSON Lines that other programs wrote, with the exact bytes of each object."""

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
    """Text of the file that is not a JSON object.

    ``torn`` marks an incomplete last line.
    """

    reason: str
    torn: bool


def read_objects(lines: Iterable[bytes]) -> Iterator[SourceObject | BadText]:
    """Return everything in *lines*, in file order; malformed text gives a :class:`BadText`.

    *lines* are the file's, with their line ends, as from a file opened in binary mode.
    """
    start = 0
    for line in lines:
        body, at = line, start
        if start == 0 and line.startswith(_BYTE_ORDER_MARK):
            body, at = line[3:], 3
        whole_line = _only_object(body, at)
        if whole_line is not None:
            yield whole_line
        else:
            yield from _split(body, at, unfinished=not line.endswith(b"\n"))
        start += len(line)


def _only_object(line: bytes, start: int) -> SourceObject | None:
    """Return the object if the line is exactly one, as nearly every line is."""
    try:
        value = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    body = line.lstrip(_SPACE_BYTES)
    return SourceObject(value, body.rstrip(_SPACE_BYTES), start + len(line) - len(body), 0)


def _split(line: bytes, start: int, *, unfinished: bool) -> Iterator[SourceObject | BadText]:
    # Bytes that are not UTF-8 become surrogates: objects before them can be read, and every
    # object is encoded back to its original bytes.
    text = line.decode("utf-8", "surrogateescape")
    place, at = 0, _after_space(text, 0)
    offset = start + at  # white space characters are one byte each
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
        yield _classify(value, data, offset, place, torn=unfinished and after == len(text))
        place += 1
        offset += len(data) + after - end
        at = after


def _classify(
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
    space = _SPACE.match(text, at)
    return space.end() if space else at
