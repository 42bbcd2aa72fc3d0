"""Stored text cannot steer a terminal."""

from __future__ import annotations

import unicodedata

import pytest

from statebackend.cli import escape


@pytest.mark.parametrize(
    "stored,shown",
    [
        ("\x1b[31mX\r", "\\x1b[31mX\\x0d"),
        ("a\nb\tc", "a\\x0ab\\x09c"),
        ("\x9b2J", "\\x9b2J"),
        ("\x7f\x00", "\\x7f\\x00"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("\ud83d", "\\ud83d"),
        ("\U000e0041", "\\U000e0041"),
        ("é ✓ 漢字 👩\u200d💻", "é ✓ 漢字 👩\u200d💻"),
    ],
)
def test_line_escapes_what_steers_and_nothing_else(stored: str, shown: str) -> None:
    """A part of one line shows control characters as escapes and keeps every other."""
    assert escape.line(stored) == shown


def test_text_keeps_line_ends_and_tabs() -> None:
    """A text of several lines keeps its line ends, of both kinds, and its tabs."""
    assert escape.text("a\r\nb\n\tc\rd\x1b") == "a\nb\n\tc\\x0dd\\x1b"


def test_every_control_character_is_escaped() -> None:
    """No control character, separator of lines or lone surrogate gets through."""
    steering = [
        char
        for char in map(chr, range(0x110000))
        if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(char)
        in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    ]
    assert not [char for char in steering if escape.line(char) == char]
