"""Text of events for the search: extractors by ``schema_version``, and the default one.

A package provides its own as an entry point of the group ``statebackend.extractors``, whose name is
the ``schema_version`` of the payloads it reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from statebackend.catalogue import claude_text, payload_text
from statebackend.values import rows
from statebackend.values.recorded import Event

_log = logging.getLogger(__name__)

GROUP = "statebackend.extractors"
MOST_CHARACTERS = 64 * 1024
"""How much text of one event is indexed."""

Extractor = Callable[[Event], str]
"""Returns the text of one event to search; its payload may be truncated."""


class Extractors:
    """The extractors by ``schema_version``, before the default one."""

    def __init__(self) -> None:
        self._extractors: dict[str, Extractor] = {claude_text.SCHEMA_VERSION: claude_text.extract}
        self._faulty: set[str] = set()

    def register(self, schema_version: str, extractor: Extractor) -> None:
        """Use *extractor* for the events of exactly this ``schema_version``."""
        self._extractors[schema_version] = extractor

    def text_of_row(self, row: Sequence[Any]) -> str:
        """Return the text of the event with these nine columns of ``events``."""
        if row[7] in self._extractors:
            return self.text(rows.event(row))
        # For most events, the text of the payload alone.
        payload = row[8]
        return _storable(
            payload_text.text_of(payload if type(payload) is bytes else rows.as_bytes(payload))
        )

    def text(self, event: Event) -> str:
        """Return the text of *event*, truncated, and in a form that can be stored.

        If an extractor raises an error or does not return text, the default one is used. The first
        time this is logged, without any of the payload.
        """
        extractor = self._extractors.get(event.schema_version)
        if extractor is None:
            return _storable(payload_text.extract(event))
        try:
            text = extractor(event)
            if isinstance(text, str):
                return _storable(text)
            problem = f"returned {type(text).__name__}, not str"
        except Exception as error:  # noqa: BLE001 - an extractor is foreign code
            # The message of the error may quote the payload.
            problem = f"raised {type(error).__name__}"
        if event.schema_version not in self._faulty:
            self._faulty.add(event.schema_version)
            _log.warning(
                "the text extractor of schema version %r %s; the default one is used instead",
                event.schema_version,
                problem,
            )
        return _storable(payload_text.extract(event))


@cache
def installed() -> Extractors:
    """Return the extractors of this package and of installed packages."""
    from importlib.metadata import entry_points

    extractors = Extractors()
    for entry_point in entry_points(group=GROUP):
        try:
            extractors.register(entry_point.name, entry_point.load())
        except Exception as error:  # noqa: BLE001 - foreign code
            _log.warning(
                "the text extractor %r cannot be loaded: %s", entry_point.name, type(error).__name__
            )
    return extractors


def _storable(text: str) -> str:
    """Return *text* truncated, with lone surrogates, which cannot be stored, replaced."""
    text = text[:MOST_CHARACTERS]
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
