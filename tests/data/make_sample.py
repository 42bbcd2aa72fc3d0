"""Make the stored sample of the current version: 1,000 events, the same rows each time.

Run as ``python -m tests.data.make_sample``, before a new version is released.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

from statebackend import Cost, EventKind, PlanItem, Producer, SessionStatus, StateBackend
from statebackend.recording.appends import Batch
from statebackend.testing import fixed_clock, fixed_ids
from statebackend.values import ids
from statebackend.values.recorded import SCHEMA_VERSION
from tests import released_files

START = datetime(2025, 1, 1, tzinfo=UTC)
MODEL = Producer("model", "anthropic", "2.1.0")
TOOL = Producer("tool", "shell", "1.4.2")
_KINDS = [kind for kind in EventKind if kind not in (EventKind.MESSAGE, EventKind.PLAN)]


def make(folder: Path) -> Path:
    """Make the sample in *folder* and return its path."""
    session_id = ids.session_id_from(START, bytes(9) + b"\x18")
    with (
        fixed_clock(START),
        fixed_ids(),
        StateBackend(folder).create("sample", session_id=session_id) as session,
    ):
        with session.batch() as batch:
            for number in range(1000):
                _append(batch, number, random.Random(number))
        session.set_status(SessionStatus.COMPLETED)
        return session.path


def _append(batch: Batch, number: int, dice: random.Random) -> None:
    payload = dice.randbytes(dice.randrange(60))
    if number % 5 == 0:
        batch.append_prompt(payload=payload, schema_version="1")
    elif number % 5 == 1:
        batch.append_message(producer=MODEL, payload=payload, cost=_cost(number))
    elif number % 5 == 2:
        batch.append_plan(producer=MODEL, payload=payload, items=[_item(number)])
    else:
        kind = _KINDS[dice.randrange(len(_KINDS))]
        producer = Producer("tool", f"tool-{number % 7}", "1.0.0")
        batch.append(kind, producer=producer, payload=payload, schema_version="1")


def _cost(number: int) -> Cost:
    return Cost(
        provider_name="anthropic",
        model_id="m-large",
        input_tokens=number,
        output_tokens=number * 2,
        cache_write_tokens=number % 3,
        cache_read_tokens=number % 4,
        cost_usd=number / 1024,
    )


def _item(number: int) -> PlanItem:
    return PlanItem(
        turn_id=f"turn-{number}",
        tool_call_id=f"call-{number}",
        provider_name="shell",
        tool_name="run",
        decision=("allow", "ask", "deny")[number % 3],
        decided_by="policy:default",
    )


if __name__ == "__main__":
    target = Path(__file__).parent / f"version-{SCHEMA_VERSION}"
    target.mkdir()
    made = make(target)
    released_files.record(made)
    (target / ".locks").rmdir()
