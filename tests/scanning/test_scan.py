"""Reading many files: immutable, shared, and changed while they are read."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit

import pytest

from statebackend import BadSession, SessionDamaged, SessionInfo, StateBackend, StorageError
from statebackend.files.paths import sqlite_uri
from statebackend.scanning import connections, scan
from statebackend.scanning import listing as names
from tests.session_files import START, UNKNOWN_ID, call, full, listing, new, path_of, sql

DESCRIPTORS = Path("/proc/self/fd") if Path("/proc/self/fd").is_dir() else Path("/dev/fd")


@pytest.fixture
def quiet(backend: StateBackend) -> Path:
    """Return a session file that has not changed for a while."""
    path = path_of(backend, full(backend))
    time.sleep(0.06)
    return path


def modes_used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the modes of the connections are appended."""
    modes: list[str] = []
    query = connections.query

    def noting(path: Path, mode: str, *rest: object) -> object:
        modes.append(mode)
        return query(path, mode, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(connections, "query", noting)
    return modes


def test_a_quiet_file_is_read_as_immutable(
    backend: StateBackend, quiet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over one connection, which leaves nothing behind."""
    modes = modes_used(monkeypatch)
    assert [one.session_id for one in backend.list()] == [quiet.stem]
    assert modes == ["mode=ro&immutable=1"]


@pytest.fixture
def several(backend: StateBackend) -> list[str]:
    """Return the ids of three quiet sessions, newest first."""
    made = sorted((new(backend) for _ in range(3)), reverse=True)
    time.sleep(0.06)
    return made


def descriptors() -> int:
    """Count the files that this process has open."""
    return len(list(DESCRIPTORS.iterdir()))


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Prevent this process from opening files during the block."""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    setrlimit(RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        setrlimit(RLIMIT_NOFILE, (soft, hard))


def in_utf_16(path: Path) -> None:
    """Rebuild the session file with SQLite's other text encoding."""
    with closing(sqlite3.connect(path)) as old:
        statements = list(old.iterdump())
    path.unlink()
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA encoding = 'UTF-16le'")
        made.execute("PRAGMA user_version = 1")
        made.executescript("".join(statements))


def test_quiet_files_share_one_connection(
    backend: StateBackend, several: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the first: connecting takes longer than attaching a file to a connection."""
    made: list[str] = []
    connect = sqlite3.connect

    def noting(name: str, **options: object) -> sqlite3.Connection:
        made.append(name)
        return connect(name, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(sqlite3, "connect", noting)
    assert [one.session_id for one in backend.scan()] == several
    assert made == [sqlite_uri(path_of(backend, several[0]), "mode=ro&immutable=1"), ":memory:"]


def test_a_bad_file_affects_no_later_file(backend: StateBackend, several: list[str]) -> None:
    """Neither damage, nor a refused row, nor the connection closed for it does."""
    path_of(backend, several[1]).write_bytes(b"no database at all " * 100)
    sql(path_of(backend, several[2]), "DELETE FROM session_meta")
    oldest = new(backend, started_at=START - timedelta(days=3650))
    time.sleep(0.06)
    first, second, third, last = backend.scan()
    assert isinstance(first, SessionInfo)
    assert isinstance(second, BadSession)
    assert isinstance(third, BadSession)
    assert (second.problem, third.problem) == (
        "is damaged: file is not a database",
        "is damaged: session_meta holds no row",
    )
    assert isinstance(last, SessionInfo)
    assert last.session_id == oldest


def test_another_text_encoding_is_read_as_well(backend: StateBackend, several: list[str]) -> None:
    """It cannot be attached to a UTF-8 connection, so it gets its own."""
    before = backend.list()
    in_utf_16(path_of(backend, several[1]))
    time.sleep(0.06)
    assert backend.list() == before


@pytest.mark.parametrize("left_out", [1, 100, 4096 - 512])
def test_a_truncated_file_is_flagged_among_others_as_it_is_alone(
    backend: StateBackend, several: list[str], left_out: int
) -> None:
    """The same row, for the same reason."""
    path = path_of(backend, several[0])
    os.truncate(path, path.stat().st_size - left_out)
    time.sleep(0.06)
    among = {one.session_id: one for one in backend.list(limit=None)}[path.stem]
    (alone,) = scan.read_each(backend.directory, scan.read_summary, [path.stem])
    assert isinstance(among, BadSession)
    assert isinstance(alone, BadSession)
    assert among.problem == alone.problem
    with pytest.raises(SessionDamaged):
        backend.read(path.stem)


def test_pages_beyond_the_count_are_flagged_among_others_as_alone(
    backend: StateBackend, several: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older page 1 hides later pages, however the file is read."""
    path = path_of(backend, several[0])
    earlier = path.read_bytes()
    with backend.open(path.stem) as session:
        call(session, bytes(20_000))
    content = path.read_bytes()
    path.write_bytes(earlier + content[len(earlier) :])
    time.sleep(0.06)
    (alone,) = scan.read_each(backend.directory, scan.read_summary, [path.stem])
    assert isinstance(alone, BadSession)
    assert "of which its header counts" in alone.problem
    for image_bytes in (connections._IMAGE_BYTES, 0):
        monkeypatch.setattr(connections, "_IMAGE_BYTES", image_bytes)
        among = {one.session_id: one for one in backend.list(limit=None)}[path.stem]
        assert isinstance(among, BadSession)
        assert among.problem == alone.problem


def test_a_large_file_is_attached_and_read_alike(
    backend: StateBackend, several: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file is read whole instead; the answers are the same."""
    time.sleep(0.06)
    before = backend.list()
    assert not any(isinstance(one, BadSession) for one in before)
    monkeypatch.setattr(connections, "_IMAGE_BYTES", 0)
    assert backend.list() == before


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_tables_may_have_other_root_pages_in_each_file(
    backend: StateBackend, several: list[str], page_size: int
) -> None:
    """SQLite keeps compiled statements for the next image whose schema has the same number."""
    before = backend.list()
    assert not any(isinstance(one, BadSession) for one in before)
    reorder_tables(path_of(backend, several[1]), page_size)
    time.sleep(0.06)
    assert backend.list() == before


def reorder_tables(path: Path, page_size: int) -> None:
    """Rebuild the file with its tables in the opposite order and the same schema_version."""
    with closing(sqlite3.connect(path)) as old:
        (number,) = old.execute("PRAGMA schema_version").fetchone()
        query = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'sqlite_sequence'"
        made_by = [sql for (sql,) in old.execute(query)]
        tables = [sql for sql in made_by if sql.startswith("CREATE TABLE")]
        rows = [one for one in old.iterdump() if one.startswith('INSERT INTO "')]
    path.unlink()
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"PRAGMA page_size = {page_size}")
        for statement in tables[::-1] + [one for one in made_by if one not in tables]:
            made.execute(statement)
        made.executescript("".join(one for one in rows if "sqlite_sequence" not in one))
        made.execute("PRAGMA user_version = 1")
        made.execute("PRAGMA journal_mode = WAL")
        made.execute(f"PRAGMA schema_version = {number}")


def test_a_suspended_scan_holds_no_file(backend: StateBackend, several: list[str]) -> None:
    """No file is open between two results, or after the scan is dropped."""
    before = descriptors()
    scanning = backend.scan()
    next(scanning)
    assert descriptors() == before
    next(scanning)
    del scanning
    assert descriptors() == before


def test_a_scan_may_change_threads(backend: StateBackend, several: list[str]) -> None:
    """Each step may run in another thread."""
    scanning = backend.scan()
    found = [next(scanning)]
    for _ in several[1:]:
        with ThreadPoolExecutor(1) as other:
            found.append(other.submit(next, scanning).result())
    assert [one.session_id for one in found] == several


def test_running_out_of_descriptors_flags_files(backend: StateBackend, several: list[str]) -> None:
    """The files that cannot be opened are flagged; later ones are read."""
    scanning = backend.scan()
    first = next(scanning)
    with no_descriptor_left():
        second = next(scanning)
    third = next(scanning)
    assert isinstance(second, BadSession)
    assert isinstance(second.error, StorageError)
    assert [type(first), type(third)] == [SessionInfo, SessionInfo]


def test_a_file_changed_just_now_is_read_as_shared(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File times prove nothing within the clock's grain."""
    modes = modes_used(monkeypatch)
    with backend.create("default") as session:
        backend.list()
        call(session)
        backend.list()
    assert modes in (["mode=rw", "mode=ro"], ["mode=ro", "mode=ro"])


def test_a_file_changed_during_an_immutable_read_is_read_again(
    backend: StateBackend, quiet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of the first reading is discarded."""
    read = connections.query

    def disturbed(path: Path, mode: str, *rest: object) -> object:
        if "immutable" in mode:
            sql(path, "UPDATE session_meta SET profile = 'changed meanwhile'")
        return read(path, mode, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(connections, "query", disturbed)
    (found,) = backend.list()
    assert isinstance(found, SessionInfo)
    assert found.profile == "changed meanwhile"


def test_an_error_during_a_change_is_not_damage(
    backend: StateBackend, quiet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a change can look like damage, so the file is read again."""
    read = connections.query

    def disturbed(path: Path, mode: str, *rest: object) -> object:
        if "immutable" in mode:
            os.utime(path)
            raise SessionDamaged(path, ("half of a change",))
        return read(path, mode, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(connections, "query", disturbed)
    (found,) = backend.list()
    assert isinstance(found, SessionInfo)


def test_stems_come_from_names_alone(backend: StateBackend) -> None:
    """From session files, WALs, journals and damaged originals, and no other file."""
    backend.directory.mkdir()
    for name in (
        "A.sqlite",
        "B.sqlite.corrupt",
        "C.sqlite-wal",
        "D.sqlite-journal",
        "A.sqlite-shm",
        "E.sqlite-shm",
        "F.sqlite.creating",
        "G.txt",
        ".sqlite3",
        "A.sqlite-wal",
    ):
        (backend.directory / name).write_bytes(b"")
    assert names.stems(backend.directory) == ["D", "C", "B", "A"]


def test_named_stems_come_in_the_order_given(backend: StateBackend) -> None:
    """Missing sessions are left out."""
    one, two = new(backend), new(backend)
    found = list(scan.read_each(backend.directory, scan.read_summary, [two, UNKNOWN_ID, one]))
    assert [getattr(info, "session_id", None) for info in found] == [two, one]


def test_a_scan_is_lazy(backend: StateBackend) -> None:
    """Files after the one requested are not opened."""
    from tests.session_files import files_opened, session_files

    made = sorted((new(backend) for _ in range(3)), reverse=True)
    with files_opened() as seen:
        next(backend.scan())
    assert session_files(seen) == [made[0]]


def test_a_reader_that_fails_flags_its_file(backend: StateBackend) -> None:
    """An error of SQLite becomes the row of that file."""
    new(backend)

    def fails(driver: sqlite3.Connection, _info: SessionInfo) -> None:
        driver.execute("SELECT * FROM missing")

    (found,) = scan.read_each(backend.directory, fails, names.stems(backend.directory))
    assert isinstance(found, BadSession)
    assert listing(backend.directory / ".locks") == []
