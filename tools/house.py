"""Print the size and the circles of the import graph.

Counted are rooms (the packages and modules at the top of ``src/statebackend``), modules, the
import arrows between each, and circles: groups that import each other. Imports inside functions
count; imports for type checkers only do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import grimp

PACKAGE = "statebackend"
SOURCE = Path(__file__).resolve().parent.parent / "src" / PACKAGE
Arrows = Mapping[str, frozenset[str]]


def rooms() -> list[str]:
    """Return the names of the packages and modules at the top of the source tree."""
    return sorted(
        path.stem
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py")))
    )


def module_arrows() -> Arrows:
    """Return for each module the modules that it imports."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    return {
        module: frozenset(graph.find_modules_directly_imported_by(module))
        for module in graph.modules
    }


def room_arrows(arrows: Arrows) -> Arrows:
    """Return for each room the rooms that its modules import."""
    between: dict[str, set[str]] = {}
    for module, imported in arrows.items():
        between.setdefault(_room(module), set()).update(map(_room, imported))
    return {room: frozenset(imported - {room}) for room, imported in between.items()}


def _room(module: str) -> str:
    """Return the room of *module*; the package's own ``__init__`` is a room too."""
    return module.split(".")[1] if "." in module else "__init__"


def circles(arrows: Arrows) -> list[list[str]]:
    """Return the groups of nodes that reach each other, each sorted, largest first."""
    reached = {node: _reach(node, arrows) for node in arrows}
    groups = {
        tuple(sorted(other for other in reached[node] if node in reached[other]))
        for node in arrows
        if node in reached[node]
    }
    return sorted(map(list, groups), key=len, reverse=True)


def _reach(node: str, arrows: Arrows) -> set[str]:
    reached: set[str] = set()
    waiting = [node]
    while waiting:
        new = arrows[waiting.pop()] - reached
        reached |= new
        waiting.extend(new)
    return reached


def main() -> None:
    """Print one line for the rooms and one for the modules, then each circle."""
    modules = module_arrows()
    between_rooms = room_arrows(modules)
    print(f"rooms    {len(rooms()):4}  {_describe(between_rooms)}")
    print(f"modules  {len(modules):4}  {_describe(modules)}")
    for circle in [*circles(between_rooms), *circles(modules)]:
        print(f"circle: {' '.join(circle)}")


def _describe(arrows: Arrows) -> str:
    count = sum(map(len, arrows.values()))
    return f"{count:5} arrows  {len(circles(arrows)):3} circles"


if __name__ == "__main__":
    main()
