"""``ARCHITECTURE.md`` names the modules that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "statebackend"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
TREE = re.compile(r"<!-- tree -->\n```text\n(.*?)```\n<!-- /tree -->", re.DOTALL)
# Paths outside the package that the page refers to.
ELSEWHERE = ("docs/", "migrations/", "tests/", "src/")


def listed() -> Iterator[str]:
    """Return the paths in the tree, folders with a slash; each line must have a description."""
    tree = TREE.search(PAGE)
    assert tree is not None
    folders: list[str] = []
    for line in tree[1].splitlines():
        match = re.fullmatch(r"((?:  )*)(\w+(?:/|\.py)) +(\S.*)", line)
        assert match is not None, line
        del folders[len(match[1]) // 2 :]
        yield "".join(folders) + match[2]
        if match[2].endswith("/"):
            folders.append(match[2])


def present() -> Iterator[str]:
    """Return the modules of the package, and its packages with a slash."""
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        yield name if "/" not in name else name.removesuffix("__init__.py")


def test_the_tree_names_every_module_once() -> None:
    """No module of the package is missing, listed twice or gone."""
    assert sorted(listed()) == sorted(present())


def test_every_path_of_the_page_exists() -> None:
    """Each path in backticks is a file or folder of the package, or of the repository."""
    paths = re.findall(r"`([a-z_]+/[\w/.]*|[a-z_]+\.py)`", PAGE)
    missing = [
        path
        for path in paths
        if not ((ROOT if path.startswith(ELSEWHERE) else SOURCE) / path).exists()
    ]
    assert missing == []
