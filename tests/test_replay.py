"""Renderers, and the generic one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from statebackend import Event, EventKind, Producer, StateBackend
from statebackend.replay import Renderers, render, render_generic, replay
from statebackend.values.ids import session_id_from
from tests.session_files import START, TOOL, call, full


def event(payload: bytes, producer: Producer = TOOL) -> Event:
    """Return a stored event."""
    return Event(1, "e1", START, EventKind.TOOL_CALL, producer, "1", payload)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b'{"b":1,"a":[1]}', '{\n  "b": 1,\n  "a": [\n    1\n  ]\n}'),
        ('{"t": "ü"}'.encode(), '{\n  "t": "ü"\n}'),
        (b'{"a":1}\n{"a":2}', '{\n  "a": 1\n}\n{\n  "a": 2\n}'),
        (b'{"a":1,"a":2}', '{"a":1,"a":2}'),
        (b"[1.00000000000000000001]", "[1.00000000000000000001]"),
        (b"plain text", "plain text"),
        (b"", ""),
        (b'{"broken"', '{"broken"'),
        (b"[" * 100_000, "[" * 100_000),
        (b"\xff\x00", "2 bytes: ff 00"),
        (b"\xff" * 100, "100 bytes: " + " ".join(["ff"] * 64) + " …"),
    ],
    ids=[
        "json",
        "unicode",
        "a key twice",
        "a long number",
        "json lines",
        "text",
        "empty",
        "broken",
        "too deep",
        "bytes",
        "many bytes",
    ],
)
def test_the_generic_text(payload: bytes, text: str) -> None:
    """JSON is indented, text is kept, the rest is shown in hex digits."""
    assert render_generic(event(payload)) == text


def test_a_renderer_is_found_by_the_whole_producer() -> None:
    """Another version is another producer; the last registration holds."""
    renderers = Renderers()
    assert renderers.resolve(TOOL) is None
    renderers.register(TOOL, lambda _one: "first")
    renderers.register(TOOL, lambda _one: "second")
    assert render(event(b""), renderers).text == "second"
    assert render(event(b"", Producer("tool", "shell", "2")), renderers).fallback


def test_a_failing_renderer_is_told() -> None:
    """The generic text comes with the error's kind and message."""
    renderers = Renderers()
    renderers.register(TOOL, lambda _one: str(1 // 0))
    rendered = render(event(b"x"), renderers)
    assert (rendered.text, rendered.fallback) == ("x", True)
    assert rendered.error == "ZeroDivisionError: integer division or modulo by zero"


def test_an_interrupt_in_a_renderer_is_not_swallowed() -> None:
    """Only errors of the renderer are."""

    def stop(_event: Event) -> str:
        raise KeyboardInterrupt

    renderers = Renderers()
    renderers.register(TOOL, stop)
    with pytest.raises(KeyboardInterrupt):
        render(event(b""), renderers)


def test_replay_is_lazy(backend: StateBackend) -> None:
    """No event is rendered before it is asked for, and one appended meanwhile is seen."""
    rendered: list[int] = []
    renderers = Renderers()

    def note(one: Event) -> str:
        rendered.append(one.sequence)
        return ""

    renderers.register(TOOL, note)
    with backend.open(full(backend)) as session:
        session.set_status("running")
        walk = replay(session, renderers, after_sequence=3)
        assert rendered == []
        next(walk)
        assert rendered == [4]
        call(session)
        assert [one.event.sequence for one in walk] == [5, 6]


def test_a_parent_replays_without_its_children(backend: StateBackend) -> None:
    """The replay of a parent does not read other files, not even 400 damaged ones."""
    parent = full(backend)
    with backend.create("child", parent_session_id=parent) as child:
        call(child)
    with backend.read(parent) as view:
        before = [rendered.event for rendered in replay(view)]
    child.path.write_bytes(b"no database" * 100)
    for number in range(400):
        session_id = session_id_from(datetime.now(UTC), number.to_bytes(10, "big"))
        (backend.directory / f"{session_id}.sqlite").write_bytes(b"no database" * 100)
    with backend.read(parent) as view:
        assert [rendered.event for rendered in replay(view)] == before != []
