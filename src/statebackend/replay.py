"""Replay: an old session's events, in order, through the renderers; telemetry off (SB-23, SB-24).

What a renderer makes is handed to the caller and never stored.
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
"""Makes the text of one event; it gets the event's own ``schema_version`` in it."""

_HEX_BYTES = 64


@dataclass(frozen=True, slots=True)
class Rendered:
    """One event and its text.

    ``fallback`` tells that the generic renderer made it: because none is registered for exactly
    this producer version, or because that one failed, with ``error``.
    """

    event: Event
    text: str
    fallback: bool
    error: str | None = None


class Renderers:
    """The renderers of a host, by exact producer build (specification, "Replay")."""

    def __init__(self) -> None:
        self._renderers: dict[Producer, Renderer] = {}

    def register(self, producer: Producer, renderer: Renderer) -> None:
        """Use *renderer* for the events of exactly this producer: category, name and version.

        A build that supersedes older ones is registered for each of their versions.
        """
        self._renderers[producer] = renderer

    def resolve(self, producer: Producer) -> Renderer | None:
        """Return the renderer of exactly this producer build, None when there is none."""
        return self._renderers.get(producer)


def replay(
    view: SessionView | Session,
    renderers: Renderers | None = None,
    *,
    after_sequence: int = 0,
    kinds: Iterable[EventKind | str] | None = None,
    limit: int | None = None,
) -> Iterator[Rendered]:
    """Return the events in sequence order, each with the text its own producer's renderer makes.

    Lazy, with the memory of a page. A renderer that raises does not end the replay: its event
    comes with the generic text and the error.
    """
    renderers = renderers or Renderers()
    events = view.events(after_sequence, kinds, limit)
    return _replay(events, renderers)


def _replay(events: Iterator[Event], renderers: Renderers) -> Iterator[Rendered]:
    # Telemetry is switched off around each step, not around the loop: between two steps the
    # caller's own code runs, whose telemetry is none of the replay's business.
    while True:
        with telemetry.disabled():
            event = next(events, None)
            if event is None:
                return
            rendered = render(event, renderers)
        yield rendered


def render(event: Event, renderers: Renderers) -> Rendered:
    """Return one event with its text."""
    renderer = renderers.resolve(event.producer)
    if renderer is None:
        return Rendered(event, render_generic(event), fallback=True)
    try:
        return Rendered(event, renderer(event), fallback=False)
    except Exception as error:  # noqa: BLE001 - a renderer is foreign code
        problem = f"{type(error).__name__}: {error}"
        return Rendered(event, render_generic(event), fallback=True, error=problem)


def render_generic(event: Event) -> str:
    """Return a payload as indented JSON, else as text, else as a summary in hex digits.

    Several JSON values, a line each, are indented one by one.
    """
    try:
        text = event.payload.decode()
    except UnicodeDecodeError:
        return _hex_summary(event.payload)
    for values in ([text], text.splitlines()):
        try:
            return "\n".join(map(_indented, values))
        except (ValueError, RecursionError):
            continue
    return text


def _indented(text: str) -> str:
    value = json.loads(text)
    # What a number or a repeated key would lose on the way through Python is shown as it is.
    bare = _SPACE_OUTSIDE_STRINGS.sub(lambda match: match[1] or "", text)
    escaped = json.dumps(value, separators=(",", ":"))
    if bare not in (escaped, json.dumps(value, separators=(",", ":"), ensure_ascii=False)):
        raise ValueError("not the same after a round trip")
    return json.dumps(value, indent=2, ensure_ascii=False)


_SPACE_OUTSIDE_STRINGS = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')


def _hex_summary(payload: bytes) -> str:
    shown = payload[:_HEX_BYTES].hex(" ")
    more = " …" if len(payload) > _HEX_BYTES else ""
    return f"{len(payload)} bytes: {shown}{more}"
