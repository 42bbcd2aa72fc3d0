"""``doctor``: its findings, and that it neither changes nor opens a session."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from statebackend import StateBackend
from statebackend.cli import folder_checks
from statebackend.cli.commands import doctor
from tests.cli import samples
from tests.cli.samples import Cli, parsed

BEFORE = "01K9AAAAAAAAAAAAAAAAAAAAAA"


def _problems(form: dict[str, Any]) -> list[str]:
    return [finding["what"] for finding in form["findings"] if finding["severity"] == "problem"]


def test_a_store_that_does_not_exist_yet(cli: Cli, state_home: Path) -> None:
    """Before the first session there is no folder, and doctor creates none."""
    result = cli("doctor", "--json")
    form = parsed(result)
    assert result.exit_code == 0
    assert form["folder"]["exists"] is False
    assert form["sessions"] == {"total": 0, "by_status": {}, "live": 0, "stale": [], "bad": []}
    assert not state_home.exists()
    assert "(does not exist yet)" in cli("doctor").stdout


def test_a_healthy_store(cli: Cli, backend: StateBackend) -> None:
    """It has versions, folder and counts, and no problem."""
    samples.full(backend)
    result = cli("doctor", "--json")
    form = parsed(result)
    assert (result.exit_code, _problems(form)) == (0, [])
    assert form["versions"]["sqlite"] == sqlite3.sqlite_version
    assert form["versions"].keys() == {"python", "sqlite", "statebackend", "sqlalchemy", "alembic"}
    assert (form["folder"]["path"], form["folder"]["mode"]) == (str(backend.directory), "0700")
    assert form["sessions"]["by_status"] == {"completed": 1}


@pytest.mark.parametrize("version,warned", [((3, 51, 2), True), ((3, 51, 3), False)])
def test_an_sqlite_with_a_known_fault(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], *, warned: bool
) -> None:
    """Below 3.51.3 there is a warning, and the exit code stays 0 (field report 9)."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    monkeypatch.setattr(sqlite3, "sqlite_version", ".".join(map(str, version)))
    result = cli("doctor", "--json")
    assert result.exit_code == 0
    findings = [(each["severity"], each["what"]) for each in parsed(result)["findings"]]
    assert findings == [("warning", "sqlite")] * warned


def test_every_kind_of_problem_in_the_folder(cli: Cli, backend: StateBackend) -> None:
    """Bad files, stale sessions, originals, unfinished files and orphans are all problems."""
    stale, damaged, _good = samples.series(backend, 3)
    samples.damage(backend, damaged)
    names = [
        f"{BEFORE}.sqlite.corrupt",
        f"{BEFORE}.sqlite.corrupt.1",
        f"{BEFORE}.sqlite.creating",
        f"{BEFORE}.sqlite.recovering-wal",
        "01K9BBBBBBBBBBBBBBBBBBBBBB.sqlite-wal",
    ]
    for name in names:
        path = backend.directory / name
        path.touch()
        path.chmod(0o600)
    result = cli("doctor", "--json")
    form = parsed(result)
    assert result.exit_code == 1
    assert form["originals"] == names[:2]
    assert form["unfinished"] == names[2:4]
    assert form["orphans"] == names[4:]
    kinds = {"session", "stale", "original", "unfinished", "orphan"}
    assert set(_problems(form)) == kinds
    assert stale in form["sessions"]["stale"]
    assert damaged in [bad["session_id"] for bad in form["sessions"]["bad"]]
    text = cli("doctor").stdout
    assert all(name in text for name in [*names, stale, damaged])


def test_rights(cli: Cli, backend: StateBackend) -> None:
    """A folder or a file that other users can open is a problem."""
    session_id = samples.full(backend)
    samples.path_of(backend, session_id).chmod(0o644)
    backend.directory.chmod(0o755)
    form = parsed(cli("doctor", "--json"))
    assert form["open_to_others"] == [f"{session_id}.sqlite"]
    assert form["folder"]["mode"] == "0755"
    assert _problems(form) == ["folder_rights", "rights"]


