"""The directions that `[tool.importlinter]` cannot express, and that its contracts hold."""

from __future__ import annotations

import ast
import logging
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

PACKAGE = "statebackend"
# May not reach SQLAlchemy or Alembic at all, not even inside a function.
WITHOUT_ORM = ("errors", "values", "files", "scanning", "catalogue")
# May reach it on first use, so not by being imported.
LAZY = ("backend", "telemetry", "interchange", "cli")
ORM = {"sqlalchemy", "alembic"}
# Every import of the package inside a function: by whom, and of which packages. Each saves loading
# what most uses do not need: SQLAlchemy (opening, reading, schema, sqlite, verifying), the
# catalogue, JSON (files.recovery_reports), or whatever one command of the command line needs.
LAZY_IMPORTS = {
    "backend": {"bulk", "catalogue", "files", "interchange", "opening", "reading"},
    "bulk.migration": {"opening", "verifying"},
    "bulk.pages": {"bulk"},
    "bulk.stale": {"opening", "verifying"},
    "cli": {"catalogue", "cli", "interchange", "replay", "statebackend"},
    "files.header": {"files"},
    "interchange.claude_code.importer": {"opening"},
    "schema.migrate": {"schema"},
}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Return every import of the package, those inside functions too, type-checking ones not."""
    return grimp.build_graph(
        PACKAGE,
        include_external_packages=True,
        exclude_type_checking_imports=True,
        cache_dir=None,
    )


def sources(root: Path, folder: str) -> Iterator[tuple[Path, ast.Module]]:
    """Parse every Python file below *folder*."""
    for path in sorted((root / folder).rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def imported_by(module: ast.Module) -> set[str]:
    """Return the top-level names of everything that *module* imports, at any depth."""
    names = set[str]()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def lazy_imports(root: Path) -> dict[str, set[str]]:
    """Return which packages of ours each module imports inside functions; all of the CLI as one."""
    imports: dict[str, set[str]] = {}
    source = root / "src" / PACKAGE
    for path, module in sources(root, f"src/{PACKAGE}"):
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        importer = "cli" if name.split(".")[0] == "cli" else name
        for function in ast.walk(module):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom) and node.module:
                    package, *parts = node.module.split(".")
                    if package == PACKAGE:
                        imports.setdefault(importer, set()).add(parts[0] if parts else PACKAGE)
    return imports


def called_by(module: ast.Module) -> set[str]:
    """Return the names of all functions and methods that *module* calls."""
    functions = [node.func for node in ast.walk(module) if isinstance(node, ast.Call)]
    methods = {function.attr for function in functions if isinstance(function, ast.Attribute)}
    return methods | {function.id for function in functions if isinstance(function, ast.Name)}


def test_the_contracts_hold(root: Path) -> None:
    """Imports point one way, and only the migration runner imports Alembic."""
    status = lint_imports(config_filename=str(root / "pyproject.toml"), no_cache=True, no_logo=True)
    # It sets logging up anew, which silences every logger that there is.
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False
    assert status == EXIT_STATUS_SUCCESS


@pytest.mark.parametrize("name", WITHOUT_ORM)
def test_module_never_reaches_the_orm(graph: grimp.ImportGraph, name: str) -> None:
    """A scan, the claim and what they stand on work with sqlite3 alone."""
    reached = graph.find_upstream_modules(f"{PACKAGE}.{name}", as_package=True)
    assert not reached & ORM


@pytest.mark.parametrize("name", [*WITHOUT_ORM, *LAZY])
def test_importing_a_module_loads_no_orm(name: str, child_environment: dict[str, str]) -> None:
    """SQLAlchemy is loaded by the first create, open or read, not by an import."""
    code = f"import {PACKAGE}.{name}, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=child_environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not set(done.stdout.split()) & ORM


def test_no_module_imports_the_package_itself(graph: grimp.ImportGraph) -> None:
    """A module names the module it needs; only the command line is a user of the package."""
    importers = graph.find_modules_that_directly_import(PACKAGE)
    assert not [name for name in importers if not name.startswith(f"{PACKAGE}.cli")]


@pytest.mark.parametrize("name", ["recording", "opening", "scanning", "bulk.stale", "recovery"])
def test_what_reads_and_writes_sessions_knows_no_derived_store(
    graph: grimp.ImportGraph, name: str
) -> None:
    """The truth does not depend on the catalogue, which may be deleted, nor on the ledger."""
    reached = graph.find_upstream_modules(f"{PACKAGE}.{name}", as_package=True)
    derived = tuple(f"{PACKAGE}.{name}" for name in ("catalogue", "ledger", "interchange", "cli"))
    assert not [module for module in reached if module.startswith(derived)]


def test_repositories_leave_transactions_alone(root: Path) -> None:
    """A repository works on the connection it is given: the handle opens, begins and commits."""
    forbidden = {"connect", "create_engine", "begin", "begin_nested", "commit", "rollback", "close"}
    for path, module in sources(root, "src/statebackend/repositories"):
        assert not called_by(module) & forbidden, path.name


def test_the_schema_has_one_source(root: Path) -> None:
    """Files are made by the revisions; the models only make a schema to be compared with that."""
    files = sources(root, "src/statebackend")
    assert {path.name for path, module in files if "create_all" in called_by(module)} <= {
        "fingerprint.py"
    }


def test_revisions_stand_alone(root: Path) -> None:
    """A released revision is frozen, so it uses nothing of the package that goes on changing."""
    for path, module in sources(root, "migrations/sessions"):
        assert PACKAGE not in imported_by(module), path.name


def test_no_circle_and_few_rooms(root: Path) -> None:
    """Neither packages nor modules import each other in a circle, not even inside functions."""
    house = runpy.run_path(str(root / "tools" / "house.py"))
    modules = house["module_arrows"]()
    assert house["circles"](modules) == []
    assert house["circles"](house["room_arrows"](modules)) == []
    assert len(house["rooms"]()) <= 30


def test_circles_are_found(root: Path) -> None:
    """Of two modules, of three, and of one that imports itself; a path into one is not one."""
    circles = runpy.run_path(str(root / "tools" / "house.py"))["circles"]
    arrows = {"a": "b", "b": "a", "c": "d", "d": "e", "e": "cf", "f": "f", "g": "ab", "h": ""}
    found = circles({node: frozenset(imported) for node, imported in arrows.items()})
    assert sorted(found) == [["a", "b"], ["c", "d", "e"], ["f"]]


def test_no_function_is_long(root: Path) -> None:
    """A function fits on one screen: 60 lines at most."""
    functions = [
        (path.name, node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for path, module in sources(root, "src/statebackend")
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [function for function in functions if function[2] > 60] == []


def test_every_helper_has_a_noun(graph: grimp.ImportGraph) -> None:
    """No drawer for odds and ends."""
    names = {module.rpartition(".")[2] for module in graph.modules}
    assert not names & {"utils", "util", "helpers", "helper", "common", "misc"}


def test_imports_inside_functions_are_listed(root: Path) -> None:
    """An import that is hidden in a function has a reason, or is at the top of its module."""
    assert lazy_imports(root) == LAZY_IMPORTS
