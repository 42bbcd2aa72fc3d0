"""The values that go in and come out."""

from __future__ import annotations

import pickle

from statebackend import EventKind, PlanDecision, Producer, SessionStatus
from statebackend.values.recorded import CostTotals, ProducerCategory, kernel_user
from statebackend.values.results import BadSession, ReferencedProducers, SessionCost, SessionTree
from tests.session_files import cost, item


def test_words_are_plain_text() -> None:
    """An enum's member is its word, so it can be compared, joined and stored as such."""
    assert (EventKind.TOOL_CALL, SessionStatus.FAILED, PlanDecision.ASK) == (
        "tool_call",
        "failed",
        "ask",
    )
    assert f"{ProducerCategory.KERNEL}" == "kernel"


def test_the_users_producer_is_reserved() -> None:
    """It is the kernel's, with a version of its own."""
    assert kernel_user() == Producer("kernel", "user", "1")
    assert kernel_user("2").version == "2"


def test_values_are_compared_by_content_and_can_be_keys() -> None:
    """Two of the same content are one."""
    assert len({cost(), cost(), cost(1.0)}) == 2
    assert len({item(), item(), item("deny")}) == 2
    assert pickle.loads(pickle.dumps(item())) == item()  # noqa: S301 - our own bytes


def test_results_without_unreadable_files_are_whole() -> None:
    """Partial says that a file could not be read."""
    bad = (BadSession.__new__(BadSession),)
    assert not SessionTree(nodes=(), unreadable=()).partial
    assert SessionTree(nodes=(), unreadable=bad).partial
    assert not ReferencedProducers(producers=(), unreadable=()).partial
    assert ReferencedProducers(producers=(), unreadable=bad).partial
    nothing = CostTotals()
    whole = SessionCost(session_id="x", own=nothing, inclusive=None, sessions=1, unreadable=())
    assert not whole.partial
