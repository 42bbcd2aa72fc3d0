"""The look at a file's bytes before SQLite touches it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from statebackend import SchemaTooNew, SessionDamaged, SessionUnreadable, StateBackend
from statebackend.files import header, read_ahead, wal
from tests.session_files import full, killed_writer, new, path_of, sql


@pytest.fixture
def path(backend: StateBackend) -> Path:
    """Return the file of a closed session."""
    return path_of(backend, full(backend))


def patch(path: Path, offset: int, content: bytes) -> None:
    """Overwrite some bytes."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def test_a_whole_file(path: Path) -> None:
    """Its size, its page size and its version are told."""
    found = header.read_header(path)
    assert found == header.Header(path.stat().st_size, 4096, 1)


@pytest.mark.parametrize(
    ("offset", "content"),
    [(0, b"SQLite format 4"), (16, b"\0\0"), (16, b"\x03\x00"), (16, b"\x01\x00")],
    ids=["magic", "no page size", "no power of two", "too small"],
)
def test_a_header_that_cannot_be_is_damage(path: Path, offset: int, content: bytes) -> None:
    """Magic and page size are checked."""
    patch(path, offset, content)
    with pytest.raises(SessionDamaged):
        header.read_header(path)


@pytest.mark.parametrize("offset", [18, 19])
@pytest.mark.parametrize("value", [0, 3, 255])
def test_a_format_of_no_sqlite_is_damage(path: Path, offset: int, value: int) -> None:
    """SQLite would open it for reading alone, or not at all, and say nothing of why."""
    patch(path, offset, bytes([value]))
    with pytest.raises(SessionDamaged, match="format"):
        header.read_header(path)
    with pytest.raises(SessionDamaged, match="format"):
        header.check_bytes(str(path), path.stat().st_size)


def test_the_largest_page_is_written_as_one(path: Path) -> None:
    """65,536 does not fit into two bytes, and another size of file is then no whole number."""
    patch(path, 16, b"\0\1")
    with pytest.raises(SessionDamaged, match="whole number of pages"):
        header.read_header(path)
    with path.open("ab") as file:
        file.truncate(65536)
    assert header.read_header(path).page_size == 65536


@pytest.mark.parametrize("size", [0, 1, 99, 4097])
def test_a_cut_file_is_damage(path: Path, size: int) -> None:
    """No header, or no whole number of pages."""
    os.truncate(path, size)
    with pytest.raises(SessionDamaged):
        header.read_header(path)


@pytest.mark.parametrize("version", [2, 2**31 - 1])
def test_a_newer_version_is_told_apart_from_damage(path: Path, version: int) -> None:
    """Also when the file is cut: it is not ours to judge."""
    sql(path, f"PRAGMA user_version = {version}")
    os.truncate(path, 5000)
    with pytest.raises(SchemaTooNew) as caught:
        header.read_header(path)
    assert caught.value.found_version == version


@pytest.mark.parametrize("content", [b"\xd9\xd5\x05\xf9", b"x"])
def test_a_hot_journal_is_damage(path: Path, content: bytes) -> None:
    """No session of ours has one, and SQLite would roll it back into the file."""
    path.with_name(path.name + "-journal").write_bytes(content)
    with pytest.raises(SessionDamaged, match="journal"):
        header.read_header(path)


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0"])
def test_a_finished_journal_is_nothing(path: Path, content: bytes) -> None:
    """An empty one, or one whose header was zeroed, is not applied by SQLite either."""
    path.with_name(path.name + "-journal").write_bytes(content)
    assert header.read_header(path).user_version == 1


@pytest.mark.parametrize("content", [b"", b"\0" * 32, b"\0" * 5000, b"noise" * 50])
def test_a_wal_that_is_none_says_nothing(path: Path, content: bytes) -> None:
    """Too short, or without SQLite's mark."""
    path.with_name(path.name + "-wal").write_bytes(content)
    assert header.read_header(path).user_version == 1
    assert header.has_wal(path) == bool(content)


