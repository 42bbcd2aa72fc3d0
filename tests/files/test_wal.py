"""The WAL as bytes: which frames count, and which WALs are refused."""

from __future__ import annotations

import itertools
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from statebackend import SessionDamaged, SessionStatus, StateBackend
from statebackend.files import wal
from statebackend.sqlite.wal_check import check_wal
from tests.crash import children
from tests.crash.processes import started
from tests.crash.samples import new_session
from tests.damage import layout
from tests.damage.bases import Plan, _set_up, files_of, put, without_room
from tests.damaging import NOISE
from tests.session_files import call, damage_index, new, path_of, sql

TRANSACTIONS = 5
ID = "01KJMG7C000000000000000001"
OTHER_ID = "01KJMG7C000000000000000002"


def logged(folder: Path, page_size: int = 4096, session_id: str = ID) -> Path:
    """Return a session file as a power cut leaves it, without a shm: each append is a commit."""
    backend = StateBackend(folder / "made")
    new(backend, session_id=session_id, events=3)
    _set_up(path_of(backend, session_id), Plan(0, (0, 0), page_size=page_size))
    path = folder / "left" / f"{session_id}.sqlite"
    path.parent.mkdir(exist_ok=True)
    with backend.open(session_id) as session:
        for number in range(TRANSACTIONS):
            call(session, f"{number}".encode() * 900)
        files = without_room(files_of(path_of(backend, session_id)))
        put({"": files[""], "-wal": files["-wal"]}, path)
    return path


def wal_of(path: Path) -> Path:
    """Return the WAL beside a file."""
    return path.with_name(path.name + "-wal")


def read(path: Path, page_size: int | None = None) -> wal.Wal:
    """Read a WAL that holds frames."""
    found = wal.read(path, page_size)
    assert found is not None
    return found


def commits(path: Path) -> list[tuple[int, int]]:
    """Return first and last byte of each transaction in a healthy WAL."""
    return layout.read(files_of(path)).commits


def turn(path: Path, *places: int) -> None:
    """Turn a bit over at some bytes of a file."""
    content = bytearray(path.read_bytes())
    for at in places:
        content[at] ^= 1
    path.write_bytes(content)


