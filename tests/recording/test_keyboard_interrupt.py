"""KeyboardInterrupt at any moment: whole or absent, retried without a duplicate, and usable."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from statebackend import StateBackend
from tests.crash import interrupted
from tests.crash.children import SESSION_ID
from tests.crash.processes import run
from tests.crash.samples import assert_whole, litter, session_file

pytestmark = [pytest.mark.crash, pytest.mark.conformance("SB-19")]


@pytest.mark.parametrize(
    "function",
    [
        interrupted.appends,
        interrupted.batches,
        interrupted.statuses,
        interrupted.reads,
        interrupted.opens,
        interrupted.notes,
        interrupted.closes,
        interrupted.threads,
        interrupted.failing_blocks,
    ],
)
def test_interrupts_leave_nothing_by_halves(
    backend: StateBackend, function: Callable[[str, str], None]
) -> None:
    """At 100 random moments; retries with the same ids end with each event there once."""
    run(function, backend.directory, SESSION_ID)
    assert_whole(session_file(backend, SESSION_ID))
    assert litter(backend) == set()
