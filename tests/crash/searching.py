"""The processes that ``test_search`` starts: one searches, one is killed while it indexes."""

from __future__ import annotations

import os
import signal
from typing import Any

from statebackend import StateBackend
from statebackend.catalogue import indexing, search
from statebackend.catalogue.extractors import Extractors
from tests.crash.children import say

PORTION = 7
"""Events of a portion in these processes: few, so that there are many portions."""


def search_on_request(directory: str, *_number: str) -> None:
    """Wait for a line from the test, then search and report the number of hits."""
    indexing._PORTION_EVENTS = PORTION
    say("ready")
    input()
    result = StateBackend(directory).search("apple", limit=None)
    say({"hits": len(result.hits), "partial": result.partial})


def search_and_die(directory: str, when: str, step: str) -> None:
    """Search, and be killed at this step of reading events, writing rows or reporting progress."""
    indexing._PORTION_EVENTS = PORTION
    steps_left = int(step)

    def count(*_arguments: object) -> None:
        nonlocal steps_left
        steps_left -= 1
        if steps_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    class KillingExtractors(Extractors):
        def text_of_row(self, row: Any) -> str:
            count()
            return super().text_of_row(row)

    if when == "reading":
        vars(search)["installed"] = KillingExtractors
    elif when == "writing":
        execute = indexing._PartWriter._advance

        def advance(self: Any, part: Any) -> None:
            execute(self, part)
            count()

        indexing._PartWriter._advance = advance  # type: ignore[method-assign]
    progress = count if when == "reporting" else None
    result = StateBackend(directory).search("apple", limit=None, progress=progress)
    say(len(result.hits))
