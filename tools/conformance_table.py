"""Print the table of demands, with the files that test each.

Called with ``--write``, put it between the two marks in docs/conformance.md instead.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.conformance.demands import DEMANDS, NOT_BUILT_YET  # noqa: E402

PAGE = ROOT / "docs" / "conformance.md"
_SECTION = re.compile(r"(?<=<!-- demands -->\n).*?(?=<!-- /demands -->)", re.DOTALL)


def table() -> str:
    """Return the table in Markdown."""
    tested = tests_of_demands()
    lines = ["| | Demand | Tested in |", "|---|---|---|"]
    lines += [
        f"| {demand} | {text} | {_links(demand, tested.get(demand, {}))} |"
        for demand, text in DEMANDS.items()
    ]
    return "\n".join(lines) + "\n"


def tests_of_demands() -> dict[str, dict[Path, list[str]]]:
    """Return, for each id, the marked tests by file."""
    tests: dict[str, dict[Path, list[str]]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for demand, name in _marked(ast.parse(path.read_text(encoding="utf-8"))):
            tests.setdefault(demand, {}).setdefault(path, []).append(name)
    return tests


def with_table(page: str) -> str:
    """Return the text of the page with the current table."""
    return _SECTION.sub(lambda _match: table(), page)


def _links(demand: str, files: dict[Path, list[str]]) -> str:
    if demand in NOT_BUILT_YET:
        return "not built yet"
    # Only the files of tests/conformance, unless a demand has none there: the table stays short.
    own = [path for path in files if path.parent.name == "conformance"] or list(files)
    return ", ".join(f"[{path.name}](../{path.relative_to(ROOT).as_posix()})" for path in own)


def _marked(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test"
        ):
            for decorator in node.decorator_list:
                if ast.unparse(decorator).startswith("pytest.mark.conformance("):
                    assert isinstance(decorator, ast.Call)
                    for argument in decorator.args:
                        yield str(ast.literal_eval(argument)), node.name


def main() -> None:
    """Print the table, or write it into docs/conformance.md."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write(table())


if __name__ == "__main__":
    main()
