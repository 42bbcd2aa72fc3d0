"""The driver for OpenTelemetry, against the real SDK and its exporter in memory."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from statebackend import (
    AsyncStateBackend,
    DuplicateEvent,
    SessionDamaged,
    SessionLocked,
    StateBackend,
    configure_telemetry,
    telemetry,
)
from statebackend.otel import OpenTelemetry
from statebackend.replay import replay
from statebackend.sqlite import engine
from tests.chains import SAMPLE, make_chain, program_of
from tests.session_files import (
    call,
    damage_index,
    damage_page,
    fill,
    full,
    new,
    path_of,
    run_python,
)


class Traced:
    """A tracer of the host, and what was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("host")
        self.driver = OpenTelemetry(provider)

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        """Return the finished spans, of this name if given, the first to end first."""
        found = self.exporter.get_finished_spans()
        return [span for span in found if name is None or span.name == f"statebackend.{name}"]

    def one(self, name: str) -> ReadableSpan:
        """Return the only finished span of this name."""
        (span,) = self.spans(name)
        return span


@pytest.fixture
def traced() -> Iterator[Traced]:
    """Configure the driver for the test."""
    traced = Traced()
    configure_telemetry(traced.driver)
    yield traced
    configure_telemetry(None)


def parent_id(span: ReadableSpan) -> int | None:
    """Return the id of the span's parent."""
    return span.parent.span_id if span.parent else None


def own_id(span: ReadableSpan | trace.Span) -> int:
    """Return the span's id."""
    found = span.get_span_context()
    assert found is not None
    return found.span_id


def attributes(span: ReadableSpan) -> dict[str, object]:
    """Return the attributes, without the prefix."""
    assert all(key.startswith("statebackend.") for key in span.attributes or {})
    return {key.partition(".")[2]: one for key, one in (span.attributes or {}).items()}


def test_it_is_a_driver(traced: Traced) -> None:
    """By the protocol, and in force once configured."""
    assert isinstance(traced.driver, telemetry.Telemetry)
    assert telemetry.current() is traced.driver


def test_the_slow_operations_are_spanned(backend: StateBackend, traced: Traced) -> None:
    """Creating, opening, reading, checking, appending, committing and scanning, with ids."""
    session_id = full(backend)
    with backend.open(session_id), backend.read(session_id):
        pass
    backend.list()
    names = {span.name.removeprefix("statebackend.") for span in traced.spans()}
    assert names == {"create", "open", "read", "integrity_check", "append", "commit", "scan"}
    assert {attributes(span)["session_id"] for span in traced.spans()} == {session_id}


def test_a_batch_is_one_append_and_one_commit(backend: StateBackend, traced: Traced) -> None:
    """With its number of events, the commit within the append."""
    session_id = new(backend, events=3)
    append, commit = traced.one("append"), traced.one("commit")
    assert attributes(append) == {"session_id": session_id, "events": 3}
    assert attributes(commit) == {"session_id": session_id, "appends": 1, "events": 3}
    assert parent_id(commit) == own_id(append)


def test_a_recovery_is_spanned(backend: StateBackend, traced: Traced) -> None:
    """Within the opening that met the damage."""
    session_id = full(backend)
    damage_index(path_of(backend, session_id))
    backend.open(session_id).close()
    recovery = traced.one("recover")
    assert parent_id(recovery) == own_id(traced.one("open"))
    assert attributes(recovery)["session_id"] == session_id
    assert recovery.status.status_code is trace.StatusCode.UNSET


def test_a_migration_is_spanned(backend: StateBackend, tmp_path: Path, traced: Traced) -> None:
    """Within the opening of an old file."""
    backend.directory.mkdir(mode=0o700, parents=True)
    shutil.copy(SAMPLE, backend.directory)
    with program_of(make_chain(tmp_path / "program", 5)):
        backend.open(SAMPLE.stem).close()
    migration = traced.one("migrate")
    assert parent_id(migration) == own_id(traced.one("open"))
    assert attributes(migration)["session_id"] == SAMPLE.stem


def test_no_span_tells_what_is_in_a_session(backend: StateBackend, traced: Traced) -> None:
    """Not in attributes, events or statuses; also where writing and reading fail."""
    with backend.create("secret profile") as session:
        fill(session)
        call(session, b"secret payload", event_id="one")
        with pytest.raises(DuplicateEvent):
            call(session, b"secret other", event_id="one")
        session.set_status("completed")
        with suppress(Exception), session.orm() as orm:
            orm.connection().exec_driver_sql("SELECT missing, ?", ("secret value",))
    damage_page(session.path)
    with pytest.raises(SessionDamaged):
        backend.read(session.session_id)
    assert traced.spans("append")
    told = "".join(span.to_json() for span in traced.spans())
    assert "secret" not in told


