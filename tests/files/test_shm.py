"""A WAL that was cut although its shm counts more frames; and shm files that do not count."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from statebackend import SessionDamaged, StateBackend
from statebackend.files import shm, wal
from tests.damage.bases import files_of, put, without_room
from tests.damage.layout import Files
from tests.damaging import recover, table_report
from tests.session_files import call, path_of, sql

FRAME = 24 + 4096


@pytest.fixture
def left(backend: StateBackend, tmp_path: Path) -> tuple[Path, list[Files]]:
    """Return a session without a file yet, and its files after each of six appends."""
    states = []
    with backend.create("default") as session:
        for number in range(6):
            call(session, b"%d" % number * 2_000)
            states.append(without_room(files_of(session.path)))
    folder = tmp_path / "left"
    folder.mkdir(mode=0o700)
    return folder / path_of(backend, session.session_id).name, states


def frames(files: Files) -> int:
    """Return how many frames a WAL holds."""
    return (len(files["-wal"]) - 32) // FRAME


def test_a_shm_counts_the_frames_of_its_wal(left: tuple[Path, list[Files]]) -> None:
    """After each commit, all that there are."""
    path, states = left
    for files in states:
        put(files, path)
        log = wal.read(path)
        assert log is not None
        assert (len(log.live), log.lost_frames, log.tail) == (frames(files), 0, ())
        assert shm.read(path) == shm.ShmHeader(files["-wal"][16:24], 4096, frames(files))


@pytest.mark.parametrize("kept", ["none", "a byte too few", "in the middle", "broken at the end"])
def test_a_wal_that_was_cut_within_committed_frames_is_damage(
    left: tuple[Path, list[Files]], kept: str
) -> None:
    """Not what a power cut leaves: the shm would be older, or as old."""
    path, states = left
    files = states[-1]
    log = files["-wal"]
    cut = {
        "none": log[:32],
        "a byte too few": log[:-1],
        "in the middle": log[: 32 + frames(states[2]) * FRAME],
        "broken at the end": log[:-3000] + bytes([log[-3000] ^ 1]) + log[-2999:],
    }[kept]
    put({**files, "-wal": cut}, path)
    backend = StateBackend(path.parent)
    with pytest.raises(SessionDamaged, match=r"log|frame"):
        backend.read(path.stem)
    (shown,) = backend.scan()
    assert isinstance(getattr(shown, "error", None), SessionDamaged)
    recovery = recover(backend, path.stem)
    assert (recovery.complete, recovery.partial, len(recovery.uncounted)) == (False, True, 1)
    numbers = {number for (number,) in sql(path, "SELECT sequence FROM events")}
    expected = {"none": set(), "in the middle": {1, 2, 3}}.get(kept, {1, 2, 3, 4, 5})
    assert numbers >= expected
    assert table_report(recovery, "events").kept == len(numbers)
    with backend.open(path.stem) as session:
        assert session.recovery is None
        assert session.info.incomplete
        if kept in {"a byte too few", "broken at the end"}:
            assert call(session) > 6


def _none(files: Files, _states: list[Files]) -> bytes | None:
    return None


def _zeros(files: Files, _states: list[Files]) -> bytes:
    return bytes(32768)


def _short(files: Files, _states: list[Files]) -> bytes:
    return files["-shm"][:90]


def _half_written(files: Files, _states: list[Files]) -> bytes:
    return files["-shm"][:16] + b"\1\0\0\0" + files["-shm"][20:]


def _flipped(files: Files, _states: list[Files]) -> bytes:
    head = bytearray(files["-shm"][:48])
    head[17] ^= 1
    return bytes(head * 2) + files["-shm"][96:]


def _of_another_log(files: Files, states: list[Files]) -> bytes:
    head = bytearray(files["-shm"][:40])
    head[32] ^= 1
    one = two = 0
    for at in range(0, 40, 8):
        one = (one + int.from_bytes(head[at : at + 4], "little") + two) & 0xFFFFFFFF
        two = (two + int.from_bytes(head[at + 4 : at + 8], "little") + one) & 0xFFFFFFFF
    head += one.to_bytes(4, "little") + two.to_bytes(4, "little")
    return bytes(head * 2) + files["-shm"][96:]


@pytest.mark.parametrize("index", [_none, _zeros, _short, _half_written, _flipped, _of_another_log])
def test_a_shm_that_is_not_to_be_believed_says_nothing(
    left: tuple[Path, list[Files]], index: object
) -> None:
    """A cut WAL is then what a power cut leaves."""
    path, states = left
    files = {**states[-1], "-wal": states[-1]["-wal"][:-1]}
    made = index(files, states)  # type: ignore[operator]
    del files["-shm"]
    put(files if made is None else {**files, "-shm": made}, path)
    with StateBackend(path.parent).open(path.stem) as session:
        assert session.recovery is None
        assert session.counts().events == 5


def test_after_a_power_cut_a_shm_is_never_newer_than_its_wal(
    left: tuple[Path, list[Files]],
) -> None:
    """It may have been written at any time before, and the WAL be torn behind what it counts."""
    path, states = left
    for at, older in enumerate(states[:-1]):
        synced = 32 + frames(older) * FRAME
        ends = (synced, synced + 1000, len(states[at + 1]["-wal"]) - 1)
        for end, room in product(ends, (0, 3 * FRAME)):
            log = states[at + 1]["-wal"][:end]
            put({**older, "-wal": log + bytes(room)}, path)
            with StateBackend(path.parent).open(path.stem) as session:
                assert session.recovery is None
                assert session.counts().events == at + 1
            assert not list(path.parent.glob("*.corrupt*"))


@pytest.mark.parametrize("log", [None, b""])
def test_beside_no_wal_a_shm_says_nothing(
    left: tuple[Path, list[Files]], log: bytes | None
) -> None:
    """If the power goes as a session is closed, its shm may come back without the WAL."""
    path, states = left
    files = {**states[-1], "-wal": log or b""}
    if log is None:
        del files["-wal"]
    put(files, path)
    with StateBackend(path.parent).open(path.stem) as session:
        assert session.recovery is None


def test_a_wal_that_is_begun_anew_meanwhile_lost_nothing(
    left: tuple[Path, list[Files]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the shm says counts only if it says so before and after."""
    path, states = left
    put({**states[-1], "-wal": states[0]["-wal"]}, path)
    read = shm.read
    said = [read(path), None]
    monkeypatch.setattr(shm, "read", lambda _path: said.pop(0))
    log = wal.read(path)
    assert log is not None
    assert (log.lost_frames, len(log.live), said) == (0, frames(states[0]), [])


def test_a_shm_that_is_a_link_is_not_followed(left: tuple[Path, list[Files]]) -> None:
    """What it says is another session's."""
    path, states = left
    put(states[-1], path)
    index = Path(f"{path}-shm")
    index.rename(f"{path}.elsewhere")
    index.symlink_to(f"{path}.elsewhere")
    assert shm.read(path) is None
