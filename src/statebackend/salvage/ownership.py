"""Whose are the sidecars? A log or journal of another session must not be laid over this file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from statebackend.ids import is_session_id
from statebackend.salvage import cells
from statebackend.salvage.images import FILE, JOURNAL, LOG, Images

_EVENT_COLUMNS, _META_COLUMNS = 9, 7


def lay_sidecars(images: Images, session_id: str) -> list[str]:
    """Lay the images of journal and log over the file's, where they are its own; return notes."""
    notes = []
    journal = images.journal_pages()
    if journal:
        if _are_ours(images, [(JOURNAL, at) for _page, at in journal], session_id):
            for page, at in journal:
                images.lay(JOURNAL, page, at)
            notes.append("a rollback journal was laid over the file")
        else:
            notes.append("the rollback journal is another session's; kept, not used")
    log = images.log
    if log is None:
        return notes
    frames = [*log.live, *log.behind]
    places = [(LOG, frame.offset) for frame in frames]
    if log.page_size != images.page_size or not _are_ours(images, places, session_id):
        images.log = None
        notes.append("the write-ahead log is another session's; kept, not used")
        return notes
    if frames and _is_outdated(images, places):
        images.older += [(frame.page, LOG, frame.offset) for frame in reversed(frames)]
        notes.append("the write-ahead log is older than the file; used for lost rows only")
        return notes
    for frame in frames:
        images.lay(LOG, frame.page, frame.offset)
    if log.behind:
        notes.append(
            f"{log.lost_commits} transactions behind a broken frame of the write-ahead log, which "
            "SQLite would not use, were used"
        )
    return notes


def _are_ours(images: Images, places: Iterable[tuple[int, int]], session_id: str) -> bool:
    """Tell whether images agree with the file: same events under the same numbers, same session."""
    theirs: dict[int, bytes] = {}
    their_ids: set[str] = set()
    for which, offset in places:
        for number, value in _known(images, images.image(which, offset)):
            if number is None:
                their_ids.add(value.decode(errors="replace"))
            else:
                theirs[number] = value
    same = different = 0
    for page in range(1, -(-images.size // images.page_size) + 1):
        for number, value in _known(
            images, images.image(FILE, (page - 1) * images.page_size), header=100 * (page == 1)
        ):
            if number is not None and number in theirs:
                same += theirs[number] == value
                different += theirs[number] != value
    if same or different:
        return same >= different
    return session_id in their_ids or not any(is_session_id(one) for one in their_ids)


def _is_outdated(images: Images, places: Iterable[tuple[int, int]]) -> bool:
    """Tell whether the file itself has later events than a log that should be newer.

    A log that holds events holds the newest ones, since they stand in one page at the end.
    """
    in_log = _highest(images, places)
    in_file = _highest(images, [(FILE, at) for at in range(0, images.size, images.page_size)])
    return 0 < in_log < in_file


def _highest(images: Images, places: Iterable[tuple[int, int]]) -> int:
    """Return the highest event that has a neighbour: a lone number may be damage."""
    found = {
        number
        for which, offset in places
        for number, _value in _known(images, images.image(which, offset))
        if number is not None
    }
    return max((number for number in found if number - 1 in found), default=max(found, default=0))


def _known(images: Images, page: bytes, header: int = 0) -> Iterator[tuple[int | None, bytes]]:
    """Return (row number, id) of the events in a page, and (None, id) of ``session_meta``."""
    if page[header] != cells.LEAF_TABLE:
        return
    for start in cells.pointers(page, header, images.usable):
        cell = cells.cell(page, start, images.usable)
        if cell is None:
            continue
        count, types = len(cell.types), cell.types
        if count >= _EVENT_COLUMNS and types[0] == 0 and types[1] >= 12 and types[2] >= 12:
            at = cells.varint(page, cell.header)[0] + cell.header
            yield cell.rowid, page[at : at + cells.value_bytes(types[1])]
        elif count >= _META_COLUMNS - 1 and types[0] >= 12 and types[3:4] > (12,):
            at = cells.varint(page, cell.header)[0] + cell.header
            yield None, page[at : at + cells.value_bytes(types[0])]
