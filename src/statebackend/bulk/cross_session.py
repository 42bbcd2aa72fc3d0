"""Questions about all sessions of a folder, answered by the catalogue or else by a scan."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import TypeVar

from statebackend.bulk import tree
from statebackend.catalogue import Catalogue
from statebackend.catalogue.questions import plan_rules, producers, spend, summaries, totals
from statebackend.catalogue.questions.question import Question
from statebackend.catalogue.questions.question import session_id as answer_id
from statebackend.catalogue.questions.totals import Costed
from statebackend.errors import StorageError
from statebackend.files.paths import SUFFIX
from statebackend.scanning import scan
from statebackend.scanning.scan import SessionFilter
from statebackend.values.recorded import SessionInfo, SessionStatus
from statebackend.values.results import (
    BadSession,
    CostGrouping,
    CostReport,
    PlanRules,
    ReferencedProducers,
    SessionCost,
    SessionTree,
)

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

CATALOGUE_FROM = 1_000
"""The number of sessions from which on a catalogue is created; an existing one is always used."""


class CrossSession:
    """The questions about the sessions of *directory*; without *catalogue*, each is a scan."""

    def __init__(self, directory: Path, *, catalogue: bool) -> None:
        self._directory = directory
        self._uses_catalogue = catalogue

    def summaries(
        self,
        wanted: SessionFilter,
        stems: Collection[str] | None = None,
        limit: int | None = None,
    ) -> list[SessionInfo | BadSession]:
        """Return the summaries of these sessions (None: all) that match, newest first."""
        return self._ask(summaries.question(wanted), stems, limit)

    def stale(self) -> list[SessionInfo | BadSession]:
        """Return the sessions with status running and no living writer, and the bad files."""
        running = self.summaries(SessionFilter(status=SessionStatus.RUNNING))
        return [info for info in running if isinstance(info, BadSession) or not info.live]

    def tree(self, session_id: str | None) -> SessionTree:
        """Return all sessions as trees, or the one below *session_id*, with their cost."""
        root = None if session_id is None else totals.read_one(self._directory, session_id)
        sessions, bad = self._split_totals(None if session_id is None else [session_id])
        if root is not None and session_id not in {info.session_id for info, _totals in sessions}:
            sessions.append(root)  # deleted between the two readings
        nodes = tuple(tree.arrange(sessions, session_id))
        lost_rows = tuple(node.session.session_id for node in nodes if node.session.incomplete)
        return SessionTree(nodes=nodes, unreadable=tuple(bad), incomplete=lost_rows)

    def cost(self, session_id: str) -> SessionCost:
        """Return what one session cost, by its file alone."""
        info, own = totals.read_one(self._directory, session_id)
        return SessionCost(
            session_id=session_id,
            own=own,
            inclusive=None,
            sessions=1,
            unreadable=(),
            incomplete=(session_id,) if info.incomplete else (),
        )

    def tree_cost(self, session_id: str) -> SessionCost:
        """Return what one session and all its descendants cost."""
        below = self.tree(session_id)
        root = below.nodes[0]
        return SessionCost(
            session_id=session_id,
            own=root.own,
            inclusive=root.inclusive,
            sessions=len(below.nodes),
            unreadable=below.unreadable,
            incomplete=below.incomplete,
        )

    def cost_by(
        self, by: CostGrouping, session_ids: list[str] | None, *, with_descendants: bool
    ) -> CostReport:
        """Return the spend of these sessions (None: all) by group."""
        question = spend.question(by)
        if session_ids is None:
            return spend.add_up(self._ask(question))
        for stem in session_ids:
            totals.read_one(self._directory, stem)  # raises what the sum would leave out
        bad: list[BadSession] = []
        if with_descendants:
            sessions, bad = self._split_totals(session_ids)
            session_ids = tree.descendants(sessions, session_ids)
        if len(session_ids) <= scan.READ_FIRST:
            answers = list(question.scan(self._directory, session_ids))
        else:
            place = {stem: number for number, stem in enumerate(session_ids)}
            answers = self._ask(question, session_ids)
            answers.sort(key=lambda answer: place[answer_id(answer)])
        return spend.add_up([*bad, *answers])

    def plan_rules(self) -> PlanRules:
        """Return how often each rule took each decision."""
        return plan_rules.add_up(self._ask(plan_rules.question()))

    def referenced_producers(self) -> ReferencedProducers:
        """Return every plug-in build that a session refers to."""
        return producers.add_up(self._ask(producers.question()))

    def _ask(
        self,
        question: Question[_T],
        stems: Collection[str] | None = None,
        limit: int | None = None,
    ) -> list[_T | BadSession]:
        """Return the answers of these sessions (None: all), newest first, at most *limit*."""
        if (catalogue := self._catalogue()) is not None:
            try:
                return catalogue.ask(question, stems, limit)
            except StorageError as error:
                _log_failure(error)
        return list(islice(question.scan(self._directory, stems), limit))

    def _split_totals(self, roots: list[str] | None) -> tuple[list[Costed], list[BadSession]]:
        """Return the sums of all sessions, or at least of those that the trees of *roots* need."""
        answers = self._totals(roots)
        bad = [answer for answer in answers if isinstance(answer, BadSession)]
        return [answer for answer in answers if not isinstance(answer, BadSession)], bad

    def _totals(self, roots: list[str] | None) -> list[Costed | BadSession]:
        if roots is not None and (catalogue := self._catalogue()) is not None:
            try:
                return catalogue.totals_below(roots)
            except StorageError as error:
                _log_failure(error)
        return self._ask(totals.question())

    def _catalogue(self) -> Catalogue | None:
        """Return the catalogue if it is to be used: it exists, or the folder is large."""
        if not self._uses_catalogue:
            return None
        catalogue = Catalogue(self._directory)
        large = catalogue.is_there() or _count_files(self._directory) >= CATALOGUE_FROM
        return catalogue if large else None


def _count_files(directory: Path) -> int:
    try:
        return sum(entry.name.endswith(SUFFIX) for entry in os.scandir(directory))
    except OSError:
        return 0


def _log_failure(error: StorageError) -> None:
    _log.info("the catalogue cannot be used, so all files are read: %s", error)
