"""The words of the index, normalized: without case, accents and width.

In a script without spaces between words, each character is a word. Most texts are left to SQLite's
own tokenizer, which folds case and accents of the Latin and Cyrillic scripts. Other scripts
are folded here before they are indexed, as is every query.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cache, lru_cache
from unicodedata import category, normalize

# Thai and Lao; Burmese; Khmer; scripts of South-East Asia; Han, kana, bopomofo, hangul, Yi.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f"
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\ua4cf\ua960-\ua9ff\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
# Letters that SQLite folds as `fold` does, and characters that separate words for both.
_PLAIN = (
    "\x00-\x7f\u00a0-\u00a9\u00ab\u00ac\u00ae-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf-\u00de"
    "\u00e0-\u0130\u0134-\u013e\u0141-\u0148\u014a-\u017e\u0400\u0402-\u0450\u0452-\u0482\u048a-\u04ff"
    "\u1e00-\u1e99\u1ea0-\u1eff\u2010-\u2027\u2030-\u205e\u2190-\u23f3\u2500-\u26ff\u2701-\u2b4c"
    "\U0001f300-\U0001f320\U0001f330-\U0001f335\U0001f337-\U0001f37c\U0001f380-\U0001f393"
    "\U0001f3a0-\U0001f3c4\U0001f400-\U0001f43e\U0001f442-\U0001f4f7\U0001f500-\U0001f53d"
    "\U0001f5fb-\U0001f640\U0001f680-\U0001f6c5"
)
# Soft hyphen, joiners, tatweel, variation selectors: invisible, and inside words.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u0640\u200c\u200d\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]"
)
# Accents, Hebrew points, Arabic vowel signs. A Cyrillic letter with an accent is another letter; of
# these, only ё is often written without it.
_ACCENTS = re.compile(
    "(?<![\u0400-\u04ff])[\u0300-\u036f]+|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]+"
    "|[\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed]+"
)
_NOT_PLAIN = re.compile(f"[^{_PLAIN}]")
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")


def is_plain(text: str) -> bool:
    """Return whether SQLite's tokenizer finds the same words in *text* without :func:`fold`."""
    return text.isascii() or _NOT_PLAIN.search(text) is None


def fold(text: str) -> str:
    """Return *text* in the form in which SQLite's tokenizer finds the words to compare."""
    text = normalize("NFKD", _INVISIBLE.sub("", text)).casefold()
    text = normalize("NFC", _ACCENTS.sub("", normalize("NFKD", text))).replace("\u0451", "\u0435")
    text = _between().sub(" ", text)
    return _UNSPACED_RUN.sub(lambda run: f" {' '.join(run[0])} ", text)


def tokens(text: str) -> list[str]:
    """Return the words of *text*, folded, in their order."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _word().findall(fold(text))


Word = tuple[int, int, list[str]]


def words(text: str) -> Iterator[Word]:
    """Return the start and end of each word of *text*, and its folded words (mostly one)."""
    if text.isascii():
        for match in _ASCII_WORD.finditer(text):
            yield (*match.span(), [match[0].lower()])
    else:
        for match in _shown_word().finditer(text):
            word = match[0]
            yield (*match.span(), _often(word) if len(word) < _SHORT else tokens(word))


def folded_words(text: str) -> Iterator[Word]:
    """Return every word of the folded *text*, and the place of its characters in *text*.

    Some symbols become letters, so a word may start or end within one, as ``1`` does in ``½``.
    """
    for run in _RUN.finditer(text):  # no word has a space in it
        run_words = words(run[0]) if is_plain(run[0]) else _folded_words(run[0])
        for start, end, folded in run_words:
            yield run.start() + start, run.start() + end, folded


def _folded_words(text: str) -> Iterator[Word]:
    places: list[int] = []  # of each character with its marks, and where its folded form ends
    ends: list[int] = []
    parts: list[str] = []
    size = 0
    for match in _character().finditer(text):
        char = match[0]
        part = _often_folded(char) if len(char) < _SHORT else fold(char)
        size += len(part)
        places.append(match.start())
        ends.append(size)
        parts.append(part)
    places.append(len(text))
    for match in _word().finditer("".join(parts)):
        first = bisect_right(ends, match.start())
        last = bisect_left(ends, match.end(), lo=first)
        yield places[first], places[last + 1], [match[0]]


_RUN = re.compile(r"\S+")
_SHORT = 20
_often_folded = lru_cache(maxsize=4096)(fold)
_often = lru_cache(maxsize=4096)(tokens)
_ASCII_WORD = re.compile("[0-9A-Za-z]+")


@cache
def _marks() -> str:
    """Return all combining marks as ranges, for a character class of a pattern."""
    planes = (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))
    ranges: list[list[int]] = []
    for code in planes:
        if category(chr(code))[0] != "M":
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


@cache
def _between() -> re.Pattern[str]:
    return re.compile(rf"(?:[^\w\x00-\x7f{_marks()}])+")


# Both match ASCII characters first: testing the other classes takes longer.
@cache
def _word() -> re.Pattern[str]:
    return re.compile(rf"(?:[0-9A-Za-z]++|(?![\x00-\x7f])(?:\w|[{_marks()}]))+")


@cache
def _character() -> re.Pattern[str]:
    """Return a pattern for the parts of a text that can be folded one by one.

    A part is a character with its marks, later parts of a hangul syllable and narrow kana marks.
    """
    joining = f"{_marks()}{_INVISIBLE.pattern[1:-1]}\u1160-\u11ff\u3131-\u318e\uff9e-\uffdc"
    return re.compile(f"(?s:.)[{joining}]*")


@cache
def _shown_word() -> re.Pattern[str]:
    inner = f"[{_marks()}\u00ad\u200c\u200d\u2060\ufeff]"
    other = rf"(?![\x00-\x7f{_UNSPACED}])"
    begin = rf"(?:[0-9A-Za-z]++|{other}\w)"
    return re.compile(rf"[{_UNSPACED}]{inner}*|{begin}(?:[0-9A-Za-z]++|{other}(?:\w|{inner}))*")
