"""``bench scan``: made sessions, measured, and gone again."""

from __future__ import annotations

from pathlib import Path

import pytest

from statebackend import BadSession, StateBackend
from statebackend.testing import many
from tests.cli.samples import Cli, full, parsed


def test_a_scan_is_measured(
    cli: Cli, backend: StateBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question with how many sessions its answer has; nothing is left, nothing else read."""
    full(backend)
    cache, base = tmp_path / "cache", tmp_path / "base"
    base.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    before = sorted(backend.directory.iterdir())
    result = cli("bench", "scan", "--sessions", "25", "--in", str(base), "--json")
    answer = parsed(result)
    assert answer["sessions"] == 25
    assert {one["question"]: one["sessions"] for one in answer["measures"]} == {
        "names and file times": 25,
        "every session, sqlite3 alone": 25,
        "newest 20, sqlite3 alone": 20,
        "newest 20": 20,
        "every session, from the files": 25,
        "every session, making the catalogue": 25,
        "every session, from the catalogue": 25,
        "one tree, from the catalogue": 1,
    }
    assert all(one["seconds"] > 0 for one in answer["measures"])
    assert list(base.iterdir()) == []
    assert not cache.exists()
    assert sorted(backend.directory.iterdir()) == before


def test_a_table_of_it(cli: Cli) -> None:
    """For a person, with the time of each session."""
    result = cli("bench", "scan", "--sessions", "3")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["QUESTION", "SESSIONS", "MS", "MS", "EACH"]
    assert len(lines) == 9


@pytest.mark.parametrize(
    "wrong", [["--sessions", "0"], ["--sessions", "many"], ["--in", "/nowhere/at/all"]]
)
def test_wrong_numbers_and_folders(cli: Cli, wrong: list[str]) -> None:
    """Said before anything is made."""
    assert cli("bench", "scan", *wrong).exit_code == 2


def test_stamped_sessions_are_sessions(tmp_path: Path) -> None:
    """They open, and have the events, the id and the start that they should have."""
    templates = [many.template(tmp_path / "templates", events) for events in (1, 4)]
    paths = list(many.stamp(tmp_path / "sessions", templates, 5))
    backend = StateBackend(tmp_path / "sessions")
    found = backend.list()
    assert [path.stem for path in paths[::-1]] == list(backend.ids())
    assert not any(isinstance(one, BadSession) for one in found)
    for number, path in enumerate(paths):
        with backend.read(path.stem) as view:
            assert view.info.started_at == many.START + number * many.APART
            assert view.counts().events == (1, 4)[number % 2]
            assert view.info.status == "completed"
