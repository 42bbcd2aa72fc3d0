"""OpenTelemetry: what this package spans, as spans of a tracer. The extra ``statebackend[otel]``.

::

    configure_telemetry(OpenTelemetry())
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import Token
from types import TracebackType

try:
    from opentelemetry import context, trace
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "statebackend.otel needs OpenTelemetry: install statebackend[otel]", name=error.name
    ) from error

from statebackend.errors import StateBackendError
from statebackend.telemetry import Attribute

_PREFIX = "statebackend."


class OpenTelemetry:
    """A telemetry driver for :func:`statebackend.configure_telemetry`.

    A span is a child of the one that is current where the work was asked for, also when a thread of
    the asyncio face does it. Attributes are counts, ids and paths, as ``statebackend.events``; a
    span that an error leaves has the error's type and status ERROR, and the message if the error is
    one of this package's, whose messages never quote a payload.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        """Use *tracer_provider*, by default the process's."""
        self._tracer = trace.get_tracer("statebackend", tracer_provider=tracer_provider)

    def span(self, name: str, **attributes: Attribute) -> AbstractContextManager[None]:
        """Return a context manager that spans one operation."""
        return _Spanned(self._tracer, name, attributes)


class _Spanned(AbstractContextManager[None]):
    # Not the tracer's own context manager, which records tracebacks: those of SQLAlchemy's errors
    # tell the values of a statement.
    def __init__(self, tracer: trace.Tracer, name: str, attributes: dict[str, Attribute]) -> None:
        self._tracer = tracer
        self._name = name
        self._attributes = attributes
        self._span: trace.Span | None = None
        self._token: Token[context.Context] | None = None

    def __enter__(self) -> None:
        self._span = self._tracer.start_span(
            self._name, attributes={_PREFIX + key: one for key, one in self._attributes.items()}
        )
        self._token = context.attach(trace.set_span_in_context(self._span))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._span is not None
        assert self._token is not None
        context.detach(self._token)
        if error is not None:
            _record(self._span, error)
        self._span.end()


def _record(span: trace.Span, error: BaseException) -> None:
    kind = type(error).__qualname__
    facts = {"exception.type": f"{type(error).__module__}.{kind}"}
    if isinstance(error, StateBackendError):
        facts["exception.message"] = str(error)
    span.add_event("exception", facts)
    span.set_status(trace.Status(trace.StatusCode.ERROR, facts.get("exception.message", kind)))
