"""Options and argument types that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from statebackend.cli.exit_codes import DEBUG

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

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

    from statebackend import StateBackend

    return [CompletionItem(stem) for stem in StateBackend().ids() if stem.startswith(incomplete)]


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
