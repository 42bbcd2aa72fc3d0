"""Replay: render the events of a session in order, with telemetry off (SB-23, SB-24).

Rendered text is given to the caller and never stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from statebackend import telemetry
from statebackend.reading.view import SessionView
from statebackend.recording.session import Session
from statebackend.values.recorded import Event, EventKind, Producer

Renderer = Callable[[Event], str]
"""Returns the text of one event; the event's ``schema_version`` says how to read its payload."""

_HEX_BYTES = 64
_SPACE_OUTSIDE_STRINGS = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')


@dataclass(frozen=True, slots=True)
class Rendered:
    """One event and its text.

    ``fallback`` means that the generic renderer was used: either no renderer is registered for
    this producer version, or it raised ``error`` (type and message).
    """

    event: Event
    text: str
    fallback: bool
    error: str | None = None


class Renderers:
    """Renderers by exact producer build (specification, "Replay")."""

    def __init__(self) -> None:
        self._renderers: dict[Producer, Renderer] = {}

    def register(self, producer: Producer, renderer: Renderer) -> None:
        """Use *renderer* for events of this producer: same category, name and version.

        A later call for the same producer replaces the renderer. Register a renderer that also
        handles older versions once for each of them.
        """
        self._renderers[producer] = renderer

    def resolve(self, producer: Producer) -> Renderer | None:
        """Return the renderer of this exact producer, None if there is none."""
        return self._renderers.get(producer)


def replay(
    view: SessionView | Session,
    renderers: Renderers | None = None,
    *,
    after_sequence: int = 0,
    kinds: Iterable[EventKind | str] | None = None,
    limit: int | None = None,
) -> Iterator[Rendered]:
    """Return the events in sequence order, each with the text of its producer's renderer.

    *after_sequence*, *kinds* and *limit* select events as :meth:`SessionView.events` does. Events
    are read lazily, a page at a time. When a renderer raises, the event gets the generic text and
    the error, and the replay continues (SB-23). Telemetry is off while an event is rendered
    (SB-24).
    Raises what :meth:`SessionView.events` raises.
    """
    return _replay(view.events(after_sequence, kinds, limit), renderers or Renderers())


def _replay(events: Iterator[Event], renderers: Renderers) -> Iterator[Rendered]:
    # Off around each step, not around the loop: between two steps the caller's code runs, and its
    # telemetry stays on.
    while True:
        with telemetry.disabled():
            event = next(events, None)
            if event is None:
                return
            rendered = render(event, renderers)
        yield rendered


def render(event: Event, renderers: Renderers) -> Rendered:
    """Render one event; never raises for a failing renderer."""
    renderer = renderers.resolve(event.producer)
    if renderer is None:
        return Rendered(event, render_generic(event), fallback=True)
    try:
        return Rendered(event, renderer(event), fallback=False)
    except Exception as error:  # noqa: BLE001 - a renderer may raise anything
        problem = f"{type(error).__name__}: {error}"
        return Rendered(event, render_generic(event), fallback=True, error=problem)


def render_generic(event: Event) -> str:
    """Return the payload as indented JSON (one value or JSON Lines), as text, or as hex digits.

    JSON that would change in a round trip through Python is returned as text. Of a payload that
    is not UTF-8, the size and the first 64 bytes are given.
    """
    try:
        text = event.payload.decode()
    except UnicodeDecodeError:
        more = " …" if len(event.payload) > _HEX_BYTES else ""
        return f"{len(event.payload)} bytes: {event.payload[:_HEX_BYTES].hex(' ')}{more}"
    for values in ([text], text.splitlines()):
        try:
            return "\n".join(map(_indent_json, values))
        except (ValueError, RecursionError):
            continue
    return text


def _indent_json(text: str) -> str:
    value = json.loads(text)
    # A long number or a repeated key would be lost in the round trip.
    bare = _SPACE_OUTSIDE_STRINGS.sub(lambda match: match[1] or "", text)
    escaped = json.dumps(value, separators=(",", ":"))
    if bare not in (escaped, json.dumps(value, separators=(",", ":"), ensure_ascii=False)):
        raise ValueError("not the same after a round trip")
    return json.dumps(value, indent=2, ensure_ascii=False)
