"""Exit codes: which error gives which, and the line on stderr that goes with it."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click
from click.exceptions import Exit

from statebackend import errors
from statebackend.cli import escape, output

DEBUG = "statebackend.debug"
"""Key in the Click context's ``meta``: set when the user asked for tracebacks."""

ATTENTION = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
DAMAGED = 5
FAULT = 70
INTERRUPTED = 130

_REFUSALS = (
    errors.SessionLocked,
    errors.SessionExists,
    errors.SessionForked,
    errors.SchemaTooNew,
    errors.SchemaOutdated,
    errors.InvalidTransition,
    errors.StorageBusy,
)
_CODES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], int], ...] = (
    (errors.InvalidValue, USAGE),
    (errors.SessionNotFound, NOT_FOUND),
    (_REFUSALS, REFUSED),
    ((errors.StateBackendError, output.ResultLost, OSError), DAMAGED),
)
# Click 8.1 has no such class: it shows the help without raising.
_HELP_REQUESTED: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


def exit_code(error: Exception) -> int:
    """Return the exit code for *error*; 70 means a bug in this program."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), FAULT)


def finish(*, attention: bool) -> None:
    """End the command with exit code 1 if the result needs a person's *attention*."""
    if attention:
        raise Exit(ATTENTION)


def finish_with_errors(errors: Sequence[Exception], *, single: bool) -> None:
    """End with the error's own code if the user named a *single* session, else with 1 for any."""
    if single and errors:
        raise errors[0]
    finish(attention=bool(errors))


@contextmanager
def convert_errors(meta: MutableMapping[str, Any]) -> Iterator[None]:
    """Turn every error inside into one line on stderr and an exit code.

    Stdout is flushed first, so that no output is lost when the process ends. When the reader of
    stdout has gone, the command ends quietly with exit code 0.
    """
    try:
        try:
            yield
        finally:
            output.flush()
    except (Exit, _HELP_REQUESTED):
        raise
    except (output.ReaderGone, BrokenPipeError):  # BrokenPipeError: Click wrote the help
        output.abandon_stdout()
        raise Exit(0) from None
    except (KeyboardInterrupt, click.Abort):
        raise Exit(INTERRUPTED) from None
    except click.ClickException as error:
        _exit_with_line(_usage_line(error), error.exit_code, error, meta)
    except Exception as error:  # noqa: BLE001 - outermost frame: every error ends the command
        _exit_with_line(_error_line(error), exit_code(error), error, meta)


def _usage_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{message} (see '{context.command_path} --help')" if context else message


def _error_line(error: Exception) -> str:
    if isinstance(error, errors.SessionDamaged):
        session_id = error.path.stem
        return f"{error}; try 'show {session_id} --partial' and 'recover {session_id}'"
    if exit_code(error) != FAULT:
        return str(error)
    return f"unexpected {type(error).__name__}: {error} (--debug adds the traceback; please report)"


def _exit_with_line(
    line: str, code: int, error: Exception, meta: MutableMapping[str, Any]
) -> NoReturn:
    output.notice(line)
    if meta.get(DEBUG):
        import traceback

        output.write_stderr(escape.text("".join(traceback.format_exception(error))))
    raise Exit(code) from None
