"""Which id is right, where the row of an event and the index of ids do not agree.

The index holds every id with the number of its row, in the order of the ids. Of the two, the odd
one out is what no program stored, or what does not fit where it stands; where neither is, nobody
can tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from statebackend.recovery.salvage.shapes import REPLACEMENT, Row
from statebackend.recovery.salvage.target import Target

Entries = list[tuple[bytes, int]]
"""The entries (id, row number) of one page of an index of ids, in its order."""
_DAMAGED_CHARACTERS = 4
_LEAST_LIKE_IT = 12


@dataclass(frozen=True, slots=True)
class _Entry:
    """The entry at place *at* of a page of the index."""

    page: Entries
    at: int

    @property
    def text(self) -> bytes:
        return self.page[self.at][0]

    def fits(self, text: bytes) -> bool:
        """Tell whether *text* could stand here by the order of the entries beside it."""
        above = self.at == 0 or self.page[self.at - 1][0] < text
        return above and (self.at + 1 == len(self.page) or text < self.page[self.at + 1][0])

    def is_usual(self, text: bytes, differing: Sequence[int]) -> bool:
        """Tell whether *text* has, at the places *differing*, characters that such ids have."""
        like = [
            other
            for at, (other, _number) in enumerate(self.page)
            if at != self.at and len(other) == len(text)
        ]
        if len(like) < _LEAST_LIKE_IT:
            return True
        alphabet = set(b"".join(like))
        for at in differing:
            here = {other[at] for other in like}
            if text[at] not in (here if len(here) == 1 else alphabet):
                return False
        return True


@dataclass(slots=True)
class _Case:
    """An event whose id is not the one that the index has for its number."""

    stored: str
    contested: Row | None = None
    entries: list[_Entry] = field(default_factory=list)
    elsewhere: bool = False
    """Whether the index knows the stored id as another event's."""


def put_right(new: Target, pages: Callable[[], Iterable[Entries]]) -> None:
    """Give each saved event the id that the index of ids has, if the row's is the odd one out.

    Rows that wait since their id is another one's are settled too. *pages* gives the entries of
    the index of ids, by page.
    """
    waiting = {row.values[0]: row for row, _route in new.contested}
    cases = _cases(new, pages, waiting)
    if cases:
        _gather(cases, pages)
    right: dict[int, str] = {}
    for number, case in sorted(cases.items()):
        found = _verdict(new, case, cases)
        if isinstance(found, bytes):
            right[number] = found.decode()
        elif found is not None and number not in waiting:
            _doubt(new, number, case.stored, found.text)
    for number in _rename(new, {n: text for n, text in right.items() if n not in waiting}):
        _doubt(new, number, cases[number].stored, right[number].encode())
    for row, route in new.settled():
        number = row.values[0]
        renamed = number in right and not new.has_copy(row)
        new.insert(_renamed(row, right[number]) if renamed else row, route)


def _cases(
    new: Target, pages: Callable[[], Iterable[Entries]], waiting: dict[int, Row]
) -> dict[int, _Case]:
    cases = {number: _Case(row.values[1], row) for number, row in waiting.items()}
    for text, number in chain.from_iterable(pages()):
        if number not in cases:
            stored = new.event_id(number)
            if stored is not None and stored.encode() != text:
                cases[number] = _Case(stored)
    return cases


def _gather(cases: dict[int, _Case], pages: Callable[[], Iterable[Entries]]) -> None:
    numbers: defaultdict[bytes, list[int]] = defaultdict(list)
    for number, case in cases.items():
        numbers[case.stored.encode()].append(number)
    for page in pages():
        for at, (text, number) in enumerate(page):
            if number in cases:
                cases[number].entries.append(_Entry(page, at))
            for other in numbers.get(text, ()):
                cases[other].elsewhere |= other != number


def _verdict(new: Target, case: _Case, cases: dict[int, _Case]) -> bytes | _Entry | None:
    """Return the id that is right; an entry, if nobody can tell it from the row's; else None."""
    stored = case.stored.encode()
    if any(entry.text == stored for entry in case.entries):
        return None
    found = {
        entry.text: entry
        for entry in case.entries
        if _is_near(case.stored, entry.text) and not _is_taken(new, entry.text, cases)
    }
    if not found:
        return _other(new, case, cases)
    entry = next(iter(found.values()))
    if len(found) > 1:
        return entry
    differing = [at for at, one in enumerate(stored) if entry.text[at : at + 1] != bytes([one])]
    for row_suits, index_suits in (
        (_is_sound(case.stored), True),
        (not case.elsewhere, True),
        (entry.fits(stored), entry.fits(entry.text)),
        (entry.is_usual(stored, differing), entry.is_usual(entry.text, differing))
        if len(stored) == len(entry.text)
        else (True, True),
    ):
        if row_suits != index_suits:
            return entry.text if index_suits else None
    return entry


def _other(new: Target, case: _Case, cases: dict[int, _Case]) -> _Entry | None:
    """Return an entry with quite another id, if no other event has either of them."""
    for entry in case.entries:
        same_length = len(entry.text) == len(case.stored.encode())
        if same_length and not case.elsewhere and _is_sound(entry.text.decode(errors="replace")):
            return None if _is_taken(new, entry.text, cases) else entry
    return None


def _is_near(stored: str, text: bytes) -> bool:
    """Tell whether *text*, if it can be an id, is *stored* but for what damage did to that."""
    try:
        other = text.decode()
    except UnicodeDecodeError:
        return False
    if not _is_sound(other):
        return False
    broken = stored.count(REPLACEMENT) + stored.count("\0")
    if len(stored) != len(other):  # one broken byte may have taken others of its character along
        return 0 < len(text) - len(stored) <= 3 * broken or 0 < len(stored) - len(other) <= broken
    differing = sum(a != b for a, b in zip(stored, other, strict=True))
    return broken > 0 or differing <= min(_DAMAGED_CHARACTERS, max(1, len(other) // 2))


def _is_sound(text: str) -> bool:
    return bool(text) and not {"\0", REPLACEMENT} & set(text)


def _is_taken(new: Target, text: bytes, cases: dict[int, _Case]) -> bool:
    """Tell whether another event has this id, and nothing speaks against that."""
    owner = new.event_with(text.decode())
    return owner is not None and owner not in cases


def _rename(new: Target, right: dict[int, str]) -> list[int]:
    """Give the events their right ids; return the numbers of those whose id another one keeps."""
    left = list(right)
    while left:
        again = [n for n in left if not new.set_event_id(n, right[n], _told(new.event_id(n)))]
        if len(again) == len(left):
            break
        left = again
    return left


def _renamed(row: Row, event_id: str) -> Row:
    values = (row.values[0], event_id, *row.values[2:])
    marred = tuple(name for name in row.marred if name != "id")
    repaired = (*row.repaired, _told(row.values[1]))
    return replace(row, values=values, repaired=repaired, marred=marred)


def _told(stored: str | None) -> str:
    return f"id, from the index (was {stored!r})"


def _doubt(new: Target, number: int, stored: str, text: bytes) -> None:
    new.doubt(
        "events",
        f"events sequence {number}: its id is {stored!r} in its row and {text.decode()!r} in the "
        "index, and nothing tells which is right; the row's is kept",
    )