@contextmanager
def wal_bytes(path: Path) -> Iterator[int]:
    """Open the WAL beside a file by itself."""
    descriptor = os.open(wal_of(path), os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_a_wal_that_is_cut_while_its_first_page_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by another program's checkpoint: after any read, it is found in full or not at all."""
    path = logged(tmp_path, 4096)
    content, pread = wal_of(path).read_bytes(), os.pread
    found = set()
    for cut_after in range(40):
        wal_of(path).write_bytes(content)
        left = itertools.count(cut_after, -1)

        def cutting(descriptor: int, size: int, at: int, left: Iterator[int] = left) -> bytes:
            if next(left) == 0:
                os.truncate(wal_of(path), 0)
            return pread(descriptor, size, at)

        monkeypatch.setattr(os, "pread", cutting)
        with wal_bytes(path) as descriptor:
            page = wal.newest_page_1(descriptor)
        monkeypatch.undo()
        found.add(page if page is None else len(page))
    assert found == {None, 4096}


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_a_healthy_wal_is_live_from_end_to_end(tmp_path: Path, page_size: int) -> None:
    """At the smallest page size, the usual one, and the largest, which is stored as 1."""
    path = logged(tmp_path, page_size)
    found = read(path)
    frames = (wal_of(path).stat().st_size - 32) // (page_size + 24)
    assert (found.page_size, len(found.live), found.lost_commits) == (page_size, frames, 0)
    assert (found.behind, found.broken, found.stale) == ((), (), ())
    with wal_bytes(path) as descriptor:
        assert wal.stated_page_size(descriptor) == page_size


@pytest.mark.parametrize("content", [None, b"", b"short", NOISE[:32], NOISE[:9000]])
def test_what_holds_no_frame_is_no_wal(tmp_path: Path, content: bytes | None) -> None:
    """None, an empty one, a piece, and noise, whose page size nobody knows."""
    path = tmp_path / f"{ID}.sqlite"
    if content is not None:
        wal_of(path).write_bytes(content)
    assert wal.read(path) is None


def test_a_header_without_frames_is_no_wal(tmp_path: Path) -> None:
    """As a WAL is after a writer's first step."""
    path = logged(tmp_path)
    os.truncate(wal_of(path), 32)
    assert wal.read(path) is None


@pytest.mark.parametrize("where", ["header", "page", "end", "cut"])
def test_a_torn_last_transaction_is_not_lost(tmp_path: Path, where: str) -> None:
    """A power cut leaves it so, and nobody was promised it."""
    path = logged(tmp_path)
    healthy, (start, end) = read(path), commits(path)[-1]
    if where == "cut":
        os.truncate(wal_of(path), end - 1)
    else:
        turn(wal_of(path), {"header": start, "page": start + 100, "end": end - 1}[where])
    found = read(path)
    ours = [one for one in healthy.live if one.offset < start]
    assert (list(found.live), found.lost_commits, found.behind) == (ours, 0, ())


def test_transactions_behind_a_broken_frame_are_lost_to_sqlite(tmp_path: Path) -> None:
    """All from the broken one on: the writer began later ones, so it was acknowledged."""
    path = logged(tmp_path)
    healthy, (start, _end) = read(path), commits(path)[1]
    turn(wal_of(path), start + 200)
    found = read(path)
    assert found.lost_commits == TRANSACTIONS - 1
    assert [one.offset for one in found.broken] == [start + 24]
    assert {*found.live, *found.broken, *found.behind} == set(healthy.live)
    with closing(sqlite3.connect(path)) as driver:
        assert driver.execute("SELECT count(*) FROM events").fetchone() == (4,)


def test_a_torn_last_transaction_shows_that_the_one_before_was_whole(tmp_path: Path) -> None:
    """Of two broken ones at the end, only the last may be a power cut's work."""
    path = logged(tmp_path)
    before, last = commits(path)[-2:]
    turn(wal_of(path), before[0] + 200, last[1] - 1)
    found = read(path)
    assert found.lost_commits == 1
    assert max(one.offset for one in (*found.broken, *found.behind)) < before[1]


def test_frames_of_an_earlier_round_are_stale(tmp_path: Path) -> None:
    """After a restart the WAL is written over from its start; the rest stays as it was."""
    backend = StateBackend(tmp_path / "made")
    path = tmp_path / f"{ID}.sqlite"
    with backend.create("default", session_id=ID) as session:
        for _number in range(TRANSACTIONS):
            call(session)
        made = path_of(backend, ID)
        earlier = without_room(files_of(made))["-wal"]
        sql(made, "PRAGMA wal_checkpoint(RESTART)")
        call(session)
        put(without_room(files_of(made)), path)
    found = read(path)
    assert len(wal_of(path).read_bytes()) == len(earlier)
    assert {one.offset for one in found.stale}.isdisjoint(one.offset for one in found.live)
    # The first stale frame goes on from a sum that is written over.
    assert len(found.live) + 1 + len(found.stale) == (len(earlier) - 32) // (4096 + 24)
    assert found.lost_commits == 0


def test_frames_that_were_never_committed_count_for_nothing(tmp_path: Path) -> None:
    """A transaction larger than the cache is in the WAL before it ends."""
    path = logged(tmp_path)
    copied = tmp_path / path.name
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        driver.execute("SELECT count(*) FROM events").fetchone()
        healthy = read(path)
        driver.execute("PRAGMA cache_size = 1")
        driver.execute("BEGIN")
        driver.execute("UPDATE events SET payload = zeroblob(90000)")
        put(files_of(path), copied)
    found = read(copied)
    assert wal_of(copied).stat().st_size > 32 + (4096 + 24) * len(healthy.live)
    assert found.live == healthy.live
    assert (found.behind, found.broken, found.stale, found.lost_commits) == ((), (), (), 0)


@pytest.mark.parametrize("at", [0, 8, 16, 24])
def test_frames_behind_a_damaged_header_are_found(tmp_path: Path, at: int) -> None:
    """Magic, page size, salts or checksum: SQLite uses no frame then, and all were committed."""
    path = logged(tmp_path)
    healthy = read(path)
    turn(wal_of(path), at)
    with wal_bytes(path) as descriptor:
        assert wal.stated_page_size(descriptor) is None
        assert wal.newest_page_1(descriptor) is None
    found = read(path, 4096)
    assert (found.live, found.lost_commits) == ((), TRANSACTIONS)
    # The first frame's sum goes on from the header's, so it cannot be checked.
    assert (found.broken, found.behind) == (healthy.live[:1], healthy.live[1:])


def test_an_impossible_page_size_is_no_wal(tmp_path: Path) -> None:
    """Where the file cannot say it either."""
    path = logged(tmp_path)
    with wal_of(path).open("r+b") as file:
        file.seek(8)
        file.write(struct.pack(">I", 1 << 30))
    assert wal.read(path) is None


def test_a_frame_of_page_zero_is_broken(tmp_path: Path) -> None:
    """There is no such page, whatever its checksum says."""
    path = logged(tmp_path)
    start, _end = commits(path)[-1]
    content = bytearray(wal_of(path).read_bytes())
    content[start : start + 4] = bytes(4)
    wal_of(path).write_bytes(summed(bytes(content), "<"))
    assert all(one.offset < start for one in read(path).live)


def summed(log: bytes, order: str) -> bytes:
    """Return a WAL of pages of 4096 bytes with all its checksums made anew, in a byte order."""
    done = bytearray(log)
    done[:4] = (0x377F0682 if order == "<" else 0x377F0683).to_bytes(4, "big")
    one = two = 0

    def add(content: bytes) -> bytes:
        nonlocal one, two
        for at in range(0, len(content), 8):
            first, second = struct.unpack(f"{order}II", content[at : at + 8])
            one = (one + first + two) % 2**32
            two = (two + second + one) % 2**32
        return struct.pack(">II", one, two)

    done[24:32] = add(bytes(done[:24]))
    for at in range(32, len(log), 24 + 4096):
        add(bytes(done[at : at + 8]))
        done[at + 16 : at + 24] = add(bytes(done[at + 24 : at + 24 + 4096]))
    return bytes(done)


def test_a_wal_of_a_big_endian_machine(tmp_path: Path) -> None:
    """Its magic says so; SQLite reads it, and so do we, also behind a broken frame."""
    path = logged(tmp_path)
    healthy = read(path)
    wal_of(path).write_bytes(summed(wal_of(path).read_bytes(), ">"))
    assert read(path) == healthy
    start, _end = commits(path)[1]
    whole = files_of(path)
    assert sql(path, "SELECT count(*) FROM events") == [(3 + TRANSACTIONS,)]
    put(whole, path)
    turn(wal_of(path), start + 200)
    assert read(path).lost_commits == TRANSACTIONS - 1


# -- the newest header of the file -----------------------------------------------------------------


def with_versions(folder: Path) -> Path:
    """Return a file whose WAL holds page 1 with the versions 7 and then 8."""
    path = logged(folder)
    copied = folder / path.name
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        driver.execute("PRAGMA user_version = 7")
        driver.execute("PRAGMA user_version = 8")
        put(files_of(path), copied)
    return copied


def version(path: Path) -> int | None:
    """Return the version in the newest header page of a WAL."""
    with wal_bytes(path) as descriptor:
        page = wal.newest_page_1(descriptor)
    return None if page is None else int.from_bytes(page[60:64], "big")


def test_the_newest_committed_header_counts(tmp_path: Path) -> None:
    """The last image of page 1, whatever lies between."""
    assert version(with_versions(tmp_path)) == 8


def test_a_broken_header_image_does_not_count(tmp_path: Path) -> None:
    """Then the one before does."""
    path = with_versions(tmp_path)
    turn(wal_of(path), commits(path)[-1][0] + 200)
    assert version(path) == 7


def test_a_header_that_was_not_committed_does_not_count(tmp_path: Path) -> None:
    """Its frame ends no transaction."""
    path = with_versions(tmp_path)
    with wal_of(path).open("r+b") as file:
        file.seek(commits(path)[-1][0] + 4)
        file.write(bytes(4))
    assert version(path) == 7


def test_a_wal_without_a_header_page_knows_no_version(tmp_path: Path) -> None:
    """Also when it is empty."""
    path = logged(tmp_path)
    first, _end = commits(path)[0]
    os.truncate(wal_of(path), first)
    assert version(path) is None
    os.truncate(wal_of(path), 0)
    assert version(path) is None


# -- logs that hide what was committed -------------------------------------------------------------


def problem(path: Path) -> str:
    """Return why a file's WAL is refused."""
    with pytest.raises(SessionDamaged) as caught:
        check_wal(path, 4096)
    return caught.value.problem


def test_a_healthy_wal_is_let_pass(tmp_path: Path) -> None:
    """Its own, and a missing one."""
    path = logged(tmp_path)
    check_wal(path, 4096)
    wal_of(path).unlink()
    check_wal(path, 4096)


def test_a_wal_with_a_broken_frame_is_refused(tmp_path: Path) -> None:
    """SQLite would leave four transactions out and say nothing."""
    path = logged(tmp_path)
    turn(wal_of(path), commits(path)[1][0] + 200)
    assert "4 transactions are behind a broken frame" in problem(path)


def test_a_wal_with_pages_of_another_size_is_refused(tmp_path: Path) -> None:
    """It is no part of this file."""
    path, other = logged(tmp_path), logged(tmp_path, 512, OTHER_ID)
    wal_of(other).replace(wal_of(path))
    assert "another page size" in problem(path)


def test_another_sessions_wal_is_refused(tmp_path: Path) -> None:
    """It has other events under the same sequences."""
    path, other = logged(tmp_path), logged(tmp_path, session_id=OTHER_ID)
    wal_of(other).replace(wal_of(path))
    assert "events of another session" in problem(path)


def test_an_older_wal_is_refused(tmp_path: Path) -> None:
    """It would hide the newest events of the file."""
    backend, path = StateBackend(tmp_path / "made"), logged(tmp_path)
    with backend.open(ID) as session:
        call(session)
    path.write_bytes(path_of(backend, ID).read_bytes())
    assert "older than the file" in problem(path)


def test_another_sessions_wal_without_events_is_refused(tmp_path: Path) -> None:
    """By the id in its row of session_meta."""
    backend = StateBackend(tmp_path / "made")
    path = path_of(backend, new(backend))
    with backend.create("default") as other:
        other.set_status(SessionStatus.COMPLETED)
        wal_of(path).write_bytes(wal_of(path_of(backend, other.session_id)).read_bytes())
        assert "belongs to another session" in problem(path)


def test_a_file_torn_while_its_wal_was_checkpointed_is_let_pass(tmp_path: Path) -> None:
    """A power cut then leaves rows that never were in the file; the WAL puts it right."""
    path = logged(tmp_path)
    other = logged(tmp_path, session_id=OTHER_ID)
    wal_of(other).replace(wal_of(path))
    os.truncate(path, path.stat().st_size - 4096)
    check_wal(path, 4096)


def test_a_file_that_is_damaged_itself_is_left_to_the_check(tmp_path: Path) -> None:
    """What a WAL hides says nothing then."""
    path, other = logged(tmp_path), logged(tmp_path, session_id=OTHER_ID)
    wal_of(other).replace(wal_of(path))
    damage_index(path)
    check_wal(path, 4096)


@pytest.mark.parametrize("spoilt", [512, 4096], ids=["a sector", "a page"])
@pytest.mark.parametrize("index", [True, False], ids=["-shm", "no -shm"])
def test_a_wal_whose_beginning_was_overwritten_keeps_its_rows(
    backend: StateBackend, spoilt: int, *, index: bool
) -> None:
    """Its header and its first frame are gone; the frames behind say which round they are of."""
    with started(children.append_until_killed, backend.directory, new_session(backend)) as other:
        while (durable := other.hear()) < 60:
            pass
        other.kill()
    (path,) = backend.directory.glob("*.sqlite")
    log = Path(f"{path}-wal")
    log.write_bytes(bytes(spoilt) + log.read_bytes()[spoilt:])
    if not index:
        Path(f"{path}-shm").unlink()
    with backend.open(path.stem) as session:
        assert session.recovery is not None
        assert session.counts().events >= durable
