"""Many sessions at once, copied from a few templates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from statebackend.backend import StateBackend
from statebackend.files.paths import SUFFIX
from statebackend.values.ids import session_id_from
from statebackend.values.recorded import Cost, Producer
from statebackend.values.timestamps import to_text

START = datetime(2026, 1, 1, tzinfo=UTC)
APART = timedelta(minutes=1)
_MODEL = Producer("model", "example", "1.0.0")
_PAYLOAD = b'{"role": "assistant", "text": "%s"}'


@dataclass(frozen=True, slots=True)
class Template:
    """A session file to copy; its ``session_id`` and ``started_at`` occur in it once each."""

    session_id: str
    started_at: datetime
    image: bytes


def template(folder: Path, events: int, payload_bytes: int = 400) -> Template:
    """Create a completed session of *events* messages in *folder*; return it as a template."""
    backend = StateBackend(folder)
    payload = _PAYLOAD % (b"x" * max(payload_bytes - len(_PAYLOAD), 0))
    cost = Cost(
        provider_name="example", model_id="large", input_tokens=9, output_tokens=9, cost_usd=0.01
    )
    with backend.create("default", started_at=START) as session:
        with session.batch() as batch:
            for number in range(events):
                batch.append_message(
                    producer=_MODEL, payload=payload, cost=cost, event_id=f"event-{number}"
                )
        session.set_status("completed")
    return Template(session.session_id, START, session.path.read_bytes())


def stamp(
    directory: Path, templates: Sequence[Template], count: int, *, first: int = 0
) -> Iterator[Path]:
    """Write *count* sessions, ``APART``, into *directory*, and return their paths lazily.

    Each is a copy of a template with the id and the start replaced by others of the same length,
    which takes a hundredth of the time of creating it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        template = templates[number % len(templates)]
        started_at = START + number * APART
        session_id = session_id_from(started_at, number.to_bytes(10, "big"))
        image = template.image.replace(template.session_id.encode(), session_id.encode())
        image = image.replace(
            to_text(template.started_at).encode(), to_text(started_at).encode(), 1
        )
        path = directory / f"{session_id}{SUFFIX}"
        path.write_bytes(image)
        yield path
