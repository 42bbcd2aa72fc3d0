"""Events as a transcript: a heading for each, and below it the rendered text, indented.

The indent tells stored text from the headings of other events.
"""

from __future__ import annotations

from collections.abc import Iterable

from statebackend.cli import display, escape, json_values, output
from statebackend.values.recorded import Event

MOST_CHARACTERS = 4000
"""Characters of one event's text that are shown on a terminal."""

_INDENT = "    "


def write_json_lines(events: Iterable[Event], *, at_once: bool) -> None:
    """Write each event as one line of JSON, flushed after each event if *at_once*."""
    for event in events:
        output.write_json_line(json_values.event(event))
        if at_once:
            output.flush()


def write(events: Iterable[Event], *, at_once: bool) -> None:
    """Render and write each event; on a terminal long text is cut."""
    from statebackend.replay import Renderers, render

    renderers, whole = Renderers(), not output.stdout_is_terminal()
    for event in events:
        text = render(event, renderers).text
        write_event(event, text if whole else cut(text))
        if at_once:
            output.flush()


def write_event(event: Event, text: str) -> None:
    """Write one event and its rendered *text*."""
    lines = escape.text(text).removesuffix("\n").split("\n")
    body = "".join(f"{_INDENT}{line}\n" if line else "\n" for line in lines)
    output.write(f"{output.bold(display.event_line(event))}\n{body}\n")


def cut(text: str) -> str:
    """Return *text*, or its beginning and how many characters were cut."""
    excess = len(text) - MOST_CHARACTERS
    if excess <= 0:
        return text
    hint = f"... {excess:,} more characters: use --json, replay, or a pipe"
    return f"{text[:MOST_CHARACTERS]}\n{hint}"
