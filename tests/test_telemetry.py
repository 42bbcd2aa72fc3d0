"""Spans around the slow operations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statebackend import StateBackend, configure_telemetry, telemetry
from tests.session_files import call, full


class Recorder:
    """A driver that notes names and attributes."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, dict[str, telemetry.Attribute]]] = []

    @contextmanager
    def span(self, name: str, **attributes: telemetry.Attribute) -> Iterator[None]:
        """Note it."""
        self.spans.append((name, attributes))
        yield

    @property
    def names(self) -> set[str]:
        """Return the names so far."""
        return {name for name, _attributes in self.spans}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Switch a recorder on for the test."""
    driver = Recorder()
    configure_telemetry(driver)
    yield driver
    configure_telemetry(None)


def test_off_unless_configured(recorder: Recorder) -> None:
    """None switches it off again, and the no-op driver is one too."""
    assert isinstance(recorder, telemetry.Telemetry)
    assert telemetry.current() is recorder
    configure_telemetry(None)
    assert isinstance(telemetry.current(), telemetry.NoTelemetry)
    with telemetry.current().span("x", a=1):
        pass
    assert recorder.spans == []


def test_the_slow_operations_have_spans(backend: StateBackend, recorder: Recorder) -> None:
    """Creating, opening, reading, checking, appending and scanning."""
    session_id = full(backend)
    with backend.open(session_id), backend.read(session_id):
        pass
    backend.list()
    assert recorder.names >= {
        "statebackend.create",
        "statebackend.open",
        "statebackend.read",
        "statebackend.integrity_check",
        "statebackend.append",
        "statebackend.commit",
        "statebackend.scan",
    }


def test_no_attribute_tells_what_is_in_a_session(backend: StateBackend, recorder: Recorder) -> None:
    """Ids, paths and counts only: payloads, profiles and producers stay in the file."""
    with backend.create("secret profile") as session:
        call(session, b"secret payload")
    for _name, attributes in recorder.spans:
        assert set(attributes) <= {"session_id", "path", "appends", "events"}
        assert "secret" not in str(attributes)


def test_disabled_holds_in_its_own_thread_only(recorder: Recorder) -> None:
    """And ends with its block, also by an error."""
    seen: list[object] = []
    with telemetry.disabled():
        thread = threading.Thread(target=lambda: seen.append(telemetry.current()))
        thread.start()
        thread.join()
        assert telemetry.current() is not recorder
    assert seen == [recorder]
    with pytest.raises(ZeroDivisionError), telemetry.disabled():
        raise ZeroDivisionError
    assert telemetry.current() is recorder


def test_an_error_passes_through_a_span(backend: StateBackend, tmp_path: Path) -> None:
    """The no-op span swallows nothing."""
    with pytest.raises(ZeroDivisionError), telemetry.NoTelemetry().span("x"):
        raise ZeroDivisionError
