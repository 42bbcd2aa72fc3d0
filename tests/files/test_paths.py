"""Names of files and folders."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from statebackend import InvalidValue
from statebackend.files import paths
from statebackend.files.paths import SessionFiles
from tests.session_files import UNKNOWN_ID


def test_the_names_beside_a_session() -> None:
    """Each helper file is found from the session's, inside the same folder."""
    path = SessionFiles.of(Path("/s"), UNKNOWN_ID).path
    assert path == Path(f"/s/{UNKNOWN_ID}.sqlite")
    assert SessionFiles(path).wal == Path(f"/s/{UNKNOWN_ID}.sqlite-wal")
    assert SessionFiles(path).journal == Path(f"/s/{UNKNOWN_ID}.sqlite-journal")
    assert SessionFiles(path).lock == Path(f"/s/.locks/{UNKNOWN_ID}.lock")
    assert SessionFiles(path).creating.parent == path.parent


def test_no_name_without_an_id() -> None:
    """A path can only be made of a valid id."""
    with pytest.raises(InvalidValue):
        SessionFiles.of(Path("/s"), "../x")


@pytest.mark.parametrize("name", ["plain", "a b", "a?b=c", "a#b", "%41", "%", "ü", "a&b"])
def test_a_uri_opens_the_very_file(tmp_path: Path, name: str) -> None:
    """Whatever the name means in a URI, SQLite makes and opens that file."""
    with closing(
        sqlite3.connect(paths.sqlite_uri(tmp_path / name, "mode=rwc"), uri=True)
    ) as driver:
        driver.execute("CREATE TABLE t (x)")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_private_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    """What is made is 0700; what was there stays as it was."""
    tmp_path.chmod(0o755)
    paths.make_private_directory(tmp_path / "a" / "b")
    found = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("", "a", "a/b")]
    assert found == [0o755, 0o700, 0o700]
    paths.make_private_directory(tmp_path / "a" / "b")


def test_a_folder_made_by_somebody_else_meanwhile_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes that create the first session at once both go on."""
    (tmp_path / "a").mkdir()
    monkeypatch.setattr(Path, "is_dir", lambda self: self == tmp_path)
    paths.make_private_directory(tmp_path / "a")


def test_link_new_never_replaces(tmp_path: Path) -> None:
    """A taken name stays; a free one gets the file, and its first name may go."""
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    with pytest.raises(FileExistsError):
        paths.link_new(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "old"
    paths.link_new(tmp_path / "new", tmp_path / "free")
    assert (tmp_path / "free").read_text() == "new"


def test_without_hard_links_a_name_is_still_never_taken_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system that has none, the file is renamed, after a look."""

    def refuse(*_paths: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    with pytest.raises(FileExistsError):
        paths.link_new(tmp_path / "new", tmp_path / "old")
    paths.link_new(tmp_path / "new", tmp_path / "free")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["free", "old"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("/abs/y", "/abs/y/agent"), ("", "/h/.cache/agent"), ("x", "/h/.cache/agent")],
)
def test_the_cache_folder_is_as_the_standard_says(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: str
) -> None:
    """Unset, empty and relative values fall back to ~/.cache."""
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert paths.cache_directory() == Path(expected)