def test_a_live_session_is_not_a_problem(cli: Cli, backend: StateBackend) -> None:
    """A running session with a writer is only counted."""
    with backend.create(profile="p"):
        form = parsed(cli("doctor", "--json"))
    assert (form["sessions"]["live"], form["sessions"]["stale"]) == (1, [])
    assert _problems(form) == []


def test_it_changes_nothing(cli: Cli, backend: StateBackend) -> None:
    """Names, sizes and times of all files are unchanged."""
    for session_id in samples.series(backend, 3)[:1]:
        samples.damage(backend, session_id)

    def state() -> list[tuple[str, int, int]]:
        entries = sorted(os.scandir(backend.directory), key=lambda entry: entry.name)
        return [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in entries]

    before = state()
    cli("doctor")
    assert state() == before


def test_it_leaves_open_sessions_alone(cli: Cli, backend: StateBackend) -> None:
    """It opens no file of a session that this process has open: that would drop its locks."""
    opened: list[str] = []
    watching = False
    samples.full(backend)
    sys.addaudithook(
        lambda event, arguments: (
            opened.append(str(arguments[0])) if watching and event == "open" else None
        )
    )
    with backend.create(profile="p") as session:
        watching = True
        cli("doctor")
        watching = False
    assert opened
    assert not [name for name in opened if f"{session.session_id}.sqlite" in name]


def test_long_lists_are_cut_for_people(cli: Cli, backend: StateBackend) -> None:
    """Of many names only the first are shown, and the number of the others."""
    samples.series(backend, 25)
    assert "and 5 more: see --json" in cli("doctor").stdout


MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:5 / /srv rw - ext4 /dev/sdb1 rw
23 22 0:6 / /srv/my\\040home rw shared:2 - nfs4 server:/home rw
24 21 0:7 / /srv rw - xfs /dev/sdc1 rw
"""


@pytest.mark.parametrize(
    "path,kind", [("/srv/my home/x", "nfs4"), ("/srv/other", "xfs"), ("/srvx", "ext4")]
)
def test_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, kind: str
) -> None:
    """The nearest mount point tells the type; a later mount hides an earlier one."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(folder_checks, "_MOUNTS", mounts)
    assert folder_checks.file_system(Path(path)) == kind


def test_an_unknown_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a list of mounts the type is None."""
    monkeypatch.setattr(folder_checks, "_MOUNTS", tmp_path / "absent")
    assert folder_checks.file_system(tmp_path) is None


@pytest.mark.parametrize(
    "kind,remote",
    [("nfs4", True), ("cifs", True), ("fuse.sshfs", True), ("ext4", False), ("overlay", False)],
)
def test_a_network_file_system_is_a_problem(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, kind: str, *, remote: bool
) -> None:
    """A file system that other machines share cannot hold sessions."""
    monkeypatch.setattr(folder_checks, "file_system", lambda _directory: kind)
    result = cli("doctor", "--json")
    assert (result.exit_code, _problems(parsed(result))) == (int(remote), ["network"] * remote)


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version of a package that is not installed is None."""
    monkeypatch.setattr(doctor, "_PACKAGES", ("statebackend-of-tomorrow",))
    assert doctor._versions()["statebackend-of-tomorrow"] is None


def test_the_state_of_the_cache(cli: Cli, backend: StateBackend) -> None:
    """Its path, and once it exists its size and content; --rebuild-cache rebuilds it."""
    samples.series(backend, 3)
    cache = parsed(cli("doctor", "--json"))["cache"]
    assert cache["size_bytes"] is None
    assert "(does not exist yet)" in cli("doctor").stdout
    path = Path(cache["path"])
    assert not path.exists()
    cache = parsed(cli("doctor", "--rebuild-cache", "--json"))["cache"]
    assert (cache["path"], cache["sessions"], cache["problem"]) == (str(path), 3, None)
    assert cache["size_bytes"] >= path.stat().st_size > 0
    assert "3 sessions" in cli("doctor").stdout
    path.write_bytes(b"noise" * 100)
    done = cli("doctor")
    assert done.exit_code == 1
    assert "cannot be used" in done.stdout
    assert "doctor --rebuild-cache" in done.stdout
    assert parsed(cli("doctor", "--rebuild-cache", "--json"))["cache"]["sessions"] == 3
