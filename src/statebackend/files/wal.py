"""The write-ahead log as bytes: which frames are committed, and which SQLite would not use.

SQLite reads a log up to the first frame whose checksum is wrong, and later writes over the rest.
Each frame's checksum goes on from the one before it, so a frame behind a broken one can still be
checked from the sum that is stored there.
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
    """One page image: its page number, where it starts in the log (bytes), and its end mark.

    ``pages_after`` is the size of the database in pages if the frame ends a transaction, else 0.
    """

    page: int
    offset: int
    pages_after: int


@dataclass(frozen=True, slots=True)
class Wal:
    """What a log holds, each list in the order of writing.

    ``live`` is what SQLite uses. ``behind`` are frames behind a broken one that belong to committed
    transactions, ``broken`` the broken ones among those. ``tail`` is a last transaction of which
    nobody can tell whether it was committed: torn by a power cut, or damaged. ``stale`` are whole
    frames of an earlier round of the log, which were folded into the file. Where the index beside
    the log tells how many frames were committed, those are no ``tail``, whether broken or not.
    """

    page_size: int
    live: tuple[Frame, ...]
    behind: tuple[Frame, ...]
    broken: tuple[Frame, ...]
    tail: tuple[Frame, ...]
    stale: tuple[Frame, ...]
    lost_commits: int
    """Transactions behind a broken frame that were acknowledged, since others were begun later."""
    lost_frames: int
    """Frames that were committed, by the index, behind the last transaction whose end is there."""


@dataclass(frozen=True, slots=True)
class _Read:
    frame: Frame
    salts: bytes
    whole: bool


def read(path: Path, page_size: int | None = None) -> Wal | None:
    """Read the log beside the session file *path*; None when there is none, or no frame in it.

    *page_size* (bytes) is the file's, for a log whose own header is damaged. Plain file calls: only
    while this process has no connection on the session.
    """
    try:
        descriptor = os.open(SessionFiles(path).wal, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        index = shm.read(path)
        found = _read(descriptor, page_size, index)
        if found is None or not found.lost_frames or shm.read(path) == index:
            return found
        return _read(descriptor, page_size, None)  # somebody writes, or has begun it anew
    finally:
        os.close(descriptor)


def stated_page_size(descriptor: int) -> int | None:
    """Return the page size (bytes) in the header of the log *descriptor*, None if it is damaged."""
    head = os.pread(descriptor, _HEADER, 0)
    _order, seed, _salts = _header(head)
    return None if seed is None else _page_size(head[8:12])


def newest_page_1(descriptor: int) -> bytes | None:
    """Return the newest committed image of page 1 in the log *descriptor*, None if it has none.

    Only frames of that page are checked, so it costs little on a long log. An image whose checksum
    is wrong does not count.
    """
    begin = os.pread(descriptor, _HEADER, 0)
    order, _seed, salts = _header(begin)
    if order is None or salts is None:
        return None
    page_size = _page_size(begin[8:12])
    committed: list[int] = []
    waiting: list[int] = []
    position = _HEADER
    while len(head := os.pread(descriptor, _FRAME_HEADER, position)) == _FRAME_HEADER:
        page, pages_after = struct.unpack(">II", head[:8])
        if head[8:16] != salts:  # left over from before the log was last reset
            break
        if page == 1:
            waiting.append(position)
        if pages_after:
            committed += waiting
            waiting.clear()
        position += _FRAME_HEADER + page_size
    for at in reversed(committed):
        before = 24 if at == _HEADER else at - page_size - 8
        sums = os.pread(descriptor, 8, before)
        image = os.pread(descriptor, _FRAME_HEADER + page_size, at)
        # A writer may have begun the log anew meanwhile, and have put another page there, or a
        # fold have cut it.
        same = image[:4] == _PAGE_1 and image[8:16] == salts
        whole = same and len(image) == _FRAME_HEADER + page_size
        if whole and _frame_sums(order, [_stored(sums)], image) == [_stored(image[16:24])]:
            return image[_FRAME_HEADER:]
    return None


def _page_size(stored: bytes) -> int:
    size = int.from_bytes(stored, "big")
    return 65536 if size == 1 else size


def _read(descriptor: int, page_size: int | None, index: ShmHeader | None) -> Wal | None:
    head = os.pread(descriptor, _HEADER, 0)
    order, seed, salts = _header(head)
    if order is None:
        order = "<"
    elif seed is not None or page_size is None:
        page_size = _page_size(head[8:12])
    if page_size is None or not 512 <= page_size <= 65536 or page_size & (page_size - 1):
        return None
    frames = _frames(descriptor, page_size, order, seed)
    if salts is None:
        salts = _newest_salts(frames, index)
    of_it = index is not None and (index.salts, index.page_size) == (salts, page_size)
    committed = index.committed if index is not None and of_it else 0
    if salts is None or not (frames or committed):
        return None
    return _judged(page_size, frames, salts, committed, sound_header=seed is not None)


def _newest_salts(frames: list[_Read], index: ShmHeader | None) -> bytes | None:
    """Return the salts of the log's last round, whose header is damaged; None without a frame.

    The first of them is counted up with each round. A frame whose own header was hit says nothing,
    nor does room without a frame (zeros).
    """
    if index is not None and any(one.salts == index.salts for one in frames):
        return index.salts
    whole = [one.salts for one in frames if one.whole]
    return max(whole, default=next((one.salts for one in frames if any(one.salts)), None))


def _header(head: bytes) -> tuple[str | None, tuple[int, int] | None, bytes | None]:
    """Return byte order, checksum and salts of the log's header; the last two None if damaged."""
    if len(head) < _HEADER:
        return None, None, None
    order = _MAGIC.get(int.from_bytes(head[:4], "big"))
    if order is None:
        return None, None, None
    stored = _stored(head[24:32])
    if _sums(order, [(0, 0)], head, range(3)) != [stored]:
        return order, None, None
    return order, stored, head[16:24]


