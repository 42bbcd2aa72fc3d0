"""The WAL as bytes: which frames are committed, and which of those SQLite ignores.

SQLite reads a WAL up to the first frame whose checksum is wrong, and later overwrites the rest.
A frame's checksum continues that of the frame before, so a frame behind a broken one can still be
checked, starting from the checksum stored in the broken one.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from statebackend.files import shm
from statebackend.files.paths import SessionFiles
from statebackend.files.shm import ShmHeader

_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}
_HEADER, _FRAME_HEADER = 32, 24
_AT_ONCE_BYTES = 1 << 20
_PAGE_1 = b"\0\0\0\1"
_Sums = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Frame:
    """One page image: its page number, and where the image starts in the WAL (bytes).

    ``pages_after`` is the size of the database in pages if the frame ends a transaction, else 0.
    """

    page: int
    offset: int
    pages_after: int


@dataclass(frozen=True, slots=True)
class Wal:
    """The frames of a WAL, each list in the order of writing.

    ``live`` are the frames that SQLite uses. ``behind`` are intact frames of committed transactions
    behind a broken frame, ``broken`` the broken frames of those transactions. ``tail`` is a last
    transaction that was torn by a power cut or damaged, so whether it was committed is unknown;
    frames that the shm counts as committed are never part of it. ``stale`` are intact frames from
    before the last restart of the WAL, which were checkpointed.
    """

    page_size: int
    live: tuple[Frame, ...]
    behind: tuple[Frame, ...]
    broken: tuple[Frame, ...]
    tail: tuple[Frame, ...]
    stale: tuple[Frame, ...]
    lost_commits: int
    """Transactions behind a broken frame that were acknowledged, since later ones were begun."""
    lost_frames: int
    """Frames that the shm counts as committed, behind the end of the last complete transaction."""


@dataclass(frozen=True, slots=True)
class _CheckedFrame:
    frame: Frame
    salts: bytes
    intact: bool


def read(path: Path, page_size: int | None = None) -> Wal | None:
    """Read the WAL of the session file *path*; None when it is missing or holds no frame.

    *page_size* (bytes) is the file's, for a WAL whose own header is damaged. Opens the files
    directly, so call it only while this process has no connection on the session.
    """
    try:
        descriptor = os.open(SessionFiles(path).wal, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        shm_header = shm.read(path)
        content = _read(descriptor, page_size, shm_header)
        if content is None or not content.lost_frames or shm.read(path) == shm_header:
            return content
        return _read(descriptor, page_size, None)  # a writer appended or restarted it
    finally:
        os.close(descriptor)


def stated_page_size(descriptor: int) -> int | None:
    """Return the page size (bytes) in the header of the WAL *descriptor*, None if it is damaged."""
    head = os.pread(descriptor, _HEADER, 0)
    _order, seed, _salts = _parse_header(head)
    return None if seed is None else _page_size(head[8:12])


def newest_page_1(descriptor: int) -> bytes | None:
    """Return the newest committed image of page 1 in the WAL *descriptor*, None if it has none.

    Only frames of page 1 are checked, so this is fast on a long WAL. An image whose checksum is
    wrong does not count.
    """
    wal_head = os.pread(descriptor, _HEADER, 0)
    order, _seed, salts = _parse_header(wal_head)
    if order is None or salts is None:
        return None
    page_size = _page_size(wal_head[8:12])
    committed: list[int] = []
    uncommitted: list[int] = []
    position = _HEADER
    while len(head := os.pread(descriptor, _FRAME_HEADER, position)) == _FRAME_HEADER:
        page, pages_after = struct.unpack(">II", head[:8])
        if head[8:16] != salts:  # from before the last restart of the WAL
            break
        if page == 1:
            uncommitted.append(position)
        if pages_after:
            committed += uncommitted
            uncommitted.clear()
        position += _FRAME_HEADER + page_size
    for at in reversed(committed):
        before = 24 if at == _HEADER else at - page_size - 8
        sums = os.pread(descriptor, 8, before)
        image = os.pread(descriptor, _FRAME_HEADER + page_size, at)
        # A writer may have restarted the WAL and written another page here, or a checkpoint may
        # have truncated it.
        same = image[:4] == _PAGE_1 and image[8:16] == salts
        complete = same and len(image) == _FRAME_HEADER + page_size
        if complete and _frame_sums(order, [_stored(sums)], image) == [_stored(image[16:24])]:
            return image[_FRAME_HEADER:]
    return None


def _page_size(stored: bytes) -> int:
    size = int.from_bytes(stored, "big")
    return 65536 if size == 1 else size


def _read(descriptor: int, page_size: int | None, shm_header: ShmHeader | None) -> Wal | None:
    head = os.pread(descriptor, _HEADER, 0)
    order, seed, salts = _parse_header(head)
    if order is None:
        order = "<"
    elif seed is not None or page_size is None:
        page_size = _page_size(head[8:12])
    if page_size is None or not 512 <= page_size <= 65536 or page_size & (page_size - 1):
        return None
    frames = _read_frames(descriptor, page_size, order, seed)
    if salts is None:
        salts = _newest_salts(frames, shm_header)
    committed = 0
    if shm_header is not None and (shm_header.salts, shm_header.page_size) == (salts, page_size):
        committed = shm_header.committed
    if salts is None or not (frames or committed):
        return None
    return _classify(page_size, frames, salts, committed, valid_header=seed is not None)


def _newest_salts(frames: list[_CheckedFrame], shm_header: ShmHeader | None) -> bytes | None:
    """Return the salts of the newest frames of a WAL whose header is damaged; None without one.

    The first salt goes up by one with each restart. Frames with a damaged header, and zeros behind
    the last frame, do not count.
    """
    if shm_header is not None and any(each.salts == shm_header.salts for each in frames):
        return shm_header.salts
    intact = [each.salts for each in frames if each.intact]
    return max(intact, default=next((each.salts for each in frames if any(each.salts)), None))


def _parse_header(head: bytes) -> tuple[str | None, tuple[int, int] | None, bytes | None]:
    """Return byte order, checksum and salts of the WAL header; the last two None if damaged."""
    if len(head) < _HEADER:
        return None, None, None
    order = _MAGIC.get(int.from_bytes(head[:4], "big"))
    if order is None:
        return None, None, None
    stored = _stored(head[24:32])
    if _sums(order, [(0, 0)], head, range(3)) != [stored]:
        return order, None, None
    return order, stored, head[16:24]


def _read_frames(
    descriptor: int, page_size: int, order: str, seed: _Sums | None
) -> list[_CheckedFrame]:
    checked = []
    size = _FRAME_HEADER + page_size
    position = _HEADER
    at_once = max(1, _AT_ONCE_BYTES // size) * size
    while count := len(content := os.pread(descriptor, at_once, position)) // size:
        frames = content[: count * size]  # without a frame that is not complete
        heads = [frames[at : at + _FRAME_HEADER] for at in range(0, len(frames), size)]
        stored = [_stored(head[16:]) for head in heads]
        sums = _frame_sums(order, [seed or (0, 0), *stored[:-1]], frames)
        for head, ours, theirs in zip(heads, sums, stored, strict=True):
            page, pages_after = struct.unpack(">II", head[:8])
            intact = page > 0 and seed is not None and ours == theirs
            frame = Frame(page, position + _FRAME_HEADER, pages_after)
            checked.append(_CheckedFrame(frame, head[8:16], intact))
            seed = theirs
            position += size
    return checked


def _classify(
    page_size: int, frames: list[_CheckedFrame], salts: bytes, committed: int, *, valid_header: bool
) -> Wal:
    current = [each.salts == salts for each in frames]
    usable = 0
    while valid_header and usable < len(frames) and current[usable] and frames[usable].intact:
        usable += 1
    live = next((at + 1 for at in reversed(range(usable)) if frames[at].frame.pages_after), 0)
    ends = [at for at in range(usable, len(frames)) if current[at] and frames[at].frame.pages_after]
    # A transaction at or behind the broken frame was acknowledged if anything was written after it.
    # Otherwise it may be the last one, torn by a power cut, which never damages the WAL header.
    last = max((at for at in range(len(frames)) if current[at]), default=-1)
    lost = [
        at for at in ends if at < last or at < committed or (frames[at].intact and at > ends[0])
    ]
    if not valid_header:
        lost = [at for at in ends if frames[at].intact]
    stop = max(lost[-1] + 1 if lost else live, min(committed, len(frames)))
    acknowledged = range(live, stop)
    behind = [at for at in acknowledged if current[at] and frames[at].intact]
    intact_ends = [at for at in (*range(live), *behind) if frames[at].frame.pages_after]
    return Wal(
        page_size,
        live=tuple(each.frame for each in frames[:live]),
        behind=tuple(frames[at].frame for at in behind),
        broken=tuple(frames[at].frame for at in acknowledged if not frames[at].intact),
        tail=tuple(frames[at].frame for at in range(stop, last + 1)),
        stale=tuple(
            each.frame
            for each, is_current in zip(frames, current, strict=True)
            if each.intact and not is_current
        ),
        lost_commits=len(lost),
        lost_frames=max(0, committed - (intact_ends[-1] + 1 if intact_ends else 0)),
    )


def _stored(sums: bytes) -> _Sums:
    first, second = struct.unpack(">II", sums)
    return first, second


def _frame_sums(order: str, seeds: Sequence[_Sums], frames: bytes) -> list[_Sums]:
    """Return the checksum of each frame: over the first 8 bytes of its header, and its page."""
    groups = len(frames) // len(seeds) // 8
    return _sums(order, seeds, frames, (0, *range(_FRAME_HEADER // 8, groups)))


def _sums(order: str, seeds: Sequence[_Sums], runs: bytes, groups: Iterable[int]) -> list[_Sums]:
    """Return SQLite's checksum of each of several *runs* of bytes, each continuing its seed.

    The runs are equally long and follow each other; *groups* are the 8-byte groups of each run to
    sum. All runs are summed at once, seven times as fast as word by word: each run has 64 bits in
    three large integers, of which its sums need 34.
    """
    count = len(seeds)
    words = array("I", runs)
    if order == ">":
        words.byteswap()
    pairs = memoryview(words).cast("B").cast("Q")
    step = len(pairs) // count
    low = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * count, "little")
    first, second = (
        int.from_bytes(struct.pack(f"<{count}Q", *column), "little")
        for column in zip(*seeds, strict=True)
    )
    for at in groups:
        group = int.from_bytes(pairs[at::step], "little")
        first = (first + (group & low) + second) & low
        second = (second + (group >> 32 & low) + first) & low
    columns = (
        struct.unpack(f"<{count}Q", sums.to_bytes(8 * count, "little")) for sums in (first, second)
    )
    return list(zip(*columns, strict=True))
