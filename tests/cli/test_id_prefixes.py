"""Shortened ids."""

from __future__ import annotations

import pytest

from statebackend import StateBackend
from tests.cli import samples
from tests.cli.samples import Cli, parsed

ONE = "01K9AAAAAAAAAAAAAAAAAAAAA1"
TWO = "01K9AAAAAAAAAAAAAAAAAAAAA2"
OTHER = "01K8BBBBBBBBBBBBBBBBBBBBB1"


@pytest.fixture(autouse=True)
def _three_sessions(backend: StateBackend) -> None:
    for session_id in (ONE, TWO, OTHER):
        samples.empty(backend, session_id=session_id)


@pytest.mark.parametrize("text,meant", [(ONE, ONE), ("01K8", OTHER), ("A2", TWO), ("BB1", OTHER)])
def test_any_unique_beginning_or_end(cli: Cli, text: str, meant: str) -> None:
    """A part of an id that fits one session means it."""
    assert parsed(cli("show", text, "--json"))["session_id"] == meant


@pytest.mark.parametrize("text,fits", [("01K9", (TWO, ONE)), ("1", (ONE, OTHER))])
def test_an_ambiguous_part_lists_what_it_fits(cli: Cli, text: str, fits: tuple[str, ...]) -> None:
    """Several fitting sessions are wrong usage, and are named."""
    result = cli("show", text)
    assert result.exit_code == 2
    assert ", ".join(fits) in result.stderr


@pytest.mark.parametrize("text", ["01KX", "01K9AAAAAAAAAAAAAAAAAAAAA3", "../x", "what\x1b[2J"])
def test_no_such_session(cli: Cli, text: str) -> None:
    """A text that fits no session is exit code 3 in one line, safely shown."""
    result = cli("show", text)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("statebackend: no session ")
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("text", [ONE.lower(), "01k8", "01k9cccccccccccccccccccccc"])
def test_lower_case_is_refused(cli: Cli, text: str) -> None:
    """An id has one spelling; the error names it (field report 67)."""
    result = cli("show", text)
    assert result.exit_code == 2
    assert f"write {text.upper()} instead" in result.stderr


@pytest.mark.parametrize("folder", ["", "somewhere/"])
def test_a_file_name_is_refused(cli: Cli, folder: str) -> None:
    """The error names the id to give."""
    result = cli("verify", f"{folder}{ONE}.sqlite")
    assert result.exit_code == 2
    assert result.stderr.endswith(f": {ONE}\n")
    assert cli("verify", ".sqlite").exit_code == 3


def test_an_empty_id_fits_nothing(cli: Cli) -> None:
    """An empty text, of an unset variable, is not a part of every id."""
    assert cli("show", "").exit_code == 2


@pytest.mark.parametrize("command", ["show", "replay", "tree", "cost", "plan", "producers"])
def test_every_command_ends_alike(cli: Cli, command: str) -> None:
    """No such session is exit code 3 for every command that takes an id."""
    assert cli(command, "01K9AAAAAAAAAAAAAAAAAAAAA3").exit_code == 3
    assert cli(command, "01KX").exit_code == 3
    assert cli(command, "01K9").exit_code == 2
