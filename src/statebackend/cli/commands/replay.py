"""``replay``: the events of a session, each through the renderer of its producer version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from statebackend.cli import endings, forms, identify, notices, output, texts, transcript
from statebackend.cli.options import SessionsCommand, complete_id, json_option

if TYPE_CHECKING:
    from statebackend.replay import Rendered


@click.command("replay", cls=SessionsCommand)
@click.argument("session", metavar="ID", shell_complete=complete_id)
@json_option
def command(*, session: str, as_json: bool) -> None:
    """Render the events of a session in order, with telemetry off.

    Where there is no renderer for a producer version the payload is shown as it is. If a renderer
    failed, or the session lost rows to damage, that is said and the exit code is 1. With --json,
    JSON Lines.
    """
    from statebackend import StateBackend
    from statebackend.replay import replay

    backend = StateBackend()
    failed = 0
    with backend.read(identify.session_id(backend, session)) as view:
        lost, _report = notices.lost(view.path)
        for rendered in replay(view):
            failed += rendered.error is not None
            if as_json:
                output.write_json_line(_form(rendered))
            else:
                transcript.write_event(rendered.event, rendered.text)
    if failed:
        output.notice(f"the renderer failed for {texts.plural(failed, 'event')}")
    endings.end(found=lost or failed > 0)


def _form(rendered: Rendered) -> forms.Form:
    return {
        **forms.header(rendered.event),
        "text": rendered.text,
        "fallback": rendered.fallback,
        "error": rendered.error,
    }
