"""The Click group: it loads each command on first use and turns errors into exit codes.

A host program may mount the group, so exit codes are decided here and in ``exit_codes``, not in
``main``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import click

from statebackend.cli.exit_codes import convert_errors
from statebackend.cli.notices import write_warnings
from statebackend.cli.options import debug_option

COMMANDS = (
    "list",
    "show",
    "tree",
    "cost",
    "plan",
    "producers",
    "search",
    "replay",
    "migrate",
    "verify",
    "recover",
    "reap",
    "import",
    "doctor",
)
"""The commands in the order of the help; each has a module in ``commands``."""


class SessionsGroup(click.Group):
    """A group that loads a command's module on first use and gives every error its exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands without importing them."""
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command named *cmd_name*, or return None if there is none."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        name = "import_" if cmd_name == "import" else cmd_name  # ``import`` is a keyword
        module = import_module(f"statebackend.cli.commands.{name}")
        return cast("click.Command", module.command)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the group's own options; a wrong one is a usage error like any other."""
        with convert_errors(parent.meta if parent else {}):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> None:
        """Parse and run the command; an error becomes one line on stderr and an exit code."""
        with convert_errors(ctx.meta), write_warnings():
            super().invoke(ctx)


@click.group(cls=SessionsGroup, name="sessions", params=[debug_option()])
def sessions() -> None:
    """List, show, check and maintain recorded agent sessions.

    Sessions are the files in $XDG_STATE_HOME/agent/sessions.
    """
