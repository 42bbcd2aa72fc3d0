"""From SQLite's and the system's errors to this package's."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from statebackend import SessionDamaged, StateBackendError, StorageBusy, StorageError, StorageFull
from statebackend.sqlite import faults


def database(path: Path) -> sqlite3.Connection:
    """Open a file that has one table."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    connection.execute("CREATE TABLE IF NOT EXISTS t (x)")
    return connection


def no_room(path: Path) -> None:
    """Fill a file to the limit of its pages."""
    with closing(database(path)) as connection:
        connection.execute("PRAGMA max_page_count = 2")
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")


def busy(path: Path) -> None:
    """Write while another connection does."""
    with closing(database(path)) as one, closing(database(path)) as other:
        one.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO t VALUES (1)")


def noise(path: Path) -> None:
    """Read a file that is no database."""
    path.write_bytes(b"no database at all" * 100)
    database(path).close()


def missing_folder(path: Path) -> None:
    """Open a file in a folder that is not there."""
    database(path / "missing").close()


def error_of(cause: Callable[[Path], None], path: Path) -> sqlite3.Error:
    """Return what SQLite raises."""
    with pytest.raises(sqlite3.Error) as caught:
        cause(path)
    return caught.value


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (no_room, StorageFull),
        (busy, StorageBusy),
        (noise, SessionDamaged),
        (missing_folder, StorageError),
    ],
)
def test_an_error_is_told_by_its_code(
    tmp_path: Path, cause: Callable[[Path], None], expected: type[StateBackendError]
) -> None:
    """What SQLite really raises becomes the error of its kind, for reading and writing alike."""
    error = error_of(cause, tmp_path / "x.sqlite")
    for translate in (faults.storage_error, faults.read_error):
        found = translate(tmp_path, error)
        assert type(found) is expected
        assert vars(found)["path"] == tmp_path


def test_a_wrong_statement_is_damage_only_when_the_statements_are_right(tmp_path: Path) -> None:
    """A table that is missing means that the file is broken, if the question was ours."""
    with (
        closing(database(tmp_path / "x")) as connection,
        pytest.raises(sqlite3.OperationalError) as caught,
    ):
        connection.execute("SELECT * FROM missing")
    assert type(faults.storage_error(tmp_path, caught.value)) is StorageError
    assert type(faults.read_error(tmp_path, caught.value)) is SessionDamaged


def test_a_text_that_is_not_utf8_is_damage(tmp_path: Path) -> None:
    """The driver raises its own error for it."""
    error = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    assert type(faults.read_error(tmp_path, error)) is SessionDamaged


def test_an_error_of_the_driver_has_no_code() -> None:
    """It counts as none of SQLite's."""
    assert faults.primary_code(sqlite3.ProgrammingError("closed")) == 0
    assert faults.primary_code(ValueError()) == 0


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull), (errno.EACCES, StorageError)],
)
def test_the_systems_refusals(tmp_path: Path, number: int, expected: type[StorageError]) -> None:
    """A full disk or quota is told from the rest, and the file of the error is named."""
    with pytest.raises(StorageError) as caught, faults.os_error(tmp_path):
        raise OSError(number, "refused", str(tmp_path / "file"))
    assert type(caught.value) is expected
    assert caught.value.path == tmp_path / "file"
    with pytest.raises(StorageError) as caught, faults.os_error(tmp_path):
        raise OSError(number, "refused")
    assert caught.value.path == tmp_path
