"""What the children of ``test_search`` do: search, and die on the way."""

from __future__ import annotations

import os
import signal
from typing import Any

from statebackend import StateBackend
from statebackend.catalogue import indexing, search
from statebackend.catalogue.extractors import Extractors
from tests.crash.children import say

PORTION = 7
"""Events of a portion in these processes: few, so that there are many."""


def searcher(directory: str, *_number: str) -> None:
    """Search at once after a line from the test, and tell how many were found."""
    indexing._PORTION_EVENTS = PORTION
    say("ready")
    input()
    result = StateBackend(directory).search("apple", limit=None)
    say({"hits": len(result.hits), "partial": result.partial})


def dying(directory: str, when: str, step: str) -> None:
    """Search, and be killed at this step of: reading events, writing rows, telling progress."""
    indexing._PORTION_EVENTS = PORTION
    left = int(step)

    def count(*_arguments: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    class Dying(Extractors):
        def text_of_row(self, row: Any) -> str:
            count()
            return super().text_of_row(row)

    if when == "reading":
        vars(search)["installed"] = Dying
    elif when == "writing":
        execute = indexing._Writer._advance

        def advance(self: Any, part: Any) -> None:
            execute(self, part)
            count()

        indexing._Writer._advance = advance  # type: ignore[method-assign]
    progress = count if when == "telling" else None
    result = StateBackend(directory).search("apple", limit=None, progress=progress)
    say(len(result.hits))
