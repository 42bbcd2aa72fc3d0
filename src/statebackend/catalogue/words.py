"""Queries of plain words and quoted phrases, and the snippet of a text that matches one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from unicodedata import category

from statebackend.catalogue import folding

Phrase = tuple[str, ...]
"""Case-folded words that follow each other."""
Span = tuple[int, int]

MOST_WORDS = 200
"""The most words of a query that are used."""

_PIECE = re.compile(r'"([^"]+)"|([^\s"]+)')
# In characters: the length of a snippet, of its part before the first match, and how far either end
# may be moved back.
_SHOWN = 200
_BEFORE = 60
_BACK = 40
# How far after the first match a place with more of the phrases is searched.
_FAR = 4000
_SPACES = re.compile(r"\s+")
_FLAG = "".join(map(chr, range(0x1F1E6, 0x1F200)))


def phrases(text: str) -> list[Phrase]:
    """Return the phrases in *text*: each part in double quotes, and each word outside.

    A word that contains punctuation is a phrase of its parts: ``foo-bar`` is ``foo`` before
    ``bar``. A part without a letter or digit is no phrase.
    """
    distinct: dict[Phrase, None] = {}
    remaining = MOST_WORDS
    for match in _PIECE.finditer(text):
        phrase = tuple(folding.tokens(match[1] or match[2])[:remaining])
        if phrase and phrase not in distinct:
            distinct[phrase] = None
            remaining -= len(phrase)
    return list(distinct)


def expression(wanted: Sequence[Phrase]) -> str:
    """Return the FTS5 query for the texts that contain all the phrases."""
    return " ".join(f'"{" ".join(phrase)}"' for phrase in wanted)


class Snippet(NamedTuple):
    """A part of a text in one line; ``marks`` are the start and end of each match in it."""

    text: str
    marks: tuple[Span, ...]


def snippet(text: str, wanted: Sequence[Phrase]) -> Snippet:
    """Return the part of *text* with the most of the *wanted* phrases, the first of several."""
    matches = _matches(text, wanted)
    start = _start(text, _best(matches, len(wanted)))
    end = _end(text, start)
    line = _SnippetLine("…" if text[:start].strip() else "")
    place = start
    for left, right, _phrase in matches:
        if start <= left < end:
            line.add(text[place:left])
            place = min(right, end)
            line.add(text[left:place], marked=True)
    line.add(text[place:end])
    line.add("…" if text[end:].strip() else "")
    return Snippet("".join(line.parts), tuple(line.marks))


class _SnippetLine:
    """A line that is put together; a run of spaces and line ends becomes one space."""

    def __init__(self, text: str) -> None:
        self.parts = [text]
        self.marks: list[Span] = []
        self._length = len(text)

    def add(self, text: str, *, marked: bool = False) -> None:
        text = _SPACES.sub(" ", text)
        self.parts.append(text)
        if marked:
            self.marks.append((self._length, self._length + len(text)))
        self._length += len(text)


_Match = tuple[int, int, Phrase]


def _matches(text: str, wanted: Sequence[Phrase]) -> list[_Match]:
    """Return the places of the phrases in *text*, in order, at least all near the first.

    A match inside another is left out.
    """
    longest_first = tuple(sorted(wanted, key=len, reverse=True))
    if text.isascii():  # the same, and many times as fast
        pattern = _ascii_pattern(longest_first)
        spans = pattern.finditer(text.lower())
        return [(*match.span(), longest_first[(match.lastindex or 1) - 1]) for match in spans]
    by_last: dict[str, list[Phrase]] = {}
    for phrase in longest_first:
        by_last.setdefault(phrase[-1], []).append(phrase)
    # The second way also finds words that become words by folding, and takes longer.
    return _match(folding.words(text), by_last) or _match(folding.folded_words(text), by_last)


def _match(words: Iterable[folding.Word], by_last: Mapping[str, Sequence[Phrase]]) -> list[_Match]:
    matches: list[_Match] = []
    parts: list[str] = []
    starts: list[int] = []
    for start, end, folded in words:
        if matches and start > matches[0][0] + _FAR:
            break
        for part in folded:
            parts.append(part)
            starts.append(start)
            for phrase in by_last.get(part, ()):
                if tuple(parts[-len(phrase) :]) == phrase:
                    _put(matches, (starts[-len(phrase)], end, phrase))
                    break
    return matches


def _put(matches: list[_Match], match: _Match) -> None:
    """Add the next match in place of those inside it, unless one overlaps it."""
    while matches and matches[-1][0] >= match[0]:
        matches.pop()
    if not matches or matches[-1][1] <= match[0]:
        matches.append(match)


@lru_cache(maxsize=8)
def _ascii_pattern(wanted: Sequence[Phrase]) -> re.Pattern[str]:
    """Return a pattern for the phrases in lower-case ASCII text, each as a group."""
    groups = "|".join(f"({'[^0-9a-z]+'.join(map(re.escape, phrase))})" for phrase in wanted)
    return re.compile(f"(?<![0-9a-z])(?:{groups})(?![0-9a-z])")


def _best(matches: Sequence[_Match], wanted: int) -> int:
    """Return the start of the first match that the most distinct phrases follow closely."""
    best, most = 0, 0
    near: Counter[Phrase] = Counter()  # those of the matches from this one up to `stop`
    stop = 0
    for number, (left, _right, phrase) in enumerate(matches):
        stop = max(stop, number)
        while stop < len(matches) and matches[stop][1] <= left + _SHOWN - _BEFORE:
            near[matches[stop][2]] += 1
            stop += 1
        if len(near) > most or number == 0:
            best, most = left, len(near)
        if most == wanted:
            break
        if stop > number:
            near[phrase] -= 1
            if not near[phrase]:
                del near[phrase]
    return best


def _start(text: str, first: int) -> int:
    """Return where to start, so that the match at *first* has some text before it."""
    start = max(first - _BEFORE, 0)
    if start and (space := _SPACES.search(text, start, first)):
        start = space.end()
    while start < first and text[start].isspace():
        start += 1
    return _boundary(text, start)


def _end(text: str, start: int) -> int:
    """Return where to end: between two words, if a space is close enough."""
    end = start + _SHOWN
    if end >= len(text):
        return len(text)
    for place in range(end, end - _BACK, -1):
        if text[place].isspace():
            return place
    return _boundary(text, end)


def _boundary(text: str, place: int) -> int:
    """Return *place*, or a place close before it that separates no character from its marks."""
    for before in range(place, max(place - _BACK, -1), -1):
        if not (0 < before < len(text) and _joined(text, before)):
            return before
    return place


def _joined(text: str, place: int) -> bool:
    before, char = text[place - 1], text[place]
    if before in _FLAG and char in _FLAG:  # two of them make one flag
        run = len(text[:place]) - len(text[:place].rstrip(_FLAG))
        return run % 2 == 1
    return (
        before == "\u200d"
        or char in "\u200c\u200d"
        or "\u1160" <= char <= "\u11ff"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or category(char)[0] == "M"
    )
