"""Texts that damage may have changed."""

from __future__ import annotations

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Stands for bytes that are not UTF-8."""
MAX_DAMAGED_CHARACTERS = 4


def almost_equal(one: bytes | str, other: bytes | str) -> bool:
    """Tell whether two texts differ in a few damaged characters at most."""
    differing = sum(a != b for a, b in zip(one, other, strict=False))
    return len(one) == len(other) and differing <= MAX_DAMAGED_CHARACTERS


def decode(raw: bytes) -> tuple[str, bool]:
    """Return the text of *raw*, with U+FFFD for broken bytes, and whether it is valid UTF-8."""
    try:
        return raw.decode(), True
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), False
