"""Sample sessions, and the types of the fixtures."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from click.testing import Result

from statebackend import Cost, EventKind, PlanItem, Producer, SessionStatus, StateBackend

MODEL = Producer("model", "anthropic", "2.1.0")
TOOL = Producer("tool", "shell", "1.0.0")
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Cli(Protocol):
    """Run the command line in this process."""

    def __call__(self, *arguments: str) -> Result:
        """Return exit code, stdout and stderr."""
        ...


class Spawn(Protocol):
    """Start the command line as a process; ``extra_env`` is added to its environment."""

    def __call__(self, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
        """Return the running process."""
        ...


def empty(backend: StateBackend, **columns: Any) -> str:
    """Make a session without events and return its id."""
    with backend.create(**{"profile": "default", **columns}) as session:
        return str(session.session_id)


def series(backend: StateBackend, count: int) -> list[str]:
    """Make sessions a day apart and return their ids, oldest first."""
    return [empty(backend, started_at=START + timedelta(days=day)) for day in range(count)]


def full(backend: StateBackend, **columns: Any) -> str:
    """Make a completed session with a prompt, a priced and an unpriced turn, a plan and a tool."""
    with backend.create(**{"profile": "default", **columns}) as session:
        session.append_prompt(payload=b"do it", schema_version="1")
        session.append_message(producer=MODEL, payload=b'{"text": "yes"}', cost=cost(0.25))
        session.append_message(producer=MODEL, payload=b"again", cost=cost(0.0))
        session.append_plan(producer=MODEL, payload=b"{}", items=[item("allow"), item("deny")])
        session.append(
            EventKind.TOOL_RESULT, producer=TOOL, payload=b"\xff\xfe\x00", schema_version="1"
        )
        session.set_status(SessionStatus.COMPLETED)
        return str(session.session_id)


def cost(cost_usd: float, model_id: str = "m-large") -> Cost:
    """Return the spend of a turn."""
    return Cost(
        provider_name="anthropic",
        model_id=model_id,
        input_tokens=100,
        output_tokens=10,
        cache_write_tokens=3,
        cache_read_tokens=5,
        cost_usd=cost_usd,
    )


def item(decision: str) -> PlanItem:
    """Return a planned call."""
    return PlanItem(
        turn_id="t1",
        tool_call_id=f"call-{decision}",
        provider_name="shell",
        tool_name="run",
        decision=decision,
        decided_by="policy:default",
    )


def path_of(backend: StateBackend, session_id: str) -> Path:
    """Return the file of a session."""
    return Path(backend.directory) / f"{session_id}.sqlite"


def rewrite(backend: StateBackend, session_id: str, statement: str) -> None:
    """Change a closed session file as another program might, by raw SQL."""
    connection = sqlite3.connect(path_of(backend, session_id))
    with connection:
        connection.execute(statement)
    connection.close()


def damage(backend: StateBackend, session_id: str) -> None:
    """Overwrite the whole file of a closed session with noise."""
    path = path_of(backend, session_id)
    path.write_bytes(bytes(range(256)) * (path.stat().st_size // 256))


def parsed(result: Result) -> Any:
    """Return the JSON that a command wrote to stdout."""
    return json.loads(result.stdout)


def parsed_lines(result: Result) -> list[Any]:
    """Return the JSON Lines that a command wrote to stdout."""
    return [json.loads(line) for line in result.stdout.splitlines()]
