"""``docs/api.md`` is what the docstrings say, and what it does not list is private."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import runpy
from pathlib import Path
from typing import Any

import pytest

import statebackend

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    """Return the globals of the script that builds the page."""
    pytest.importorskip("opentelemetry")
    return runpy.run_path(str(ROOT / "tools" / "api.py"))


def test_the_page_is_current(api: dict[str, Any]) -> None:
    """The stored page equals the one built from the docstrings; ``make docs`` writes it."""
    stored = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert stored == api["page"](), "docs/api.md is out of date: run `make docs`"


def test_every_public_name_is_on_the_page(api: dict[str, Any]) -> None:
    """Each name of ``__all__`` and of the documented sub-modules has a heading."""
    headings = {line[4:] for line in api["page"]().splitlines() if line.startswith("### ")}
    assert set(statebackend.__all__) <= headings
    for name in api["MODULES"]:
        module = importlib.import_module(f"statebackend.{name}")
        assert set(api["public_names"](module)) <= headings, name


def test_every_module_is_documented_or_private(api: dict[str, Any]) -> None:
    """A module of the top level is on the page, or in the list of private ones."""
    top_level = {module.name for module in pkgutil.iter_modules(statebackend.__path__)}
    assert top_level == set(api["MODULES"]) | api["PRIVATE"]


def test_documented_packages_name_their_public_modules(api: dict[str, Any]) -> None:
    """A documented sub-module that is a package says in ``__all__`` what is public in it."""
    for name in api["MODULES"]:
        module = importlib.import_module(f"statebackend.{name}")
        if hasattr(module, "__path__"):
            assert module.__all__ == sorted(module.__all__), name


def test_public_classes_live_where_the_page_finds_them() -> None:
    """A name of ``__all__`` is defined in the package itself, never re-exported from another."""
    for name in statebackend.__all__:
        value = getattr(statebackend, name)
        assert inspect.isclass(value) or inspect.isfunction(value)
        assert value.__module__.partition(".")[0] == "statebackend"