def _frames(descriptor: int, page_size: int, order: str, seed: _Sums | None) -> list[_Read]:
    found = []
    size = _FRAME_HEADER + page_size
    position = _HEADER
    while frames := _several(descriptor, size, position):
        heads = [frames[at : at + _FRAME_HEADER] for at in range(0, len(frames), size)]
        stored = [_stored(head[16:]) for head in heads]
        sums = _frame_sums(order, [seed or (0, 0), *stored[:-1]], frames)
        for head, ours, theirs in zip(heads, sums, stored, strict=True):
            page, pages_after = struct.unpack(">II", head[:8])
            whole = page > 0 and seed is not None and ours == theirs
            frame = Frame(page, position + _FRAME_HEADER, pages_after)
            found.append(_Read(frame, head[8:16], whole))
            seed = theirs
            position += size
    return found


def _several(descriptor: int, size: int, position: int) -> bytes:
    """Return the whole frames of *size* bytes at *position*, so many as are summed at once."""
    found = os.pread(descriptor, max(1, _AT_ONCE_BYTES // size) * size, position)
    return found[: len(found) // size * size]


def _judged(
    page_size: int, frames: list[_Read], salts: bytes, committed: int, *, sound_header: bool
) -> Wal:
    ours = [one.salts == salts for one in frames]
    intact = 0
    while sound_header and intact < len(frames) and ours[intact] and frames[intact].whole:
        intact += 1
    live = _end_of_last_commit(frames, range(intact))
    ends = [at for at in range(intact, len(frames)) if ours[at] and frames[at].frame.pages_after]
    # A transaction behind or at the break was acknowledged if anything was written after it: else
    # it may be the last one, torn by a power cut. A damaged header is never one's work.
    last = max((at for at in range(len(frames)) if ours[at]), default=-1)
    lost = [at for at in ends if at < last or at < committed or (frames[at].whole and at > ends[0])]
    if not sound_header:
        lost = [at for at in ends if frames[at].whole]
    stop = max(lost[-1] + 1 if lost else live, min(committed, len(frames)))
    acknowledged = range(live, stop)
    behind = [at for at in acknowledged if ours[at] and frames[at].whole]
    whole_ends = [at for at in (*range(live), *behind) if frames[at].frame.pages_after]
    return Wal(
        page_size,
        tuple(one.frame for one in frames[:live]),
        tuple(frames[at].frame for at in behind),
        tuple(frames[at].frame for at in acknowledged if not frames[at].whole),
        tuple(frames[at].frame for at in range(stop, last + 1)),
        tuple(one.frame for one, our in zip(frames, ours, strict=True) if not our and one.whole),
        len(lost),
        max(0, committed - (whole_ends[-1] + 1 if whole_ends else 0)),
    )


def _end_of_last_commit(frames: list[_Read], among: range) -> int:
    for at in reversed(among):
        if frames[at].frame.pages_after:
            return at + 1
    return 0


def _stored(sums: bytes) -> _Sums:
    one, two = struct.unpack(">II", sums)
    return one, two


def _frame_sums(order: str, seeds: Sequence[_Sums], frames: bytes) -> list[_Sums]:
    """Return the checksum of each frame: of its page's number and end mark, and of the page."""
    groups = len(frames) // len(seeds) // 8
    return _sums(order, seeds, frames, (0, *range(_FRAME_HEADER // 8, groups)))


def _sums(order: str, seeds: Sequence[_Sums], runs: bytes, groups: Iterable[int]) -> list[_Sums]:
    """Return SQLite's checksum of each of several *runs* of bytes, going on from its seed.

    The runs are of one length and lie one behind the other; *groups* says which 8 bytes of each
    are summed. It is done in all of them at once, since one word after the other takes Python
    seven times as long: each run has 64 bits of three large numbers, of which the sums take 34.
    """
    count = len(seeds)
    words = array("I", runs)
    if order == ">":
        words.byteswap()
    pairs = memoryview(words).cast("B").cast("Q")
    step = len(pairs) // count
    low = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * count, "little")
    one, two = (
        int.from_bytes(struct.pack(f"<{count}Q", *column), "little")
        for column in zip(*seeds, strict=True)
    )
    for at in groups:
        here = int.from_bytes(pairs[at::step], "little")
        one = (one + (here & low) + two) & low
        two = (two + (here >> 32 & low) + one) & low
    columns = (
        struct.unpack(f"<{count}Q", sums.to_bytes(8 * count, "little")) for sums in (one, two)
    )
    return list(zip(*columns, strict=True))
