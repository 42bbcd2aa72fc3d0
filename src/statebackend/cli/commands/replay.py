"""``replay``: render the events of a session with the renderer of each producer version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from statebackend.cli import (
    display,
    exit_codes,
    id_prefixes,
    json_values,
    notices,
    output,
    transcript,
)
from statebackend.cli.options import SessionsCommand, complete_id, json_option

if TYPE_CHECKING:
    from statebackend.replay import Rendered


@click.command("replay", cls=SessionsCommand)
@click.argument("session", metavar="ID", shell_complete=complete_id)
@json_option
def command(*, session: str, as_json: bool) -> None:
    """Render the events of a session in order.

    Telemetry is off. A payload without a renderer for its producer version is printed as JSON
    or text. The exit code is 1 if a renderer failed or the session lost rows to damage. With
    --json: JSON Lines.
    """
    from statebackend import StateBackend
    from statebackend.replay import replay

    backend = StateBackend()
    failed = 0
    with backend.read(id_prefixes.resolve(backend, session)) as view:
        lost, _report = notices.report_losses(backend, view)
        for rendered in replay(view):
            failed += rendered.error is not None
            if as_json:
                output.write_json_line(_to_json(rendered))
            else:
                transcript.write_event(rendered.event, rendered.text)
    if failed:
        output.notice(f"the renderer failed for {display.plural(failed, 'event')}")
    exit_codes.finish(attention=lost or failed > 0)


def _to_json(rendered: Rendered) -> json_values.JsonObject:
    return {
        **json_values.event_header(rendered.event),
        "text": rendered.text,
        "fallback": rendered.fallback,
        "error": rendered.error,
    }
