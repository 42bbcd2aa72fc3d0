"""The tree of errors, their facts, and that they survive pickling."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import statebackend
from statebackend import errors

PATH = Path("/state/agent/sessions/x.sqlite")
SINCE = datetime(2026, 3, 1, tzinfo=UTC)

EXAMPLES = [
    errors.StateBackendError("something"),
    errors.InvalidValue("payload", "must be bytes"),
    errors.InvalidTransition("ID", "failed", "is failed"),
    errors.DuplicateEvent("ID", "e1", 7, True),
    errors.DuplicateEvent("ID", "e1", None, False),
    errors.SessionNotFound("ID", PATH.parent),
    errors.SessionExists("ID", PATH),
    errors.SessionLocked("ID", 42, "host", SINCE),
    errors.SessionLocked("ID", 42, None, None),
    errors.SessionClosed("ID"),
    errors.SessionForked("ID"),
    errors.SchemaTooNew(PATH, 3, 1),
    errors.SchemaOutdated(PATH, 1, 2, "another writer has it"),
    errors.MigrationFailed(PATH, 1, 2, "no such column"),
    errors.SessionDamaged(PATH, ("page 3 is wrong", "page 4 too")),
    errors.SessionUnreadable(PATH, "is not a regular file"),
    errors.StorageError(PATH, "denied"),
    errors.StorageFull(PATH, "no room left"),
    errors.StorageBusy(PATH, "is locked"),
    errors.StorageUnsupported(PATH, "no WAL"),
    errors.OutcomeUnknown(PATH, "the commit failed"),
]


def tree(cls: type[Exception], depth: int = 0) -> Iterator[tuple[int, str]]:
    """Walk the subclasses that the module itself defines."""
    yield depth, cls.__name__
    for below in cls.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from tree(below, depth + 1)


def test_the_tree_is_the_one_that_is_drawn() -> None:
    """The module's docstring shows every error at its place."""
    drawn = [
        (len(match[1]) // 4 - 1, match[2])
        for match in re.finditer(
            r"^((?:[│├└ ][ ─]{3})*)(\w+)(?: {2,}.*)?$", errors.__doc__ or "", re.MULTILINE
        )
        if match[2][0].isupper()
    ]
    assert sorted(drawn) == sorted(tree(errors.StateBackendError))


def test_every_error_has_an_example_here() -> None:
    """The tests below cover the whole module."""
    assert {type(one).__name__ for one in EXAMPLES} == {
        name for _depth, name in tree(errors.StateBackendError)
    }


def test_every_error_is_exported() -> None:
    """A caller can catch each of them by a name of the package."""
    names = {name for _depth, name in tree(errors.StateBackendError)}
    assert names <= set(statebackend.__all__)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda one: type(one).__name__)
def test_pickling_keeps_type_message_and_facts(error: errors.StateBackendError) -> None:
    """An error that crosses a process says the same."""
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own bytes
        assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
        assert vars(again) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES[1:], ids=lambda one: type(one).__name__)
def test_facts_are_the_annotated_attributes(error: errors.StateBackendError) -> None:
    """Each class names its attributes, and each instance has exactly those."""
    annotated = {
        name for cls in type(error).__mro__ for name in getattr(cls, "__annotations__", {})
    }
    assert set(vars(error)) == annotated


@pytest.mark.parametrize("error", EXAMPLES[1:], ids=lambda one: type(one).__name__)
def test_a_message_says_which_session_or_file(error: errors.StateBackendError) -> None:
    """It is one line and names what it is about."""
    facts = vars(error)
    named = facts.get("path") or facts.get("session_id") or facts.get("field")
    assert str(named) in str(error)
    assert "\n" not in str(error)


def test_a_problem_is_the_message_without_the_path() -> None:
    """A listing shows it beside the session it already names."""
    for error in EXAMPLES:
        problem = getattr(error, "problem", None)
        if problem is not None:
            assert problem in str(error)
            assert str(PATH) not in problem


def test_a_locked_session_names_its_holder() -> None:
    """Process, machine and time, as far as they are known."""
    known, unknown = EXAMPLES[7], EXAMPLES[8]
    assert "process 42 on host since 2026-03-01T00:00:00+00:00" in str(known)
    assert "process 42;" in str(unknown)
