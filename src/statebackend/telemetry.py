"""The telemetry protocol: spans around slow operations, off unless a driver is configured.

Telemetry is never stored (SB-15), and it is off during a replay (SB-24).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

Attribute = str | int | float | bool


@runtime_checkable
class Telemetry(Protocol):
    """A telemetry driver, for :func:`configure_telemetry`."""

    def span(self, name: str, **attributes: Attribute) -> AbstractContextManager[None]:
        """Return a context manager around the operation *name*; it must not raise."""


class NoTelemetry:
    """The default driver: does nothing."""

    def span(self, name: str, **attributes: Attribute) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return _NOTHING


_NOTHING = nullcontext()
_OFF = NoTelemetry()
_configured: Telemetry = _OFF
_disabled: ContextVar[bool] = ContextVar("statebackend_telemetry_disabled", default=False)


def configure_telemetry(driver: Telemetry | None) -> None:
    """Use *driver* in this process from now on, in all threads; None switches telemetry off."""
    global _configured
    _configured = driver or _OFF


def current() -> Telemetry:
    """Return the driver in use; inside a replay, one that does nothing."""
    return _OFF if _disabled.get() else _configured


def is_off() -> bool:
    """Return whether spans do nothing now; appends check this first, to save the cost of a span."""
    return _configured is _OFF or _disabled.get()


def span(name: str, **attributes: Attribute) -> AbstractContextManager[None]:
    """Return a span of the driver in use."""
    return current().span(name, **attributes)


@contextmanager
def disabled() -> Iterator[None]:
    """Switch telemetry off inside the ``with`` block, in this thread or task only."""
    token = _disabled.set(True)
    try:
        yield
    finally:
        _disabled.reset(token)