def test_an_error_of_a_statement_quotes_no_value() -> None:
    """What SQLAlchemy raises gets into logs and traces of the host."""
    connection = engine.connect_in_memory()
    try:
        with pytest.raises(Exception, match="missing") as caught:
            connection.exec_driver_sql("SELECT missing, ?", ("secret value",))
        assert "secret" not in str(caught.value)
    finally:
        connection.close()


def test_an_error_is_recorded_with_status(backend: StateBackend, traced: Traced) -> None:
    """Type, message and status ERROR, and the error reaches the caller."""
    with backend.create("default") as session, pytest.raises(SessionLocked):
        backend.open(session.session_id)
    span = traced.one("open")
    assert span.status.status_code is trace.StatusCode.ERROR
    (event,) = span.events
    assert event.name == "exception"
    facts = dict(event.attributes or {})
    assert facts["exception.type"] == "statebackend.errors.SessionLocked"
    assert session.session_id in str(facts["exception.message"])
    assert span.status.description == facts["exception.message"]


def test_a_foreign_error_is_recorded_by_its_type_alone(traced: Traced) -> None:
    """Its message may quote anything; an interrupt counts as one too."""
    for error in (ValueError("secret"), KeyboardInterrupt("secret")):
        traced.exporter.clear()
        with pytest.raises(type(error)), traced.driver.span("statebackend.x"):
            raise error
        span = traced.one("x")
        (event,) = span.events
        assert dict(event.attributes or {}) == {
            "exception.type": f"builtins.{type(error).__name__}"
        }
        assert span.status.description == type(error).__name__
    assert trace.get_current_span() is trace.INVALID_SPAN


@pytest.mark.conformance("SB-24")
def test_sb24_a_replay_exports_nothing(backend: StateBackend, traced: Traced) -> None:
    """Not even where the caller has a span open; what the caller does in between is exported."""
    session_id = full(backend)
    with (
        backend.read(session_id) as view,
        backend.create("other") as other,
        traced.tracer.start_as_current_span("host"),
    ):
        traced.exporter.clear()
        assert len(list(replay(view))) == 5
        assert traced.spans() == []
        for _ in replay(view, limit=2):
            call(other)
    assert len(traced.spans("append")) == 2


def test_threads_have_their_own_parents(backend: StateBackend, traced: Traced) -> None:
    """Each append's parent is the span of its own thread, also if another thread commits it."""
    parents: dict[str, int] = {}

    def work(name: str) -> None:
        with traced.tracer.start_as_current_span("host") as span:
            parents[name] = own_id(span)
            for _ in range(10):
                call(session)

    with backend.create("default") as session:
        threads = [threading.Thread(target=work, args=(str(number),)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    appends = traced.spans("append")
    assert sorted(parent_id(span) or 0 for span in appends) == sorted(list(parents.values()) * 10)
    committed = traced.spans("commit")
    assert sum(int(str(attributes(span)["events"])) for span in committed) == 40
    assert {parent_id(span) for span in committed} <= {own_id(span) for span in appends}


def test_tasks_have_their_own_parents(backend: StateBackend, traced: Traced) -> None:
    """Opening in a thread, appending and the commit of a round are below the task's span."""

    async def work() -> None:
        aio = AsyncStateBackend(backend.directory)
        with traced.tracer.start_as_current_span("host"):
            async with aio.create("default") as session:
                await asyncio.gather(*(one(session.append_prompt) for _ in range(3)))

    async def one(append: object) -> None:
        with traced.tracer.start_as_current_span("task"):
            await append(payload=b"x", schema_version="1")  # type: ignore[operator]

    asyncio.run(work())
    (host,) = (span for span in traced.spans() if span.name == "host")
    tasks = {own_id(span) for span in traced.spans() if span.name == "task"}
    assert parent_id(traced.one("create")) == own_id(host)
    appends = traced.spans("append")
    assert {parent_id(span) for span in appends} == tasks
    commit = traced.one("commit")
    assert attributes(commit)["events"] == 3
    assert parent_id(commit) in {own_id(span) for span in appends}


def test_without_a_provider_it_does_nothing(backend: StateBackend) -> None:
    """The API alone, as the extra brings it, drops the spans."""
    configure_telemetry(OpenTelemetry())
    try:
        assert len(full(backend)) == 26
    finally:
        configure_telemetry(None)


def test_without_opentelemetry_the_extra_is_named() -> None:
    """Importing the driver says what to install."""
    said = run_python(
        """
        import sys
        sys.modules["opentelemetry"] = None
        try:
            import statebackend.otel
        except ModuleNotFoundError as error:
            print(error)
        """
    )
    assert "statebackend[otel]" in said
