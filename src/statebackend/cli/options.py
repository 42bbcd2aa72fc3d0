"""Options and argument types that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from statebackend.cli import times
from statebackend.cli.exit_codes import DEBUG
from statebackend.values.validation import MAX_INTEGER

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from statebackend import StateBackend

_F = TypeVar("_F", bound=Callable[..., Any])


class SessionsCommand(click.Command):
    """A command of the group; it accepts ``--debug`` as the group does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(debug_option())


def complete_id(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return to the shell the ids that begin with *incomplete*, newest first."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(stem) for stem in open_backend().ids() if stem.startswith(incomplete)]


def open_backend() -> StateBackend:
    """Return the backend on the default folder; it is imported only now, for a fast ``--help``."""
    from statebackend import StateBackend

    return StateBackend()


def debug_option() -> click.Option:
    """Return the option ``--debug``."""
    return click.Option(
        ["--debug"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_remember_debug,
        help="Print the traceback of an error.",
    )


def _remember_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[DEBUG] = True


def json_option(function: _F) -> _F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON.")(function)


ids_argument = click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=complete_id)
optional_id_argument = click.argument(
    "session", metavar="[ID]", required=False, shell_complete=complete_id
)
id_argument = click.argument("session", metavar="ID", shell_complete=complete_id)


def limit_option(description: str, *, default: int | None) -> Callable[[_F], _F]:
    """Return the option ``--limit``."""
    limits = click.IntRange(1, MAX_INTEGER)
    return click.option(
        "--limit", metavar="N", type=limits, default=default, show_default=True, help=description
    )


def time_options(selected: str) -> Callable[[_F], _F]:
    """Return the options ``--since`` and ``--until``; *selected* begins their help."""
    since = click.option(
        "--since",
        metavar="TIME",
        callback=times.parse_since,
        help=f"{selected} at this time or later.",
    )
    until = click.option(
        "--until",
        metavar="TIME",
        callback=times.parse_until,
        help=f"{selected} before this time; a date includes that day.",
    )
    return lambda function: since(until(function))
