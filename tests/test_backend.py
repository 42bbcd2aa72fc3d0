"""The methods of the folder of sessions that no demand of the specification covers."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from statebackend import InvalidValue, Producer, SessionLocked, SessionNotFound, StateBackend
from statebackend.values.results import PlanRule
from tests.session_files import (
    MODEL,
    TOOL,
    UNKNOWN_ID,
    damage_page,
    fill,
    full,
    item,
    new,
    path_of,
    sql,
)
from tests.transcripts import Lines


def test_repr_shows_the_folder(tmp_path: Path) -> None:
    """In the form of an expression."""
    assert repr(StateBackend(tmp_path)) == f"StateBackend({str(tmp_path)!r})"


@pytest.mark.parametrize("given", [{"limit": -1}, {"limit": "1"}, {"parent_session_id": "x"}])
def test_filters_are_checked(backend: StateBackend, given: dict[str, Any]) -> None:
    """The error names the argument."""
    with pytest.raises(InvalidValue) as caught:
        backend.list(**given)
    assert caught.value.field in given


@pytest.mark.parametrize("depth", [-1, 1.0, True, "0"])
def test_depth_is_checked(backend: StateBackend, depth: Any) -> None:
    """Before any file is created."""
    with pytest.raises(InvalidValue) as caught:
        backend.create("default", depth=depth)
    assert caught.value.field == "depth"
    assert not backend.directory.exists()


def test_rules_are_counted_over_all_sessions(backend: StateBackend) -> None:
    """The most frequent first, then by name."""
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
    """Each build once, from all sessions."""
    other = Producer("tool", "shell", "0.9")
    for producer in (TOOL, other, MODEL):
        with backend.create("default") as session:
            session.append_prompt(payload=b"", schema_version="1")
            session.append("apply", producer=producer, payload=b"", schema_version="1")
    assert backend.referenced_producers().producers == (MODEL, other, TOOL)
    assert not backend.referenced_producers().partial


def test_children_are_the_direct_ones(backend: StateBackend) -> None:
    """Newest first; the parent need not exist."""
    one = new(backend, parent_session_id=UNKNOWN_ID)
    two = new(backend, parent_session_id=UNKNOWN_ID)
    new(backend, parent_session_id=one)
    assert [info.session_id for info in backend.children(UNKNOWN_ID)] == [two, one]


def test_verify_gives_one_result_a_session(backend: StateBackend) -> None:
    """All sessions, newest first, or those that are named, each once."""
    one, two = full(backend), full(backend)
    damage_page(path_of(backend, one), "events")
    results = list(backend.verify())
    assert [(result.session_id, result.sound) for result in results] == [(two, True), (one, False)]
    assert [result.session_id for result in backend.verify([two, two])] == [two]
    (missing,) = backend.verify([UNKNOWN_ID])
    assert isinstance(missing.error, SessionNotFound)


def test_migrate_gives_one_result_a_session(backend: StateBackend) -> None:
    """A dry run and a real one have nothing to do for current files."""
    session_id = full(backend)
    for dry_run in (True, False):
        (result,) = backend.migrate(dry_run=dry_run)
        assert (result.session_id, result.outcome) == (session_id, "current")


def test_recover_changes_only_a_damaged_session(backend: StateBackend) -> None:
    """A sound one gives None and keeps its bytes; one that a program writes is refused."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    before = path.read_bytes()
    assert backend.recover(session_id) is None
    assert path.read_bytes() == before
    damage_page(path, "events")
    recovery = backend.recover(session_id)
    assert recovery is not None
    assert recovery.original is not None
    with backend.create("default") as session:
        fill(session)
        with pytest.raises(SessionLocked):
            backend.recover(session.session_id)


def test_transcripts_are_imported(backend: StateBackend, tmp_path: Path) -> None:
    """A path may be a string; the imported session is in the folder."""
    path = Lines().user("one").write(tmp_path / "a.jsonl")
    report = backend.import_transcripts([str(path)], profile="work")
    assert list(report.created) == list(backend.ids())
    assert sql(path_of(backend, report.created[0]), "SELECT profile FROM session_meta") == [
        ("work",)
    ]


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("verify", {"session_ids": "x"}),
        ("migrate", {"session_ids": [1]}),
        ("reap", {"status": "failed", "session_ids": "x"}),
        ("cost_by", {"by": "model", "session_ids": "x"}),
        ("cost_by", {"by": "colour"}),
        ("recover", {"session_id": "x"}),
        ("import_transcripts", {"paths": "x"}),
        ("import_transcripts", {"paths": [1]}),
        ("import_transcripts", {"paths": [], "profile": ""}),
        ("list", {"after": "a/b"}),
        ("tree", {"session_id": "x"}),
    ],
)
def test_wrong_arguments_are_refused(
    backend: StateBackend, method: str, given: dict[str, Any]
) -> None:
    """Before anything is read or written."""
    with pytest.raises(InvalidValue):
        getattr(backend, method)(**given)
    assert not backend.directory.exists()


def test_every_method_says_what_it_raises() -> None:
    """A caller reads in the docstring which errors to handle."""
    methods = [
        method
        for name, method in vars(StateBackend).items()
        if inspect.isfunction(method) and not name.startswith("_")
    ]
    assert len(methods) > 20
    assert [method.__name__ for method in methods if "Raises" not in str(method.__doc__)] == []
