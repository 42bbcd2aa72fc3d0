"""The public names of the package, their documentation and their types."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

import pytest

import statebackend
from statebackend.values import recorded

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(statebackend.__path__, "statebackend.")
    if found.name.split(".")[1] not in {"__main__", "cli", "interchange", "testing"}
]


def public(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Return the classes and functions that a module defines for others."""
    for name, one in vars(module).items():
        own = getattr(one, "__module__", None) == module.__name__
        if own and not name.startswith("_") and (inspect.isclass(one) or inspect.isfunction(one)):
            yield f"{module.__name__}.{name}", one
            if inspect.isclass(one):
                yield from members(module, one)


def members(module: ModuleType, cls: type) -> Iterator[tuple[str, object]]:
    """Return the public methods and properties that a class defines itself."""
    for name, one in vars(cls).items():
        function = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
        if not name.startswith("_") and inspect.isfunction(function):
            yield f"{module.__name__}.{cls.__name__}.{name}", function


def test_all_lists_every_public_name() -> None:
    """The visible names are the public ones, sorted, and each can be imported."""
    assert statebackend.__all__ == sorted(statebackend.__all__)
    for name in statebackend.__all__:
        assert getattr(statebackend, name).__module__.startswith("statebackend.")
    visible = {
        name
        for name in dir(statebackend)
        if not name.startswith("_") and not inspect.ismodule(getattr(statebackend, name))
    }
    assert visible - {"TYPE_CHECKING", "annotations", "import_module"} == set(statebackend.__all__)


def test_type_checkers_see_the_same_names() -> None:
    """Their block of imports has the public names, from the same modules."""
    tree = ast.parse(inspect.getsource(statebackend))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    names = {(str(node.module), alias.name) for node in imports for alias in node.names}
    assert {name for _module, name in names} == set(statebackend.__all__)
    for module, name in names:
        assert getattr(statebackend, name) is getattr(importlib.import_module(module), name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The lazy lookup fails as that of any module."""
    with pytest.raises(AttributeError, match="nonsense"):
        _ = statebackend.nonsense


def test_the_version_is_the_installed_ones() -> None:
    """It is read from the metadata of the package, if installed."""
    try:
        expected = version("statebackend")
    except PackageNotFoundError:
        with pytest.raises(PackageNotFoundError):
            _ = statebackend.__version__
    else:
        assert statebackend.__version__ == expected


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_everything_public_is_documented(module: ModuleType) -> None:
    """The first line of every docstring is a sentence, also of modules."""
    found = [(module.__name__, module), *public(module)]
    undocumented = [name for name, one in found if not _sentence(inspect.getdoc(one))]
    assert undocumented == []


def _sentence(docstring: str | None) -> bool:
    first = (docstring or "").partition("\n\n")[0].strip()
    return (bool(first) and first[-1] in ".:…" and first[0].isupper()) or first.startswith("``")


def test_the_package_is_typed(root: object) -> None:
    """The marker makes type checkers read the annotations."""
    marker = importlib.resources.files(statebackend) / "py.typed"
    assert marker.is_file()


@pytest.mark.parametrize(
    "cls",
    [one for one in vars(recorded).values() if dataclasses.is_dataclass(one)],
    ids=lambda cls: cls.__name__,
)
def test_values_are_frozen_and_slotted(cls: type) -> None:
    """Values cannot be changed and take no other attributes."""
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert "__slots__" in vars(cls)
