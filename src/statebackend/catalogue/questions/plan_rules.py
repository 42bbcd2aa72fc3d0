"""How often each rule took each decision about a plan item."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable

from statebackend.catalogue.questions.question import Question, split
from statebackend.catalogue.questions.summaries import select_details
from statebackend.values import rows
from statebackend.values.recorded import SessionInfo
from statebackend.values.results import BadSession, PlanRule, PlanRules

Decisions = list[tuple[str, str, int]]
"""Who decided, the decision, and how often."""

_PLAN_RULES = "SELECT decided_by, decision, count(*) FROM plan_items GROUP BY 1, 2"


def question() -> Question[tuple[SessionInfo, Decisions]]:
    """Ask how often each rule took each decision."""
    return Question(
        read, lambda driver: select_details(driver, "plan_rules", "decided_by, decision, count")
    )


def read(driver: sqlite3.Connection, info: SessionInfo) -> tuple[SessionInfo, Decisions]:
    """Read the decisions of one file; a pair may be there twice, as a text and as a blob."""
    decisions = [
        (rows.as_text(decided_by), rows.as_text(decision), count)
        for decided_by, decision, count in driver.execute(_PLAN_RULES)
    ]
    return (info, decisions)


def add_up(answers: Iterable[tuple[SessionInfo, Decisions] | BadSession]) -> PlanRules:
    """Count the decisions of the sessions, the most frequent first."""
    parts, unreadable, incomplete = split(answers)
    counts: Counter[tuple[str, str]] = Counter()
    for decisions in parts:
        for decided_by, decision, count in decisions:
            counts[decided_by, decision] += count
    rules = [
        PlanRule(decided_by=decided_by, decision=decision, count=count)
        for (decided_by, decision), count in counts.items()
    ]
    rules.sort(key=lambda rule: (-rule.count, rule.decided_by, rule.decision))
    return PlanRules(rules=tuple(rules), unreadable=unreadable, incomplete=incomplete)
