"""The folder of sessions: what is not a demand of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statebackend import InvalidValue, Producer, StateBackend
from statebackend.values.results import PlanRule
from tests.session_files import MODEL, TOOL, UNKNOWN_ID, full, item, new


def test_its_text_shows_the_folder(tmp_path: Path) -> None:
    """As one would write it."""
    assert repr(StateBackend(tmp_path)) == f"StateBackend({str(tmp_path)!r})"


@pytest.mark.parametrize("given", [{"limit": -1}, {"limit": "1"}, {"parent_session_id": "x"}])
def test_filters_are_checked(backend: StateBackend, given: dict[str, Any]) -> None:
    """The error names the argument."""
    with pytest.raises(InvalidValue) as caught:
        backend.list(**given)
    assert caught.value.field in given


@pytest.mark.parametrize("depth", [-1, 1.0, True, "0"])
def test_depth_is_checked(backend: StateBackend, depth: Any) -> None:
    """Before any file is made."""
    with pytest.raises(InvalidValue) as caught:
        backend.create("default", depth=depth)
    assert caught.value.field == "depth"
    assert not backend.directory.exists()


def test_rules_are_counted_over_all_sessions(backend: StateBackend) -> None:
    """The most frequent first, ties by name."""
    for _ in range(2):
        with backend.create("default") as session:
            items = [item("deny", decided_by="r2"), item("allow"), item("deny", decided_by="r1")]
            session.append_plan(producer=MODEL, payload=b"", items=items)
    full(backend)
    assert backend.plan_rules().rules == (
        PlanRule(decided_by="policy:default", decision="allow", count=3),
        PlanRule(decided_by="r1", decision="deny", count=2),
        PlanRule(decided_by="r2", decision="deny", count=2),
        PlanRule(decided_by="policy:default", decision="deny", count=1),
    )


def test_referenced_producers_are_sorted_and_without_the_kernel(backend: StateBackend) -> None:
    """Each build once, over all sessions."""
    other = Producer("tool", "shell", "0.9")
    for producer in (TOOL, other, MODEL):
        with backend.create("default") as session:
            session.append_prompt(payload=b"", schema_version="1")
            session.append("apply", producer=producer, payload=b"", schema_version="1")
    assert backend.referenced_producers().producers == (MODEL, other, TOOL)
    assert not backend.referenced_producers().partial


def test_children_are_the_direct_ones(backend: StateBackend) -> None:
    """Newest first; a parent need not be there itself."""
    one = new(backend, parent_session_id=UNKNOWN_ID)
    two = new(backend, parent_session_id=UNKNOWN_ID)
    new(backend, parent_session_id=one)
    assert [info.session_id for info in backend.children(UNKNOWN_ID)] == [two, one]
