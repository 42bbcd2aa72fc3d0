"""WAL and rollback journal: apply them, but only if they belong to this session.

SQLite would apply those of another session as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from statebackend.files.header import page_count_of
from statebackend.files.wal import Wal
from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.images import JOURNAL, WAL, Images, Place
from statebackend.recovery.salvage.shapes import is_word
from statebackend.values.ids import is_session_id
from statebackend.values.tables import COLUMNS

_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_LEAST_EVIDENCE = 4
_WAL_IS_GONE = "its own WAL is gone; rows that only the WAL held are lost and cannot be counted"
_WAL_WAS_CUT = (
    "{} committed frames at the end of the WAL are missing or broken; rows that only they held "
    "cannot be counted"
)
_PAGE_1_IS_OLDER = (
    "page 1 is older than the other pages, or its page count is damaged; the newest rows may be "
    "missing, and cannot be counted"
)
_FOREIGN_WAL = "the WAL belongs to another session; it is kept, but not used"
_OLDER_WAL = "the WAL is older than the file; it is used only for rows that the file lost"
_BROKEN_FRAME = (
    "{} transactions behind a broken frame of the WAL were used; SQLite would ignore them"
)
_FOREIGN_JOURNAL = "the rollback journal belongs to another session; it is kept, but not used"
_ROLLED_BACK = "the rollback journal was rolled back"
_EVENT_COLUMNS, _META_COLUMNS = len(COLUMNS["events"]), len(COLUMNS["session_meta"])
_IS_TABLE = {
    cells.LEAF_TABLE: True,
    cells.INTERIOR_TABLE: True,
    cells.LEAF_INDEX: False,
    cells.INTERIOR_INDEX: False,
}
Pages = list[tuple[int, Place]]


def apply_sidecars(images: Images, session_id: str) -> tuple[list[str], tuple[str, ...]]:
    """Roll the journal back and apply the WAL, where they belong to the session.

    Return notes, and why rows may be lost that cannot be counted. After a checkpoint, the file of
    a running session has the same bytes as that of a closed one, so it does not show whether a WAL
    is missing.
    """
    notes: list[str] = []
    uncounted: tuple[str, ...] = ()
    if pages := _read_journal(images):
        if _belong_to_session(images, pages, session_id, without_evidence=False):
            for page, place in pages:
                images.overlay(page, place)
            # Drop the pages that the transaction appended, if the restored header says so too.
            before = images.read(JOURNAL, 16, 4)
            if images.page(1)[28:32] == before:
                images.page_count = min(images.page_count, int.from_bytes(before, "big"))
            notes.append(_ROLLED_BACK)
        else:
            notes.append(_FOREIGN_JOURNAL)
    if images.wal is not None:
        note = _apply_wal(images, images.wal, session_id)
        if note in {_FOREIGN_WAL, _OLDER_WAL}:
            uncounted = (_WAL_IS_GONE,)
        elif images.wal is not None and (lost := images.wal.lost_frames):
            uncounted = (_WAL_WAS_CUT.format(lost),)
        notes += [note] if note else []
    counted = page_count_of(images.page(1))
    if counted is not None and counted < min(images.page_count, images.size // images.page_size):
        uncounted += (_PAGE_1_IS_OLDER,)
    return notes, uncounted


def _apply_wal(images: Images, wal: Wal, session_id: str) -> str:
    """Apply the committed frames of the WAL; return a note, empty if there is nothing to say."""
    pages = [(frame.page, Place(WAL, frame.offset)) for frame in (*wal.live, *wal.behind)]
    if (
        wal.page_size != images.page_size
        or _lacks_pages(images, wal)
        or not _belong_to_session(images, pages, session_id, without_evidence=True)
    ):
        images.wal = None
        return _FOREIGN_WAL
    if pages and _is_older(images, pages):
        images.older += reversed(pages)
        return _OLDER_WAL
    for page, place in pages:
        images.overlay(page, place)
    for frame in wal.broken:
        place = images.place(frame.page)
        if place.source != WAL or place.offset < frame.offset:
            images.outdated.add(frame.page)
    return _BROKEN_FRAME.format(wal.lost_commits) if wal.behind and wal.lost_commits else ""


def _belong_to_session(
    images: Images, pages: Pages, session_id: str, *, without_evidence: bool
) -> bool:
    """Return whether these images are of the same session as the file."""
    # A session only grows. So of two images of a page, the newer one has the events of the older
    # one; those of another session differ. Where there are few such pages, any page of the file
    # shows whether a sequence has the same id. Where nothing can be compared, the answer is
    # *without_evidence*: a running session has a WAL, but no journal.
    theirs = {
        event for _page, place in pages for event in _read_events(images, images.image(place))
    }
    ours = {
        event
        for page in dict(pages)
        if 1 < page <= images.size // images.page_size
        for event in _read_events(images, images.image_in_file(page))
    }
    if min(len(ours), len(theirs)) >= _LEAST_EVIDENCE:
        return len(ours & theirs) * 2 >= min(len(ours), len(theirs))
    ids = dict(theirs)
    same = [
        event_id == ids[sequence]
        for page in range(2, images.file_pages + 1)
        for sequence, event_id in _read_events(images, images.image_in_file(page))
        if sequence in ids
    ]
    if len(same) >= _LEAST_EVIDENCE:
        return sum(same) * 2 >= len(same)
    session_ids = {
        text.decode(errors="replace")
        for _page, place in pages
        for sequence, text in _read_ids(images, images.image(place))
        if sequence is None
    }
    differs = any(map(is_session_id, session_ids)) or _differ_in_kind(images, pages)
    return session_id in session_ids or (without_evidence and not differs)


def _lacks_pages(images: Images, wal: Wal) -> bool:
    """Return whether pages behind the end of a whole file are missing in the WAL too."""
    is_whole = images.stated_pages * images.page_size == images.size > 0
    if not is_whole or not wal.live or wal.behind:
        return False
    in_wal = {frame.page for frame in wal.live}
    last = wal.live[-1].pages_after
    return any(page not in in_wal for page in range(images.page_count + 1, last + 1))


def _differ_in_kind(images: Images, pages: Pages) -> bool:
    """Return whether most pages are of a table in the file and of an index here, or vice versa."""
    # A page never changes its kind, since nothing is ever deleted. Two may have been swapped.
    same = different = 0
    for page, place in pages:
        if 1 < page <= images.size // images.page_size:
            in_file = _IS_TABLE.get(images.image_in_file(page)[0])
            here = _IS_TABLE.get(images.image(place)[0])
            if in_file is not None and here is not None:
                same += in_file == here
                different += in_file != here
    return different > 1 and different >= same


def _is_older(images: Images, pages: Pages) -> bool:
    """Return whether the file has later events than these images of the WAL."""
    # A WAL with events has the newest ones, since they lie in the last page.
    in_wal = _highest(images, (images.image(place) for _page, place in pages))
    in_file = _highest(images, map(images.image_in_file, range(1, images.file_pages + 1)))
    return 0 < in_wal < in_file


def _highest(images: Images, pages: Iterable[bytes]) -> int:
    """Return the highest sequence of an event whose predecessor is there, else of any, else 0."""
    # A sequence without its predecessor may be damaged.
    sequences = {
        sequence
        for page in pages
        for sequence, _text in _read_ids(images, page)
        if sequence is not None
    }
    followers = (sequence for sequence in sequences if sequence - 1 in sequences)
    return max(followers, default=max(sequences, default=0))


def _read_events(images: Images, page: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the events in a page of their table or index as (sequence, id), which never change."""
    if page[0] in {cells.LEAF_INDEX, cells.INTERIOR_INDEX}:
        for record in cells.index_records(page, 0, images.usable):
            if len(record) == 2 and isinstance(record[0], bytes) and not is_word(record[0]):
                yield record[1], record[0]
    for sequence, text in _read_ids(images, page):
        if sequence is not None:
            yield sequence, text


