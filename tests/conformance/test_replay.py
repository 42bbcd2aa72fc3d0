"""SB-23 to SB-25: replay through renderers, telemetry off, and the preflight check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from statebackend import Event, EventKind, Producer, StateBackend, configure_telemetry
from statebackend.replay import Renderers, replay
from statebackend.sqlite import engine
from tests.session_files import MODEL, TOOL, call, fill, full, new, path_of, rows_of


class Recorder:
    """A telemetry driver that notes the names of its spans."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def span(self, name: str, **attributes: str | float | bool) -> AbstractContextManager[None]:
        """Note the name."""
        return self._span(name)

    @contextmanager
    def _span(self, name: str) -> Iterator[None]:
        self.names.append(name)
        yield


@pytest.fixture
def telemetry() -> Iterator[Recorder]:
    """Switch a recording telemetry driver on for the test."""
    recorder = Recorder()
    configure_telemetry(recorder)
    yield recorder
    configure_telemetry(None)


@pytest.mark.conformance("SB-23")
def test_sb23_each_event_goes_to_the_renderer_of_its_exact_build(backend: StateBackend) -> None:
    """A renderer gets the events of its own category, name and version only, in order."""
    builds = [
        Producer("tool", "shell", "1"),
        Producer("tool", "shell", "2"),
        Producer("tool", "sh", "1"),
    ]
    renderers = Renderers()
    renderers.register(builds[0], lambda event: f"first/{event.sequence}")
    renderers.register(builds[1], lambda event: f"second/{event.sequence}")
    with backend.create("default") as session:
        for build in (*builds, builds[0]):
            call(session, producer=build)
        rendered = list(replay(session, renderers))
    assert [one.text for one in rendered] == ["first/1", "second/2", "{}", "first/4"]
    assert [one.fallback for one in rendered] == [False, False, True, False]


@pytest.mark.conformance("SB-23")
def test_sb23_a_renderer_sees_the_events_own_schema_version(backend: StateBackend) -> None:
    """The schema version that was stored is the one that the renderer is handed."""
    renderers = Renderers()
    renderers.register(TOOL, lambda event: event.schema_version)
    with backend.create("default") as session:
        for version in ("1", "v1", "2"):
            call(session, schema_version=version)
        assert [one.text for one in replay(session, renderers)] == ["1", "v1", "2"]


@pytest.mark.conformance("SB-23")
def test_sb23_a_rendering_is_never_stored(backend: StateBackend) -> None:
    """Replaying leaves the file as it was, byte for byte and row for row."""
    renderers = Renderers()
    renderers.register(MODEL, lambda _event: "rendered text that is nowhere in the file")
    path = path_of(backend, full(backend))
    before, rows = path.read_bytes(), rows_of(path)
    with backend.read(path.stem) as view:
        assert len(list(replay(view, renderers))) == 5
    assert (path.read_bytes(), rows_of(path)) == (before, rows)


@pytest.mark.conformance("SB-23")
def test_sb23_a_renderer_that_fails_does_not_shorten_the_replay(backend: StateBackend) -> None:
    """Its event comes with the generic text and the error; all others as usual."""

    def fails(event: Event) -> str:
        raise LookupError(event.id)

    renderers = Renderers()
    renderers.register(TOOL, fails)
    with backend.read(full(backend)) as view:
        rendered = list(replay(view, renderers))
    assert [one.event.sequence for one in rendered] == [1, 2, 3, 4, 5]
    assert [one.error is not None for one in rendered] == [False, False, False, True, True]
    assert rendered[4].text == "done"


@pytest.mark.conformance("SB-24")
def test_sb24_replay_emits_no_telemetry(backend: StateBackend, telemetry: Recorder) -> None:
    """Neither reading nor a renderer that opens another session reaches the configured driver."""
    other = new(backend, events=1)
    renderers = Renderers()

    def looks_elsewhere(event: Event) -> str:
        with backend.read(other) as view:
            return str(view.counts().events)

    renderers.register(TOOL, looks_elsewhere)
    with backend.read(full(backend)) as view:
        telemetry.names.clear()
        assert [one.text for one in replay(view, renderers)][-1] == "1"
    assert telemetry.names == []


@pytest.mark.conformance("SB-24")
def test_sb24_the_live_session_goes_on_being_traced(
    backend: StateBackend, telemetry: Recorder
) -> None:
    """An append between two steps of a replay is the caller's own work, so it is traced."""
    with backend.create("default") as session:
        fill(session)
        for one in replay(session, limit=5):
            telemetry.names.clear()
            call(session, str(one.event.sequence).encode())
            assert telemetry.names == ["statebackend.append", "statebackend.commit"]


@pytest.mark.conformance("SB-25")
def test_sb25_missing_producers_are_named(backend: StateBackend) -> None:
    """Those that are not installed in exactly the version needed, the kernel never."""
    with backend.read(full(backend)) as view:
        assert view.missing_producers([MODEL, TOOL]) == []
        newer = Producer(TOOL.category, TOOL.name, "1.0.1")
        missing = view.missing_producers(iter([newer, MODEL]))
        assert [(one.producer, one.first_seen_sequence) for one in missing] == [(TOOL, 4)]


@pytest.mark.conformance("SB-25")
def test_sb25_the_check_reads_producers_alone(backend: StateBackend) -> None:
    """It looks into no other table, so it is quick before anything is rendered."""
    with backend.read(full(backend)) as view:
        seen: list[str] = []
        driver = engine.driver_of(view._held.connection)
        driver.set_trace_callback(seen.append)
        view.missing_producers([])
        driver.set_trace_callback(None)
    selects = [text for text in seen if "SELECT" in text]
    assert len(selects) == 1
    assert "FROM producers" in selects[0]


@pytest.mark.conformance("SB-23")
def test_sb23_part_of_a_session_can_be_replayed(backend: StateBackend) -> None:
    """A replay can start behind a sequence, keep to some kinds, and stop."""
    with backend.read(full(backend)) as view:
        kinds = [EventKind.TOOL_CALL, EventKind.TOOL_RESULT]
        assert [one.event.sequence for one in replay(view, after_sequence=3)] == [4, 5]
        assert [one.event.sequence for one in replay(view, kinds=kinds)] == [4, 5]
        assert [one.event.sequence for one in replay(view, limit=2)] == [1, 2]
