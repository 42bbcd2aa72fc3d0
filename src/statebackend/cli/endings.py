"""How a command ends when it does not simply end: one line on stderr and an exit code."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click
from click.exceptions import Exit

from statebackend import errors
from statebackend.cli import escape, output
from statebackend.files.paths import SUFFIX

DEBUG = "statebackend.debug"
"""The key in the Click context's ``meta`` that asks for tracebacks."""

FOUND = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
DAMAGED = 5
FAULT = 70
INTERRUPTED = 130

_CODES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((errors.InvalidValue,), USAGE),
    ((errors.SessionNotFound,), NOT_FOUND),
    (
        (
            errors.SessionLocked,
            errors.SessionExists,
            errors.SessionForked,
            errors.SchemaTooNew,
            errors.SchemaOutdated,
            errors.InvalidTransition,
            errors.StorageBusy,
        ),
        REFUSED,
    ),
    ((errors.StateBackendError, output.ResultLost, OSError), DAMAGED),
)
# Absent from Click 8.1, which shows the help without raising.
_HELP_WANTED: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


def exit_code(error: Exception) -> int:
    """Return the exit code of *error*; 70 is a fault of the program itself."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), FAULT)


def end(*, found: bool) -> None:
    """End the command with exit code 1 if something was *found* that needs a person."""
    if found:
        raise Exit(FOUND)


def end_with(errors: Sequence[Exception], *, alone: bool) -> None:
    """End with the error's own code if one session was asked for *alone*, else with 1 for any."""
    if alone and errors:
        raise errors[0]
    end(found=bool(errors))


@contextmanager
def guarded(meta: MutableMapping[str, Any]) -> Iterator[None]:
    """Turn every error inside into one line on stderr and an exit code.

    What was written to stdout is flushed first, so that nothing is cut when the process ends. A
    reader of stdout that went away ends the command quietly and is no error.
    """
    try:
        with _flushed():
            yield
    except (Exit, _HELP_WANTED):
        raise
    except (output.ReaderGone, BrokenPipeError):  # the latter from Click, as it writes a help text
        output.abandon_stdout()
        raise Exit(0) from None
    except (KeyboardInterrupt, click.Abort):
        raise Exit(INTERRUPTED) from None
    except click.ClickException as error:
        _fail(_usage_line(error), error.exit_code, error, meta)
    except Exception as error:  # noqa: BLE001 - the outermost frame: what comes here ends the command
        _fail(_line(error), exit_code(error), error, meta)


@contextmanager
def _flushed() -> Iterator[None]:
    try:
        yield
    finally:
        output.flush()


def _usage_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{message} (see '{context.command_path} --help')" if context else message


def _line(error: Exception) -> str:
    if isinstance(error, errors.SessionDamaged):
        name = error.path.name.removesuffix(SUFFIX)
        return f"{error}; try 'show {name} --partial' and 'recover {name}'"
    if exit_code(error) != FAULT:
        return str(error)
    return f"unexpected {type(error).__name__}: {error} (--debug adds the traceback; please report)"


def _fail(line: str, code: int, error: Exception, meta: MutableMapping[str, Any]) -> NoReturn:
    output.notice(line)
    if meta.get(DEBUG):
        import traceback

        output.write_stderr(escape.text("".join(traceback.format_exception(error))))
    raise Exit(code) from None