def _read_ids(images: Images, page: bytes) -> Iterator[tuple[int | None, bytes]]:
    """Return (sequence, id) of the events in a page, and (None, id) of ``session_meta``."""
    if page[0] != cells.LEAF_TABLE:
        return
    for cell in cells.leaf_cells(page, 0, images.usable):
        count, types = len(cell.types), cell.types
        if count >= _EVENT_COLUMNS and types[0] == 0 and types[1] >= 12 and types[2] >= 12:
            yield cell.rowid, cells.first_text(cell)
        elif count >= _META_COLUMNS - 1 and types[0] >= 12 and types[3:4] > (12,):
            yield None, cells.first_text(cell)


def _read_journal(images: Images) -> list[tuple[int, Place]]:
    """Return number and place of the page images in the journal whose checksum is right."""
    # Each sync of a journal starts a segment, with a header at the start of a sector.
    pages: list[tuple[int, Place]] = []
    at = 0
    while (header := _read_segment_header(images, at)) is not None:
        nonce, sector = header
        at += sector
        while (page := _read_page_number(images, at, nonce)) is not None:
            pages.append((page, Place(JOURNAL, at + 4)))
            at += images.page_size + 8
        at = -(-at // sector) * sector
    return pages


def _read_segment_header(images: Images, at: int) -> tuple[int, int] | None:
    """Return nonce and sector size of the segment at *at*, None if there is none."""
    head = images.read(JOURNAL, at, 28)
    if len(head) < 28 or head[:8] != _JOURNAL_MAGIC:
        return None
    _count, nonce, _pages, sector, page_size = struct.unpack(">IIIII", head[8:])
    if page_size != images.page_size or not 28 <= sector <= 65536:
        return None
    return nonce, sector


def _read_page_number(images: Images, at: int, nonce: int) -> int | None:
    """Return the page number of the record at *at*, None if it is not valid."""
    record = images.read(JOURNAL, at, images.page_size + 8)
    if len(record) < images.page_size + 8:
        return None
    page, image = int.from_bytes(record[:4], "big"), record[4:-4]
    total = (nonce + sum(image[images.page_size - 200 : 0 : -200])) & 0xFFFFFFFF
    return page if page and total == int.from_bytes(record[-4:], "big") else None
