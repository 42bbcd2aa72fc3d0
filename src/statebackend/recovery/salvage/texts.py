"""Texts: what an index entry may be, and what damage may have made of a text."""

from __future__ import annotations

from statebackend.values.recorded import EventKind, ProducerCategory

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Stands for bytes that are not UTF-8."""
MAX_DAMAGED_CHARACTERS = 4
_LEAST_ID_CHARACTERS = 8
_WORDS = {word.value.encode() for words in (EventKind, ProducerCategory) for word in words}


def is_word(text: bytes) -> bool:
    """Tell whether the text of an index entry is a kind of event or a producer's category."""
    return text in _WORDS


def is_id(text: bytes) -> bool:
    """Tell whether the text of an index entry is an event's id."""
    return len(text) >= _LEAST_ID_CHARACTERS and not is_word(text)


def almost_equal(text: bytes | str, other: bytes | str) -> bool:
    """Tell whether two texts differ in a few damaged characters at most."""
    differing = sum(a != b for a, b in zip(text, other, strict=False))
    return len(text) == len(other) and differing <= MAX_DAMAGED_CHARACTERS
