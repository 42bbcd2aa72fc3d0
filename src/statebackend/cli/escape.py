"""Escapes for stored text: control and invisible characters cannot reach the terminal."""

from __future__ import annotations

import re

# C0, DEL and C1 controls; marks that reorder text (U+061C, U+200E/F, U+202A..E, U+2066..9); line
# and paragraph separators; invisible characters (the soft hyphen, fillers, variation
# selectors, U+200B, U+2060.., U+FEFF, U+FFF9.., tags); lone surrogates; private use. U+200C/D and
# U+FE0E/F stay: writing systems and emoji need them.
_UNSAFE = (
    "\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\uf8ff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    "\ufffe\uffff\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
)
_IN_LINE = re.compile(f"[\x00-\x1f{_UNSAFE}]")
_IN_TEXT = re.compile(f"[\x00-\x08\x0b-\x1f{_UNSAFE}]")


def line(value: str) -> str:
    """Escape *value* for use within a line: line ends and tabs too."""
    return _IN_LINE.sub(_escape, value)


def text(value: str) -> str:
    """Escape *value* as text of several lines: line ends and tabs stay."""
    return _IN_TEXT.sub(_escape, value.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
