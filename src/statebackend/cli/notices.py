"""Notices that several commands give."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from statebackend.cli import endings, output, texts
from statebackend.values import BadSession, Recovery

_NAMED = 20


def partial(unreadable: Sequence[BadSession]) -> None:
    """Name the files that the result lacks; if there are any, end with exit code 1."""
    for bad in unreadable[:_NAMED]:
        output.notice(texts.unreadable(bad))
    if unreadable:
        files = texts.plural(len(unreadable), "file")
        output.notice(f"the result is partial: {files} could not be read")
    endings.end(found=bool(unreadable))


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Write what the package warns of to stderr: above all, each recovery that a command meets."""
    handler = _Notices(logging.WARNING)
    logger = logging.getLogger("statebackend")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Notices(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        output.notice(record.getMessage())


def incomplete(recovery: Recovery) -> str:
    """Return in one line what a recovery could not save as it was; empty when it saved all."""
    sums = {
        "lost": sum(table.lost for table in recovery.tables),
        "set aside": sum(table.set_aside for table in recovery.tables),
        "repaired": sum(table.repaired for table in recovery.tables),
        "without their event": sum(table.orphaned for table in recovery.tables),
    }
    parts = [f"{texts.plural(count, 'row')} {word}" for word, count in sums.items() if count]
    if recovery.derived:
        parts.append(f"worked out anew: {', '.join(recovery.derived)}")
    return ", ".join(parts)
