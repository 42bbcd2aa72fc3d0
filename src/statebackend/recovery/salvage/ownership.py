"""Whose are the sidecars? A log or journal of another session must not be laid over this file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from statebackend.files.header import page_count_of
from statebackend.files.wal import Wal
from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.images import FILE, JOURNAL, LOG, Images
from statebackend.recovery.salvage.survey import is_word
from statebackend.values.ids import is_session_id

_LEAST_EVIDENCE = 4
_OWN_LOG_IS_GONE = (
    "its own write-ahead log is gone; of what that held and the file does not, nothing tells"
)
_LOG_WAS_CUT = (
    "{} committed frames at the end of its write-ahead log are gone or broken; of what they held, "
    "not all can be told"
)
_FIRST_PAGE_IS_OLDER = (
    "its first page is older than the others, or damaged where it counts them; of what the newest "
    "pages held, nothing tells that all is there"
)
_EVENT_COLUMNS, _META_COLUMNS = 9, 7
_TABLES = {
    cells.LEAF_TABLE: True,
    cells.INTERIOR_TABLE: True,
    cells.LEAF_INDEX: False,
    cells.INTERIOR_INDEX: False,
}
_FOREIGN = "the write-ahead log is another session's; kept, not used"
_OLDER = "the write-ahead log is older than the file; used for lost rows only"


def lay_sidecars(images: Images, session_id: str) -> tuple[list[str], tuple[str, ...]]:
    """Lay the images of journal and log over the file's, where they are its own.

    Return notes, and why rows may be gone that nobody can count. A file that was folded into while
    it was written has the same bytes as one that was closed, so it cannot tell that nothing is.
    """
    notes = []
    uncounted: tuple[str, ...] = ()
    if journal := images.journal_pages():
        notes.append(_lay_journal(images, journal, session_id))
    if images.log is not None:
        notes.append(_lay_log(images, images.log, session_id))
        if notes[-1] in {_FOREIGN, _OLDER}:
            uncounted = (_OWN_LOG_IS_GONE,)
        elif images.log is not None and (lost := images.log.lost_frames):
            uncounted = (_LOG_WAS_CUT.format(lost),)
    counted = page_count_of(images.page(1))
    if counted is not None and counted < min(images.page_count, images.size // images.page_size):
        uncounted += (_FIRST_PAGE_IS_OLDER,)
    return [note for note in notes if note], uncounted


def _lay_journal(images: Images, journal: list[tuple[int, int]], session_id: str) -> str:
    places = [(page, JOURNAL, at) for page, at in journal]
    if not _are_ours(images, places, session_id, unless_shown=False):
        return "the rollback journal is another session's; kept, not used"
    for page, at in journal:
        images.lay(JOURNAL, page, at)
    images.cut_to_journal()
    return "a rollback journal was laid over the file"


def _lay_log(images: Images, log: Wal, session_id: str) -> str:
    frames = [*log.live, *log.behind]
    places = [(frame.page, LOG, frame.offset) for frame in frames]
    if (
        log.page_size != images.page_size
        or _leaves_out_pages(images, log)
        or not _are_ours(images, places, session_id, unless_shown=True)
    ):
        images.log = None
        return _FOREIGN
    if frames and _is_outdated(images, [place[1:] for place in places]):
        images.older += [(frame.page, LOG, frame.offset) for frame in reversed(frames)]
        return _OLDER
    for frame in frames:
        images.lay(LOG, frame.page, frame.offset)
    for frame in log.broken:
        which, offset = images.place(frame.page)
        if which != LOG or offset < frame.offset:
            images.outdated.add(frame.page)
    if not log.behind or not log.lost_commits:
        return ""
    return (
        f"{log.lost_commits} transactions behind a broken frame of the write-ahead log, which "
        "SQLite would not use, were used"
    )


def _are_ours(
    images: Images, places: list[tuple[int, int, int]], session_id: str, *, unless_shown: bool
) -> bool:
    """Tell whether these images (page, file, offset) are of the same session as the file.

    A session only grows. So the events of a page of the file are in the images that would hide such
    pages, or the other way round where those are older; another session's hold other events. Where
    few are left of those pages, any other page shows whether a sequence is the same event's.
    Where nothing can be compared, the answer is *unless_shown*: a session has a log in its ordinary
    life, but no journal.
    """
    theirs = {one for _page, which, at in places for one in _held(images, images.image(which, at))}
    ours = {
        one
        for page in {page for page, _which, _at in places}
        if 1 < page <= images.size // images.page_size
        for one in _held(images, images.image(FILE, (page - 1) * images.page_size))
    }
    if min(len(ours), len(theirs)) >= _LEAST_EVIDENCE:
        return len(ours & theirs) * 2 >= min(len(ours), len(theirs))
    given = dict(theirs)
    everywhere = (
        images.image(FILE, at) for at in range(images.page_size, images.size, images.page_size)
    )
    alike = [
        one == given[number]
        for page in everywhere
        for number, one in _held(images, page)
        if number in given
    ]
    if len(alike) >= _LEAST_EVIDENCE:
        return sum(alike) * 2 >= len(alike)
    named = {
        value.decode(errors="replace")
        for _page, which, at in places
        for number, value in _known(images, images.image(which, at))
        if number is None
    }
    if session_id in named:
        return True
    if any(map(is_session_id, named)) or _differ_in_kind(images, places):
        return False
    return unless_shown


def _leaves_out_pages(images: Images, log: Wal) -> bool:
    """Tell whether pages behind the end of a whole file are neither in it nor in its log."""
    if not images.is_whole() or not log.live or log.behind:
        return False
    there = {frame.page for frame in log.live}
    return any(
        page not in there for page in range(images.page_count + 1, log.live[-1].pages_after + 1)
    )


def _differ_in_kind(images: Images, places: list[tuple[int, int, int]]) -> bool:
    """Tell whether most pages are of a table in the file and of an index here, or the other way.

    A page never changes that, since nothing is ever deleted. Two may lie in each other's place.
    """
    same = other = 0
    for page, which, at in places:
        if 1 < page <= images.size // images.page_size:
            there = _TABLES.get(images.image(FILE, (page - 1) * images.page_size)[0])
            here = _TABLES.get(images.image(which, at)[0])
            if there is not None and here is not None:
                same += there == here
                other += there != here
    return other > 1 and other >= same


def _held(images: Images, page: bytes) -> Iterator[tuple[int, bytes]]:
    """Return (row number, id) of the events that a page holds, or an index of them.

    These never change, and no two sessions share one, as they do the rest of their rows.
    """
    if page[0] in {cells.LEAF_INDEX, cells.INTERIOR_INDEX}:
        for record in cells.index_records(page, 0, images.usable):
            if len(record) == 2 and isinstance(record[0], bytes) and not is_word(record[0]):
                yield record[1], record[0]
        return
    for number, value in _known(images, page):
        if number is not None:
            yield number, value


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
    for cell in cells.leaf_cells(page, header, images.usable):
        record = page[cell.header : cell.header + cell.local]
        count, types = len(cell.types), cell.types
        if count >= _EVENT_COLUMNS and types[0] == 0 and types[1] >= 12 and types[2] >= 12:
            yield cell.rowid, cells.first_text(record, types)
        elif count >= _META_COLUMNS - 1 and types[0] >= 12 and types[3:4] > (12,):
            yield None, cells.first_text(record, types)
