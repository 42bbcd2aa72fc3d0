"""The catalogue: a derived copy of what sessions say of themselves, in one file outside the folder.

It is checked against the folder at each use, so it never changes an answer, and it can be deleted
at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from statebackend.catalogue import query
from statebackend.catalogue.file import Progress, catalogue_path, make_anew, shielded, using
from statebackend.catalogue.query import Question
from statebackend.catalogue.refresh import Current, answer
from statebackend.values.recorded import CostTotals, SessionInfo
from statebackend.values.results import BadSession

_T = TypeVar("_T")
_R = TypeVar("_R")


class Catalogue:
    """The catalogue of the sessions folder *directory*, an absolute path.

    Every method connects anew, so an object may be shared by threads and outlive a fork. All raise
    :class:`StorageError` when there can be no catalogue: scan the files then.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = catalogue_path(directory)

    def refresh(self, progress: Progress | None = None) -> None:
        """Make it current, making it if need be; *progress* hears how many of how many are read."""
        self._answer(lambda _current: None, progress)

    def rebuild(self, progress: Progress | None = None) -> None:
        """Throw it away and make it anew from the files."""
        make_anew(self.directory)
        self.refresh(progress)

    def is_there(self) -> bool:
        """Tell whether it has been made."""
        return os.path.lexists(self.path)

    def ask(
        self,
        question: Question[_T],
        consume: Callable[[Iterator[_T | BadSession]], _R],
        stems: Collection[str] | None = None,
    ) -> _R:
        """Return what *consume* makes of the answers of these sessions, newest first.

        It may stop early, and may be called twice: when the catalogue turns out to be damaged.
        """

        def answer_all(current: Current) -> _R:
            return consume(query.each(current, self.directory, question, stems))

        return self._answer(answer_all)

    def below(
        self, roots: Iterable[str]
    ) -> tuple[list[tuple[SessionInfo, CostTotals]], list[BadSession]]:
        """Return at least *roots*, all sessions below them and the parents of *roots*.

        With them come the files that could not be read, since they may belong there.
        """
        given = list(roots)
        return self._answer(lambda current: query.below(current, self.directory, given))

    def _answer(self, ask: Callable[[Current], _R], progress: Progress | None = None) -> _R:
        heard = shielded(progress)
        return using(self.directory, lambda driver: answer(driver, self.directory, ask, heard))
