"""``replay``: render the events of a session with the renderer of each producer version."""

from __future__ import annotations

import click

from statebackend.cli import display, exit_codes, id_prefixes, json_values, notices, output
from statebackend.cli.options import SessionsCommand, id_argument, json_option, open_backend
from statebackend.cli.transcript import write_event


@click.command("replay", cls=SessionsCommand)
@id_argument
@json_option
def command(*, session: str, as_json: bool) -> None:
    """Render the events of a session in order.

    Telemetry is off. A payload without a renderer for its producer version is printed as JSON
    or text. The exit code is 1 if a renderer failed or the session lost rows to damage. With
    --json: JSON Lines.
    """
    from statebackend.replay import replay

    backend = open_backend()
    failed = 0
    with backend.read(id_prefixes.resolve(backend, session)) as view:
        lost, _report = notices.report_losses(backend, view)
        for rendered in replay(view):
            failed += rendered.error is not None
            if as_json:
                header = json_values.event_header(rendered.event)
                texts = {name: getattr(rendered, name) for name in ("text", "fallback", "error")}
                output.write_json_line(header | texts)
            else:
                write_event(rendered.event, rendered.text)
    if failed:
        output.notice(f"the renderer failed for {display.plural(failed, 'event')}")
    exit_codes.finish(attention=lost or failed > 0)
