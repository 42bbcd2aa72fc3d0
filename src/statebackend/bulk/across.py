"""Questions across all sessions of a folder: answered by the catalogue, or else by a scan."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from statebackend.catalogue import Catalogue
from statebackend.catalogue.query import Question
from statebackend.errors import StorageError
from statebackend.files.paths import SUFFIX
from statebackend.scanning import scan
from statebackend.values.recorded import CostTotals, SessionInfo
from statebackend.values.results import BadSession

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_R = TypeVar("_R")

MADE_FROM = 1_000
"""The number of sessions from which on a catalogue is made; one that is there is always used."""


class Across:
    """The sessions of *directory* as a whole; without *catalogue*, every question is a scan."""

    def __init__(self, directory: Path, *, catalogue: bool) -> None:
        self._directory = directory
        self._catalogue = _useful(directory) if catalogue else None

    def ask(
        self,
        question: Question[_T],
        consume: Callable[[Iterator[_T | BadSession]], _R],
        stems: Collection[str] | None = None,
    ) -> _R:
        """Return what *consume* makes of the answers of these sessions, newest first.

        It may stop early, and must begin anew when it is called again: if the catalogue fails.
        """
        if self._catalogue is not None:
            try:
                return self._catalogue.ask(question, consume, stems)
            except StorageError as error:
                _log_failure(error)
        return consume(self._scanned(question.read, stems))

    def each(self, question: Question[_T]) -> Iterable[_T | BadSession]:
        """Return the answers of all sessions, newest first."""
        if self._catalogue is None:
            return self._scanned(question.read)
        return self.ask(question, list)

    def below(
        self, roots: Iterable[str]
    ) -> tuple[list[tuple[SessionInfo, CostTotals]], list[BadSession]] | None:
        """Return at least *roots* and all below them, and the bad files; None without catalogue."""
        if self._catalogue is None:
            return None
        try:
            return self._catalogue.below(roots)
        except StorageError as error:
            _log_failure(error)
            return None

    def _scanned(
        self, read: scan.Reader[_T], stems: Collection[str] | None = None
    ) -> Iterator[_T | BadSession]:
        listed = scan.listing(self._directory)
        return scan.read_each(
            self._directory, read, listed.stems if stems is None else stems, listed
        )


def _useful(directory: Path) -> Catalogue | None:
    catalogue = Catalogue(directory)
    return catalogue if catalogue.is_there() or _count(directory) >= MADE_FROM else None


def _count(directory: Path) -> int:
    try:
        return sum(entry.name.endswith(SUFFIX) for entry in os.scandir(directory))
    except OSError:
        return 0


def _log_failure(error: StorageError) -> None:
    _log.info("the catalogue cannot be used, so all files are read: %s", error)
