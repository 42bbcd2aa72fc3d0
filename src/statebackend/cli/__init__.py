"""The command line ``statebackend``, and the Click group that a host program mounts.

``statebackend.cli.sessions`` is that group::

    host.add_command(statebackend.cli.sessions)  # agent sessions show ID

Click is loaded on the first use of either name, a command's module when the command is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statebackend.cli.group import SessionsGroup, sessions

__all__ = ["main", "sessions"]


def main() -> None:
    """Run the command line on this process's arguments and exit with its code."""
    from statebackend.cli.group import sessions

    sessions.main(prog_name="statebackend")


def __getattr__(name: str) -> SessionsGroup:
    if name != "sessions":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from statebackend.cli.group import sessions

    return sessions
