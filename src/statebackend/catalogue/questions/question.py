"""A question that every session answers, with the same answer from its file and the catalogue."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from statebackend.scanning import listing, scan
from statebackend.scanning.connections import Reader
from statebackend.scanning.listing import Listing
from statebackend.values.recorded import SessionInfo
from statebackend.values.results import BadSession

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Question(NamedTuple, Generic[_T_co]):
    """What is asked of every session.

    ``read`` answers it from a session file, ``select`` from the catalogue, newest first. An answer
    is the session's summary, or a pair of that and what else was asked. Only answers that
    ``matches`` accepts are returned (None: all); it is called with each :class:`BadSession` too.
    """

    read: Reader[_T_co]
    select: Callable[[sqlite3.Connection], Iterator[_T_co]]
    matches: Callable[[Any], bool] | None = None

    def scan(
        self,
        directory: Path,
        stems: Iterable[str] | None = None,
        listed: Listing = listing.EMPTY,
    ) -> Iterator[_T_co | BadSession]:
        """Answer from the files of these sessions (None: all, newest first), lazily."""
        if stems is None:
            answers = scan.read_all(directory, self.read)
        else:
            answers = scan.read_each(directory, self.read, stems, listed)
        return answers if self.matches is None else filter(self.matches, answers)

    def select_matching(self, driver: sqlite3.Connection) -> Iterator[_T_co]:
        """Answer from the catalogue for the sessions in it, newest first, lazily."""
        answers = self.select(driver)
        return answers if self.matches is None else filter(self.matches, answers)


def session_id(answer: object) -> str:
    """Return the id of the session that an answer is about."""
    summary = answer[0] if isinstance(answer, tuple) else answer
    assert isinstance(summary, SessionInfo | BadSession)
    return summary.session_id


def split(
    answers: Iterable[tuple[SessionInfo, _T] | BadSession],
) -> tuple[list[_T], tuple[BadSession, ...], tuple[str, ...]]:
    """Return what the sessions answered, the bad files, and the ids of those that lost rows."""
    parts: list[_T] = []
    unreadable: list[BadSession] = []
    incomplete: list[str] = []
    for answer in answers:
        if isinstance(answer, BadSession):
            unreadable.append(answer)
            continue
        info, part = answer
        if info.incomplete:
            incomplete.append(info.session_id)
        parts.append(part)
    return parts, tuple(unreadable), tuple(incomplete)
