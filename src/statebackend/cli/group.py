"""The Click group: commands by name, loaded when used, and one way to fail.

A host program may mount the group, so everything that decides how a command ends is here and in
``endings``, and nothing in ``main``.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib import import_module
from typing import Any, cast

import click

from statebackend.cli.endings import guarded
from statebackend.cli.notices import warnings_shown
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
    "bench",
)
"""The commands in the order of the help; each is the module of its name in ``commands``."""


class SessionsGroup(click.Group):
    """A group that loads a command's module on first use and guards every call."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, importing none."""
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command named *cmd_name*, or return None if there is none."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = import_module(f"statebackend.cli.commands.{_module_name(cmd_name)}")
        return cast("click.Command", module.command)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the group's own options; a mistake there ends like any other."""
        with guarded(parent.meta if parent else {}):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> None:
        """Parse and run the command; every error becomes one line and an exit code."""
        meta: MutableMapping[str, Any] = ctx.meta
        with guarded(meta), warnings_shown():
            super().invoke(ctx)


def _module_name(command: str) -> str:
    """Return the module of *command*; ``import`` is a word that no module can be called by."""
    return "import_" if command == "import" else command


@click.group(cls=SessionsGroup, name="sessions", params=[debug_option()])
def sessions() -> None:
    """Look at recorded agent sessions: list, show, cost and replay them.

    The sessions are the files in $XDG_STATE_HOME/agent/sessions.
    """
