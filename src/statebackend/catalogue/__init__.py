"""The catalogue: a derived copy of the sessions' summaries and sums, in a file outside the folder.

It is compared with the folder at each use, and can be deleted at any time.
"""

from __future__ import annotations

import heapq
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from statebackend.catalogue import file, refresh
from statebackend.catalogue.file import Progress, catalogue_path
from statebackend.catalogue.questions import totals
from statebackend.catalogue.questions.question import Question, session_id
from statebackend.catalogue.questions.totals import Costed
from statebackend.catalogue.schema import value_errors_are_damage
from statebackend.scanning.listing import Listing, sort_key
from statebackend.values.results import BadSession

_T = TypeVar("_T")


class Catalogue:
    """The catalogue of the sessions folder *directory*, an absolute path.

    Every method makes its own connection, so threads may share an object, and it may outlive a
    fork. All raise :class:`StorageError` when there can be no catalogue: scan the files then.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = catalogue_path(directory)

    def refresh(self, progress: Progress | None = None) -> None:
        """Make it current, creating it if it is missing.

        *progress* is called with how many session files have been read, and of how many.
        """

        def update(driver: sqlite3.Connection) -> None:
            with refresh.current(driver, self.directory, progress):
                pass

        file.use(self.directory, update)

    def rebuild(self, progress: Progress | None = None) -> None:
        """Replace it by a new one, filled from the session files."""
        file.rebuild(self.directory)
        self.refresh(progress)

    def is_there(self) -> bool:
        """Return whether it has been created."""
        return os.path.lexists(self.path)

    def ask(
        self,
        question: Question[_T],
        stems: Collection[str] | None = None,
        limit: int | None = None,
    ) -> list[_T | BadSession]:
        """Return the answers of these sessions (None: all), newest first, at most *limit*."""
        entries, scanned = self._select(question, stems, limit)
        if scanned is None:
            return [*entries]
        merged = heapq.merge(
            entries, scanned, key=lambda answer: sort_key(session_id(answer)), reverse=True
        )
        return list(islice(merged, limit))

    def totals_below(self, roots: Iterable[str]) -> list[Costed | BadSession]:
        """Return at least the sums of *roots*, all sessions below them and the parents of *roots*.

        With them come the files that cannot be read, since they may belong there.
        """
        question = totals.question()
        below = partial(totals.select_below, roots=list(roots))
        entries, scanned = self._select(question._replace(select=below))
        unread = list(scanned or ())
        if all(isinstance(answer, BadSession) for answer in unread):
            return [*entries, *unread]
        # A session that is read only in part has no entry, so its children are not known from it.
        return self.ask(question)

    def _select(
        self,
        question: Question[_T],
        stems: Collection[str] | None = None,
        limit: int | None = None,
    ) -> tuple[list[_T], Iterator[_T | BadSession] | None]:
        """Return the answers of the entries, and those of the sessions without one, if any."""
        wanted = None if stems is None else frozenset(stems)

        def select(driver: sqlite3.Connection) -> tuple[list[_T], list[str], Listing]:
            with refresh.current(driver, self.directory) as current, value_errors_are_damage():
                answers = question.select_matching(driver)
                if wanted is not None:
                    answers = (answer for answer in answers if session_id(answer) in wanted)
                return list(islice(answers, limit)), current.unread, current.state.listed

        entries, unread, listed = file.use(self.directory, select)
        if wanted is not None:
            unread = [stem for stem in unread if stem in wanted]
        return entries, question.scan(self.directory, unread, listed) if unread else None
