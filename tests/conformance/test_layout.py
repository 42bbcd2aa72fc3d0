"""SB-01 to SB-03: where sessions are, what they are called, and that nothing changes it."""

from __future__ import annotations

import ast
import inspect
import os
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from statebackend import BadSession, InvalidValue, StateBackend
from tests.session_files import START, listing, new, path_of

BAD_IDS = [
    "",
    "x",
    "../../01KJMG7C00000000000000000Z",
    "/tmp/01KJMG7C00000000000000000Z",  # noqa: S108 - an id, not a file
    "01kjmg7c00000000000000000z",
    "01KJMG7C00000000000000000ZZ",
    "01KJMG7C00000000000000000Z\n",
    "01KJMG7C0000000000000000I0",
    "81KJMG7C00000000000000000Z",
    "01KJMG7C00000000000000000\0",
    "０1KJMG7C00000000000000000Z",
]


@pytest.mark.conformance("SB-01")
def test_sb01_one_file_under_the_state_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session is the file <session_id>.sqlite below $XDG_STATE_HOME/agent/sessions."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    session_id = new(StateBackend())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [tmp_path / "agent" / "sessions" / f"{session_id}.sqlite"]


@pytest.mark.conformance("SB-01")
@pytest.mark.parametrize("value", [None, "", "relative/state", "./state"])
def test_sb01_unusable_state_home_falls_back(
    value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unset, empty and relative values of XDG_STATE_HOME all mean ~/.local/state."""
    monkeypatch.setenv("HOME", str(tmp_path))
    if value is None:
        monkeypatch.delenv("XDG_STATE_HOME")
    else:
        monkeypatch.setenv("XDG_STATE_HOME", value)
    assert StateBackend().directory == tmp_path / ".local" / "state" / "agent" / "sessions"


@pytest.mark.conformance("SB-01")
def test_sb01_the_path_is_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later change of the working directory or of the environment moves nothing."""
    monkeypatch.chdir(tmp_path)
    backend = StateBackend("sessions")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    session_id = new(backend)
    assert (tmp_path / "sessions" / f"{session_id}.sqlite").is_file()


@pytest.mark.conformance("SB-02")
def test_sb02_names_sort_by_time(backend: StateBackend) -> None:
    """A plain listing of the folder is in the order of the sessions' times."""
    moments = [START + timedelta(days=day) for day in (3, 1, 4, 0, 2)]
    by_time = {moment: new(backend, started_at=moment) for moment in moments}
    names = [name for name in listing(backend.directory) if name.endswith(".sqlite")]
    assert names == [f"{by_time[moment]}.sqlite" for moment in sorted(moments)]


@pytest.mark.conformance("SB-02")
def test_sb02_ids_of_one_millisecond_ascend(backend: StateBackend) -> None:
    """Sessions that start within one millisecond sort in the order of their making."""
    made = [new(backend, started_at=START) for _ in range(20)]
    assert made == sorted(made)
    assert len({one[:10] for one in made}) == 1


@pytest.mark.conformance("SB-02")
@pytest.mark.parametrize("session_id", BAD_IDS)
def test_sb02_a_malformed_id_is_refused_everywhere(backend: StateBackend, session_id: str) -> None:
    """No method takes an id that is not a canonical ULID, so none can leave the folder."""
    for method in (backend.open, backend.read, backend.cost, backend.tree, backend.children):
        with pytest.raises(InvalidValue):
            method(session_id)
    with pytest.raises(InvalidValue):
        backend.copy(session_id, backend.directory / "copy")
    with pytest.raises(InvalidValue):
        backend.create("default", session_id=session_id)
    with pytest.raises(InvalidValue):
        backend.create("default", parent_session_id=session_id)
    assert not backend.directory.exists()


@pytest.mark.conformance("SB-02")
def test_sb02_a_lower_case_file_name_is_flagged(backend: StateBackend) -> None:
    """A file whose name is not an id is a flagged row, not a session."""
    path = path_of(backend, new(backend))
    path.rename(path.with_name(path.name.lower()))
    (found,) = backend.list()
    assert isinstance(found, BadSession)
    assert "not a session id" in found.problem


@pytest.mark.conformance("SB-02")
def test_sb02_a_file_under_another_id_is_flagged_the_same_everywhere(backend: StateBackend) -> None:
    """A file that holds another session than its name says is refused by list and by open."""
    path = path_of(backend, new(backend))
    other = path.with_name("01KJMG7C00000000000000000Z.sqlite")
    path.rename(other)
    (found,) = backend.list()
    assert isinstance(found, BadSession)
    for method in (backend.open, backend.read, backend.cost):
        with pytest.raises(type(found.error)):
            method(other.stem)


@pytest.mark.conformance("SB-03")
def test_sb03_no_parameter_changes_how_sessions_are_stored() -> None:
    """Besides it, only whether the derived catalogue may be used: not how anything is stored."""
    assert list(inspect.signature(StateBackend).parameters) == ["directory", "catalogue"]


@pytest.mark.conformance("SB-03")
def test_sb03_no_entry_point_and_no_setting_reaches_the_store(root: Path) -> None:
    """The store loads no plug-ins and reads no environment variable by itself."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert "statebackend.storage" not in project.get("entry-points", {})
    for path in sorted((root / "src" / "statebackend").glob("*.py")):
        names = {
            node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            for node in ast.walk(ast.parse(path.read_text()))
        }
        assert not names & {"environ", "getenv", "entry_points"}, path.name


@pytest.mark.conformance("SB-03")
def test_sb03_two_stores_on_one_folder_are_the_same_store(backend: StateBackend) -> None:
    """What one object writes, another one on the same folder reads: there is no private state."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    session_id = new(backend, events=2, started_at=moment)
    with StateBackend(os.fspath(backend.directory)).read(session_id) as view:
        assert view.counts().events == 2
