"""``import``: options, output and exit code; the importer has its own tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.samples import Cli, parsed

RECORDS: list[dict[str, object]] = [
    {
        "type": "user",
        "uuid": "u1",
        "parentUuid": None,
        "sessionId": "5b1d9c1e-6f0a-4c1d-9a37-2f8f6c0b7d99",
        "version": "2.1.39",
        "timestamp": "2026-01-01T10:00:00.000Z",
        "isSidechain": False,
        "message": {"role": "user", "content": "fix it"},
    },
    {
        "type": "assistant",
        "uuid": "a1",
        "parentUuid": "u1",
        "sessionId": "5b1d9c1e-6f0a-4c1d-9a37-2f8f6c0b7d99",
        "version": "2.1.39",
        "timestamp": "2026-01-01T10:00:05.000Z",
        "isSidechain": False,
        "message": {
            "id": "msg_1",
            "model": "m-large",
            "role": "assistant",
            "content": [{"type": "text", "text": "Done."}],
            "stop_reason": "end_turn",
            "usage": {
                "input_tokens": 1_000_000,
                "output_tokens": 0,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        },
    },
    {"type": "tool-of-tomorrow", "uuid": "x1", "timestamp": "2026-01-01T10:00:06.000Z"},
]


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    """Write a transcript with a prompt, a turn and a record of unknown type."""
    path = tmp_path / "5b1d9c1e-6f0a-4c1d-9a37-2f8f6c0b7d99.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return path


def test_import_as_json(cli: Cli, transcript: Path) -> None:
    """One object for each file, its session id first; skipped records have a reason."""
    result = cli("import", str(transcript), "--json")
    assert result.exit_code == 0
    (file,) = parsed(result)
    assert next(iter(file)) == "session_id"
    assert file["outcome"] == "created"
    assert file["events_added"] == {"message": 2}
    assert [skipped["type"] for skipped in file["skipped"]] == ["tool-of-tomorrow"]
    assert file["records"] == file["recorded"] + sum(each["count"] for each in file["skipped"])
    listed = parsed(cli("list", "--json"))
    assert [row["session_id"] for row in listed] == [file["session_id"]]


def test_import_for_people(cli: Cli, transcript: Path) -> None:
    """The report says what was made of each file, and what was not taken and why."""
    lines = cli("import", str(transcript)).stdout.splitlines()
    assert lines[1].split()[1:5] == ["created", "2", "1", "1"]
    assert "tool-of-tomorrow" in lines[-1]


def test_import_again_adds_nothing(cli: Cli, transcript: Path) -> None:
    """The second time the file is unchanged; with --format as without."""
    cli("import", str(transcript))
    (file,) = parsed(cli("import", str(transcript.parent), "--format", "claude-code", "--json"))
    assert (file["outcome"], file["events_added"]) == ("unchanged", {})


def test_prices(cli: Cli, transcript: Path, tmp_path: Path) -> None:
    """A turn is priced by its model; one without a price is counted."""
    prices = tmp_path / "prices.json"
    rates = {"input": 3, "output": 15, "cache_write": 3.75, "cache_read": 0.3}
    prices.write_text(json.dumps({"m-large": rates}))
    (file,) = parsed(cli("import", str(transcript), "--prices", str(prices), "--json"))
    assert file["unpriced_turns"] == 0
    assert parsed(cli("cost", "--json"))[0]["cost_usd"] == 3.0


@pytest.mark.parametrize("content", ["", "[]", '{"m": 3}', '{"m": {"input": 1}}', '{"m": NaN}'])
def test_wrong_prices(cli: Cli, transcript: Path, tmp_path: Path, content: str) -> None:
    """A file that is not a price table is a usage error, and nothing is imported."""
    prices = tmp_path / "prices.json"
    prices.write_text(content)
    result = cli("import", str(transcript), "--prices", str(prices))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "prices.json" in result.stderr
    assert cli("list", "--json").stdout == "[]\n"


def test_a_refused_file(cli: Cli, tmp_path: Path, transcript: Path) -> None:
    """A file of something else is refused with the reason, exit code 1; the others go in."""
    other = tmp_path / "other.jsonl"
    other.write_text("not a transcript\n")
    result = cli("import", str(other), str(transcript), "--json")
    assert result.exit_code == 1
    outcomes = {Path(file["path"]).name: file for file in parsed(result)}
    assert outcomes["other.jsonl"]["session_id"] is None
    assert outcomes["other.jsonl"]["problem"]
    assert outcomes[transcript.name]["outcome"] == "created"


@pytest.mark.parametrize("arguments", [(), (".", "--format", "codex")])
def test_wrong_usage(cli: Cli, arguments: tuple[str, ...]) -> None:
    """A path must be given, and a format must be one that exists."""
    result = cli("import", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_an_empty_folder(cli: Cli, tmp_path: Path) -> None:
    """A folder without a transcript is refused like a file that is none."""
    folder = tmp_path / "empty"
    folder.mkdir()
    result = cli("import", str(folder))
    assert result.exit_code == 1
    assert "refused" in result.stdout
    assert result.stdout.splitlines()[-1].startswith(f"{folder}: ")


def test_a_line_that_is_not_json_gives_exit_code_1(cli: Cli, transcript: Path) -> None:
    """The session lacks the line, so its file is named."""
    whole = transcript.read_text().splitlines(keepends=True)
    transcript.write_text("".join([whole[0], "this is not json\n", *whole[1:]]))
    result = cli("import", str(transcript))
    assert result.exit_code == 1
    assert f"{transcript}: 1 record " in result.stdout


def test_a_path_that_is_not_there_does_not_stop_the_rest(
    cli: Cli, transcript: Path, tmp_path: Path
) -> None:
    """It is a refused row, and the exit code is 1."""
    result = cli("import", str(tmp_path / "nowhere"), str(transcript), "--json")
    assert result.exit_code == 1
    assert [file["outcome"] for file in parsed(result)] == ["refused", "created"]
