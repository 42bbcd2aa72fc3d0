"""Events as a transcript: a line for each, and below it the rendered text, indented.

The indent keeps a stored text from passing for the line of another event.
"""

from __future__ import annotations

from collections.abc import Iterable

from statebackend.cli import escape, forms, output, texts
from statebackend.values.recorded import Event

MOST_CHARACTERS = 4000
"""How much of one event's text a terminal is shown."""

_INDENT = "    "


def write_json_lines(events: Iterable[Event], *, at_once: bool) -> None:
    """Write each event as one line of JSON; *at_once* leaves none of them in a buffer."""
    for event in events:
        output.write_json_line(forms.event(event))
        if at_once:
            output.flush()


def write(events: Iterable[Event], *, at_once: bool) -> None:
    """Render and write each event; a long text is cut if a terminal is to show it."""
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
    output.write(f"{output.bold(texts.event_line(event))}\n{body}\n")


def cut(text: str) -> str:
    """Return *text*, or its beginning with a word on how much is left and how to see it."""
    left = len(text) - MOST_CHARACTERS
    if left <= 0:
        return text
    hint = f"... {left:,} more characters: use --json, replay, or a pipe"
    return f"{text[:MOST_CHARACTERS]}\n{hint}"
