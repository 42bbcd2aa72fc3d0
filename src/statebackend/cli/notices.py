"""Notices that several commands give."""

from __future__ import annotations

from collections.abc import Sequence

from statebackend.cli import endings, output, texts
from statebackend.values import BadSession

_NAMED = 20


def partial(unreadable: Sequence[BadSession]) -> None:
    """Name the files that the result lacks; if there are any, end with exit code 1."""
    for bad in unreadable[:_NAMED]:
        output.notice(texts.unreadable(bad))
    if unreadable:
        files = texts.plural(len(unreadable), "file")
        output.notice(f"the result is partial: {files} could not be read")
    endings.end(found=bool(unreadable))
