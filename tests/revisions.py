"""Checks of the sources of a chain of revisions.

``python -m tests.revisions`` freezes the revisions that are not released yet.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

from statebackend.schema.migrate import SESSIONS, Chain

# What would end the one transaction of a migration, or lose what a rebuild must keep.
_FORBIDDEN_CALLS = {
    "autocommit_block": "would end the migration's transaction",
    "batch_alter_table": "loses AUTOINCREMENT and the highest number: op.rebuild_table keeps them",
    "commit": "would end the migration's transaction",
    "executescript": "would end the migration's transaction",
    "rollback": "would end the migration's transaction",
}
_FORBIDDEN_IMPORTS = {
    "alembic.op": "is one global of the process: use the op that upgrade is given",
    "alembic.context": "is one global of the process",
    "statebackend": "changes with later versions, and a released revision must not",
}


def problems(chain: Chain = SESSIONS) -> list[str]:
    """Return the problems of the revisions of *chain*, one line each.

    Checked: the revisions are numbered 0001 to the chain's version without a gap; each has an
    ``upgrade(op)`` and no downgrade; none does what a migration cannot undo; those listed in
    ``released.txt`` are unchanged (:func:`release`).
    """
    lines = [f"{path.name}: {text}" for path in _sources(chain) for text in _check_source(path)]
    return lines + list(_check_numbers(chain)) + list(_check_released(chain))


def digest(source: Path) -> str:
    """Return the SHA-256 of a revision's text; the kind of line ends makes no difference."""
    text = source.read_bytes().replace(b"\r\n", b"\n")
    return hashlib.sha256(text).hexdigest()


def released(chain: Chain = SESSIONS) -> dict[str, str]:
    """Return the digests of the released revisions by revision id."""
    listed = _released_file(chain)
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def release(chain: Chain = SESSIONS) -> list[str]:
    """Freeze new revisions: add their digests to ``released.txt`` and return their ids."""
    known = released(chain)
    new = {_number(path): digest(path) for path in _sources(chain) if _number(path) not in known}
    with _released_file(chain).open("a", encoding="utf-8") as file:
        file.writelines(f"{number} {text}\n" for number, text in new.items())
    return list(new)


def _released_file(chain: Chain) -> Path:
    return chain.versions / "released.txt"


def _sources(chain: Chain) -> list[Path]:
    return sorted(chain.versions.glob("*.py"))


def _number(path: Path) -> str:
    return path.name.partition("_")[0]


def _check_numbers(chain: Chain) -> Iterator[str]:
    numbers = [_number(path) for path in _sources(chain)]
    wanted = [f"{number:04}" for number in range(1, chain.version + 1)]
    if numbers != wanted:
        yield f"revisions {' '.join(numbers)} where {' '.join(wanted)} are expected"


def _check_released(chain: Chain) -> Iterator[str]:
    present = {_number(path): path for path in _sources(chain)}
    for number, expected in released(chain).items():
        if number not in present:
            yield f"{number}: is released, and gone"
        elif digest(present[number]) != expected:
            yield f"{present[number].name}: is released, and was changed: add a new revision"


def _check_source(path: Path) -> Iterator[str]:
    module = ast.parse(path.read_text(encoding="utf-8"))
    yield from _check_header(module, int(_number(path)) if _number(path).isdecimal() else 0)
    yield from _check_functions(module)
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in _FORBIDDEN_CALLS:
            yield f"line {node.lineno}: {node.attr} {_FORBIDDEN_CALLS[node.attr]}"
        for name in _imported_names(node):
            for forbidden, reason in _FORBIDDEN_IMPORTS.items():
                if f"{name}.".startswith(f"{forbidden}."):
                    yield f"imports {name}, which {reason}"


def _check_header(module: ast.Module, number: int) -> Iterator[str]:
    values = {
        target.id: ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in _HEADER
    }
    before = f"{number - 1:04}" if number > 1 else None
    wanted = (f"{number:04}", before, None, None)
    for name, value in zip(_HEADER, wanted, strict=True):
        if values.get(name) != value:
            yield f"{name} is {values.get(name)!r}, must be {value!r}"


_HEADER = ("revision", "down_revision", "branch_labels", "depends_on")


def _check_functions(module: ast.Module) -> Iterator[str]:
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    if "downgrade" in functions:
        yield "has a downgrade: a file is never brought back to an older version"
    upgrade = functions.get("upgrade")
    if upgrade is None or [argument.arg for argument in upgrade.args.args] != ["op"]:
        yield "has no upgrade(op)"


def _imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


if __name__ == "__main__":
    print(*release(), sep="\n")  # noqa: T201 - the ids that are frozen now
