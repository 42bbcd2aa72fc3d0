"""Spans of this package for OpenTelemetry; needs the extra ``statebackend[otel]``.

::

    configure_telemetry(OpenTelemetry())
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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

    A span's parent is the span that is current in the caller, also when a thread does the work for
    asyncio. Attributes are counts, ids and paths, such as ``statebackend.events``. After an error
    the span has status ERROR and the error's type; the message is added for this package's own
    errors only, which never quote a payload.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        """Use *tracer_provider* (None: the global one of the process)."""
        self._tracer = trace.get_tracer("statebackend", tracer_provider=tracer_provider)

    @contextmanager
    def span(self, name: str, **attributes: Attribute) -> Iterator[None]:
        """Return a context manager that records the operation *name* as a span."""
        # The tracer's own context manager would record tracebacks, and those of SQLAlchemy's
        # errors contain the values of a statement.
        names = {_PREFIX + key: value for key, value in attributes.items()}
        span = self._tracer.start_span(name, attributes=names)
        token = context.attach(trace.set_span_in_context(span))
        try:
            yield
        except BaseException as error:
            _record_error(span, error)
            raise
        finally:
            context.detach(token)
            span.end()


def _record_error(span: trace.Span, error: BaseException) -> None:
    kind = type(error).__qualname__
    facts = {"exception.type": f"{type(error).__module__}.{kind}"}
    if isinstance(error, StateBackendError):
        facts["exception.message"] = str(error)
    span.add_event("exception", facts)
    span.set_status(trace.Status(trace.StatusCode.ERROR, facts.get("exception.message", kind)))
