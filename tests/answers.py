"""The answers of a backend about all its sessions, in a form that can be compared."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, get_args

import pytest

from statebackend import BadSession, StateBackend, StateBackendError, StorageError
from statebackend.bulk import cross_session
from statebackend.catalogue import Catalogue
from statebackend.values.results import CostGrouping
from tests.session_files import START, UNKNOWN_ID


def plain(value: Any) -> Any:
    """Return *value* with its errors as their kinds, since no two errors are equal.

    Their text is left out: just after a change, a scan may find the same damage in another way.
    """
    if isinstance(value, BadSession):
        return ("bad", value.session_id, str(value.path), type(value.error))
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value), *(plain(getattr(value, one.name)) for one in fields(value)))
    return [plain(one) for one in value] if isinstance(value, tuple | list) else value


def questions(backend: StateBackend, session_ids: list[str]) -> dict[str, Callable[[], Any]]:
    """Return every question across sessions, about these among others."""
    last = max(session_ids)
    ask: dict[str, Callable[[], Any]] = {
        "stale": backend.stale,
        "tree": backend.tree,
        "plan_rules": backend.plan_rules,
        "producers": backend.referenced_producers,
        "completed": partial(backend.list, limit=None, status="completed"),
        "running": partial(backend.list, limit=2, status="running"),
        "profile": partial(backend.list, limit=None, profile="b"),
        "roots": partial(backend.list, limit=None, roots=True, since=START, after=last),
    }
    ask |= {f"by {by}": partial(backend.cost_by, by) for by in get_args(CostGrouping)}
    for one in session_ids:
        ask |= {
            f"{one} children": partial(backend.children, one),
            f"{one} tree": partial(backend.tree, one),
            f"{one} cost": partial(backend.cost, one, tree=True),
            f"{one} by day": partial(backend.cost_by, "day", session_ids=[one], tree=True),
        }
    return ask


def differences(
    backend: StateBackend,
    session_ids: list[str],
    *,
    some: random.Random | None = None,
    usable: bool = True,
) -> dict[str, tuple[Any, Any]]:
    """Return the questions that the catalogue and a scan answer differently, with both answers.

    With *some*, only a few questions are asked. A *usable* catalogue must answer all of them.
    """
    with pytest.MonkeyPatch.context() as patch:
        if usable:
            patch.setattr(cross_session, "_log_failure", _refuse)
        return _differences(backend, session_ids, some)


def index_rows(backend: StateBackend) -> int:
    """Count the texts in the index, and check it."""
    with closing(sqlite3.connect(Catalogue(backend.directory).path)) as driver:
        driver.execute("INSERT INTO texts (texts) VALUES ('integrity-check')")
        (stored,) = driver.execute("SELECT total(rows) FROM text_progress").fetchone()
        (count,) = driver.execute("SELECT count(*) FROM texts").fetchone()
    assert stored == count
    return int(count)


def _refuse(error: StorageError) -> None:
    raise AssertionError("a scan had to answer") from error


def _differences(
    backend: StateBackend, session_ids: list[str], some: random.Random | None
) -> dict[str, tuple[Any, Any]]:
    asked = [*session_ids, UNKNOWN_ID]
    catalogued = questions(backend, asked)
    scanned = questions(StateBackend(backend.directory, catalogue=False), asked)
    names = some.sample(sorted(catalogued), 5) if some else list(catalogued)
    both = {name: (_answer(catalogued[name]), _answer(scanned[name])) for name in names}
    return {name: (one, other) for name, (one, other) in both.items() if one != other}


def _answer(question: Callable[[], Any]) -> Any:
    try:
        return plain(question())
    except StateBackendError as error:
        return type(error)