@pytest.mark.parametrize("content", [None, b"", b"\0" * 5000, b"noise" * 1000])
def test_a_byte_too_many_is_seen_whatever_lies_beside_it(
    backend: StateBackend, content: bytes | None
) -> None:
    """Only a WAL that holds the page makes it whole again."""
    path = path_of(backend, full(backend))
    path.write_bytes(path.read_bytes() + b"x")
    if content is not None:
        path.with_name(path.name + "-wal").write_bytes(content)
    with pytest.raises(SessionDamaged, match="whole number of pages"):
        header.read_header(path)
    with pytest.raises(SessionDamaged, match="whole number of pages"):
        backend.read(path.stem)
    with backend.open(path.stem) as session:
        assert session.recovery is not None
        assert session.recovery.complete


def test_a_torn_page_that_the_wal_holds_is_no_damage(backend: StateBackend) -> None:
    """Of another page that the WAL does not hold, it is damage."""
    path = path_of(backend, killed_writer(backend))
    log = wal.read(path, 4096)
    assert log is not None
    held = {frame.page for frame in log.live}
    first = min(held - {1})
    content = path.read_bytes().ljust(first * 4096, b"\0")
    path.write_bytes(content[: (first - 1) * 4096 + 100])
    assert header.read_header(path).size == (first - 1) * 4096 + 100
    path.write_bytes(content.ljust(max(held) * 4096, b"\0") + b"x")
    with pytest.raises(SessionDamaged, match="whole number of pages"):
        header.read_header(path)


def test_the_wal_of_a_killed_writer(backend: StateBackend) -> None:
    """Its version is read from the WAL's last committed header page."""
    path = path_of(backend, killed_writer(backend))
    assert header.has_wal(path)
    assert header.read_header(path).user_version == 1


def test_a_wal_cut_in_its_first_frame_says_nothing(backend: StateBackend) -> None:
    """There is no whole frame in it."""
    path = path_of(backend, killed_writer(backend))
    os.truncate(path.with_name(path.name + "-wal"), 100)
    assert header.read_header(path).user_version == 1


def test_pages_that_the_header_does_not_count_are_damage(path: Path) -> None:
    """SQLite never looks at them, and its check passes: page 1 was put back to an older image."""
    pages = path.stat().st_size // 4096
    patch(path, 28, (pages - 1).to_bytes(4, "big"))
    told = f"{pages} pages, of which its header counts {pages - 1}"
    with pytest.raises(SessionDamaged, match=told):
        header.read_header(path)
    with pytest.raises(SessionDamaged, match=told):
        header.check_bytes(str(path), path.stat().st_size)


