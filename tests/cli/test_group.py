"""The group: every command documented, mounted by a host, and every error with its code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from statebackend import StateBackend, errors
from statebackend.cli import commands, exit_codes, output, sessions
from statebackend.cli.group import COMMANDS
from tests.cli import samples
from tests.cli.samples import Cli, parsed


def _commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(sessions)
    for name in sessions.list_commands(context):
        command = sessions.get_command(context, name)
        assert command is not None
        yield name, command


def _sections(root: Path) -> dict[str, str]:
    """Return the parts of docs/cli.md by heading."""
    text = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_commands() -> None:
    """There are exactly these commands, each in its own module."""
    modules = {path.stem for path in Path(commands.__path__[0]).glob("[!_]*.py")}
    assert modules == {"import_" if name == "import" else name for name in COMMANDS}
    assert [name for name, _ in _commands()] == list(COMMANDS)


@pytest.mark.parametrize("name,command", list(_commands()))
def test_everything_is_documented(root: Path, name: str, command: click.Command) -> None:
    """Each command has help, a section with an example, and a line for each of its options."""
    section = _sections(root)[name]
    common = _sections(root)["Rules for every command"]
    assert command.help
    assert f"$ statebackend {name}" in section
    below = command.commands.values() if isinstance(command, click.Group) else ()
    assert all(one.help for one in below)
    for option in [*command.params, *(option for one in below for option in one.params)]:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert f"`{option.opts[0]}" in (
                common if option.opts[0] in ("--debug", "--json") else section
            )


def test_the_exit_codes_are_documented(root: Path) -> None:
    """Each code that the command line gives is in the table."""
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", _text(root), re.MULTILINE)]
    assert codes == [
        0,
        exit_codes.ATTENTION,
        exit_codes.USAGE,
        exit_codes.NOT_FOUND,
        exit_codes.REFUSED,
        exit_codes.DAMAGED,
        exit_codes.FAULT,
        exit_codes.INTERRUPTED,
    ]


def _text(root: Path) -> str:
    return (root / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "kind,code",
    [
        (errors.InvalidValue, 2),
        (errors.SessionNotFound, 3),
        (errors.SessionLocked, 4),
        (errors.SchemaTooNew, 4),
        (errors.SchemaOutdated, 4),
        (errors.InvalidTransition, 4),
        (errors.SessionExists, 4),
        (errors.StorageBusy, 4),
        (errors.SessionForked, 4),
        (errors.SessionDamaged, 5),
        (errors.SessionUnreadable, 5),
        (errors.StorageError, 5),
        (errors.StorageFull, 5),
        (errors.MigrationFailed, 5),
        (PermissionError, 5),
        (ValueError, 70),
    ],
)
def test_every_error_has_its_code(kind: type[Exception], code: int) -> None:
    """The exit code follows from the class of the error alone."""
    assert exit_codes.exit_code(kind.__new__(kind)) == code


def _mounted(*arguments: str) -> tuple[int, str, str]:
    host = click.Group("agent")
    host.add_command(sessions)
    result = CliRunner().invoke(host, ["sessions", *arguments], prog_name="agent")
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--json"],
        ["show", "01KX"],
        ["show", "01KX", "--debug"],
        ["--bogus"],
        ["bogus"],
        ["list", "--bogus"],
        ["show"],
    ],
)
def test_a_host_sees_the_same(cli: Cli, state_home: Path, arguments: list[str]) -> None:
    """Mounted by a host the group writes the same and ends with the same codes."""
    alone = cli(*arguments)
    code, shown, said = _mounted(*arguments)
    assert (code, shown) == (alone.exit_code, alone.stdout)
    first = said.partition("\n")[0].replace("agent sessions", "statebackend")
    assert first == alone.stderr.partition("\n")[0]


def test_a_host_outside_standalone_mode(backend: StateBackend) -> None:
    """A host that calls the group itself gets the exit code back."""
    samples.damage(backend, samples.empty(backend))
    assert sessions.main(["list", "--json"], standalone_mode=False) == 1
    assert sessions.main(["show", "01KX"], standalone_mode=False) == 3


def test_help_without_arguments(cli: Cli) -> None:
    """Without a command the help names them all."""
    result = cli()
    assert result.exit_code == 2
    assert all(f"\n  {name} " in result.stderr for name in COMMANDS)


def test_a_fault_of_the_program(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error is one line too, with exit code 70."""

    def broken(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("a\x1bb")

    monkeypatch.setattr(StateBackend, "list", broken)
    result = cli("list")
    assert (result.exit_code, result.stdout) == (70, "")
    assert result.stderr.startswith("statebackend: unexpected ZeroDivisionError: a\\x1bb (")
    assert result.stderr.count("\n") == 1


def test_a_folder_that_is_none(cli: Cli, state_home: Path) -> None:
    """What the system refuses is one line that names the path, for every command."""
    state_home.mkdir()
    (state_home / "agent").touch()
    for arguments in (["list"], ["show", "01K9"], ["tree"], ["doctor"]):
        result = cli(*arguments)
        assert (result.exit_code, result.stdout) == (5, "")
        assert "agent/sessions" in result.stderr
        assert result.stderr.count("\n") == 1


def test_an_interrupt(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a command with code 130 and without a word."""

    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(StateBackend, "list", interrupted)
    result = cli("list")
    assert (result.exit_code, result.output) == (130, "")


def test_infinity_is_null(cli: Cli, backend: StateBackend) -> None:
    """JSON has no infinity, which another program may have stored."""
    session_id = samples.full(backend)
    samples.rewrite(backend, session_id, "UPDATE cost_ledger SET cost_usd = 9e999")
    assert parsed(cli("list", "--json"))[0]["cost_usd"] is None
    assert "inf" in cli("list").stdout


def test_lone_surrogates_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    """What no encoding has a form for stays an escape in JSON."""
    output.write_json_line({"a": "\ud83d\x7f\u202e"})
    assert capsys.readouterr().out == '{"a": "\\ud83d\\u007f\\u202e"}\n'
