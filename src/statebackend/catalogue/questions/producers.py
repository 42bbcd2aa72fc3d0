"""The plug-in builds that sessions refer to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from statebackend.catalogue.questions.question import Question, split
from statebackend.catalogue.questions.summaries import select_details
from statebackend.values import rows
from statebackend.values.recorded import Producer, ProducerCategory, SessionInfo
from statebackend.values.results import BadSession, ReferencedProducers

Builds = list[tuple[str, str, str]]
"""Category, name and version of each."""

_PRODUCERS = "SELECT category, name, version FROM producers"


def question() -> Question[tuple[SessionInfo, Builds]]:
    """Ask for the plug-in builds that the sessions refer to."""
    return Question(
        read, lambda driver: select_details(driver, "producers", "category, name, version")
    )


def read(driver: sqlite3.Connection, info: SessionInfo) -> tuple[SessionInfo, Builds]:
    """Read the plug-in builds that one file refers to, without the reserved kernel producer."""
    builds = [
        (rows.as_text(category), rows.as_text(name), rows.as_text(version))
        for category, name, version in driver.execute(_PRODUCERS)
    ]
    return (info, [build for build in builds if build[0] != ProducerCategory.KERNEL])


def add_up(answers: Iterable[tuple[SessionInfo, Builds] | BadSession]) -> ReferencedProducers:
    """Return each build that any of the sessions refers to, sorted."""
    parts, unreadable, incomplete = split(answers)
    builds = {build for part in parts for build in part}
    return ReferencedProducers(
        producers=tuple(Producer(*build) for build in sorted(builds)),
        unreadable=unreadable,
        incomplete=incomplete,
    )