@pytest.mark.parametrize(
    ("offset", "content"),
    [(28, bytes(4)), (92, b"\0\0\0\0")],
    ids=["no count", "a count from another time"],
)
def test_a_count_that_sqlite_does_not_believe_says_nothing(
    path: Path, offset: int, content: bytes
) -> None:
    """It goes by the size of the file then."""
    patch(path, 28, b"\0\0\0\1")
    patch(path, offset, content)
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as driver:
        assert driver.execute("PRAGMA page_count").fetchone() == (path.stat().st_size // 4096,)
    header.read_header(path)
    header.check_bytes(str(path), path.stat().st_size)


def test_a_wal_may_count_the_pages(path: Path) -> None:
    """While a writer checkpoints, the file grows before page 1 says so."""
    patch(path, 28, b"\0\0\0\1")
    path.with_name(path.name + "-wal").write_bytes(b"\0")
    header.read_header(path)


def test_a_checkpoint_during_the_check_is_no_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer was at its close: its WAL is gone by the time it is asked for."""
    whole = path.read_bytes()
    patch(path, 28, b"\0\0\0\1")

    def closed_meanwhile(_path: Path) -> bool:
        path.write_bytes(whole)
        return False

    monkeypatch.setattr(header, "has_wal", closed_meanwhile)
    header.read_header(path)


def test_only_a_plain_file_is_a_session(tmp_path: Path) -> None:
    """Nothing is nothing; a folder, a pipe and a link are refused."""
    assert header.check_regular(tmp_path / "missing") is None
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("file")
    for name in (".", "pipe", "link"):
        with pytest.raises(SessionUnreadable):
            header.check_regular(tmp_path / name)
    assert header.check_regular(tmp_path / "file") is not None


def test_what_is_left_of_a_session(backend: StateBackend) -> None:
    """A damaged original, a WAL and a journal are told; nothing else is a leftover."""
    path = path_of(backend, new(backend))
    assert header.describe_leftover(path) is None
    for ending in header.LEFTOVERS:
        left = path.with_name(path.name + ending)
        left.write_bytes(b"")
        assert header.describe_leftover(path) == header.LEFTOVERS[ending]
        left.unlink()


def test_frames_from_before_a_reset_do_not_count(backend: StateBackend) -> None:
    """A WAL that was begun anew still holds the newer version of before, behind its end."""
    path = path_of(backend, full(backend))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE extra AS SELECT * FROM events")
        connection.execute("PRAGMA user_version = 2")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
        connection.execute("UPDATE session_meta SET profile = 'short'")
        content = path.with_name(path.name + "-wal").read_bytes()
        copied = path.with_name("copy.sqlite")
        copied.write_bytes(path.read_bytes())
    copied.with_name("copy.sqlite-wal").write_bytes(content)
    assert header.read_header(copied).user_version == 1


def test_a_wal_that_is_begun_anew_during_the_look_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where page 1 lay, another page may lie by then, whole, whose bytes are no version."""
    path, log = tmp_path / "x.sqlite", tmp_path / "x.sqlite-wal"
    driver = sqlite3.connect(path, isolation_level=None)
    with closing(driver):
        driver.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (x)")
        old = log.read_bytes()
        driver.execute("PRAGMA wal_checkpoint(RESTART)")
        for _ in range(5):
            driver.execute("INSERT INTO t VALUES (zeroblob(100))")
        new = log.read_bytes()
    copy, pread = tmp_path / "copy", os.pread
    copy.write_bytes(old)

    def overtaken(descriptor: int, length: int, position: int) -> bytes:
        if length == 8:  # the checksum before the image, once its place is known
            copy.write_bytes(new)
        return pread(descriptor, length, position)

    with copy.open("rb") as file:
        image = wal.newest_page_1(file.fileno())
        assert image is not None
        assert image.startswith(b"SQLite format 3")
        monkeypatch.setattr(os, "pread", overtaken)
        assert wal.newest_page_1(file.fileno()) is None
    assert copy.read_bytes() == new


def test_a_small_file_is_not_read_ahead(path: Path) -> None:
    """Nor is one that is in memory."""
    assert read_ahead.read_ahead(path, 0) is None
    with path.open("ab") as file:
        file.write(bytes(5 << 20))
    path.read_bytes()
    assert read_ahead.read_ahead(path, 0) is None


def test_a_large_file_is_read_ahead_in_pieces(path: Path) -> None:
    """Once begun, to its end."""
    os.truncate(path, (9 << 20) + 5)
    position: int | None = 4 << 20
    places = []
    while position is not None:
        places.append(position)
        position = read_ahead.read_ahead(path, position)
    assert places == [4 << 20, 8 << 20, (9 << 20) + 5]


def test_an_original_is_known_by_its_second_name(path: Path) -> None:
    """Not by a name alone, and a missing file has none."""
    corrupt = path.with_name(path.name + ".corrupt")
    assert header.find_original(path) is None
    corrupt.write_bytes(b"")
    os.link(path, path.with_name("other"))
    assert header.find_original(path) is None
    second = path.with_name(path.name + ".corrupt.2")
    os.link(path, second)
    assert header.find_original(path) is None, "a link by hand is no recovery"
    second.with_name(second.name + ".json").touch()
    assert header.find_original(path) == second
    path.unlink()
    assert header.find_original(path) is None


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="only Linux tells what is in memory")
def test_a_large_file_that_is_not_in_memory_is_read_ahead(path: Path) -> None:
    """From its start; where the file system cannot tell, it is left to SQLite."""
    with path.open("r+b") as file:
        file.write(bytes(9 << 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(file.fileno(), [bytearray(512)], 8 << 20, os.RWF_NOWAIT)
        except BlockingIOError:
            expected: int | None = 4 << 20
        except OSError:
            expected = None
        else:
            pytest.skip("this system keeps it in memory")
    assert read_ahead.read_ahead(path, 0) == expected
