"""The overflow pages of the rows, and which row has which."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.images import Images

Owner = tuple[str, int]
"""Table and row number of the row that has a page."""

CONTESTED: Owner = ("", 0)
_LEAST_WIPED = 16


@dataclass(frozen=True, slots=True)
class Chain:
    """The overflow pages of one row, what they hold, and the page that the last one leads to.

    ``behind`` is 0 in a sound chain.
    """

    pages: list[int]
    content: bytes
    behind: int


class Chains:
    """All chains that were followed, but through pages of the *free* list."""

    def __init__(self, images: Images, free: frozenset[int]) -> None:
        self._images = images
        self._free = free
        self._owners: dict[int, Owner] = {}

    def __contains__(self, page: int) -> bool:
        """Tell whether a row has this page."""
        return page in self._owners

    def follow(self, cell: cells.Cell, last: bytes) -> Chain | None:
        """Return the chain of *cell*; None if its pages cannot be that.

        *last* is the byte before its first page.
        """
        usable, size = self._images.usable, cell.payload - cell.local
        pages: list[int] = []
        parts: list[bytes] = []
        number = cell.overflow
        while size > 0:
            if not 1 < number <= self._images.page_count or number in pages[-64:]:
                return None
            if number in self._free or number in self._images.outdated:
                return None
            page = self._images.page(number)
            part = page[4 : min(usable, 4 + size)]
            wiped = len(part) >= _LEAST_WIPED and last != b"\0" and not any(page)
            if self._images.is_cut(*self._images.place(number), 4 + len(part)):
                return None
            if wiped or page[0] in cells.TREE_PAGES or (page[0] and len(part) < size):
                return None
            pages.append(number)
            parts.append(part)
            size -= len(part)
            last = part[-1:]
            number = int.from_bytes(page[:4], "big")
        return Chain(pages, b"".join(parts), number)

    def leads_on(self, chain: Chain) -> bool:
        """Tell whether a chain may be a part of another row's, got at by a wrong pointer.

        SQLite does not look at the pointer behind the last page, so damage there does no harm: it
        leads nowhere, or to a page that another row has.
        """
        behind = chain.behind
        if not behind:
            return False
        if any(
            page + 1 != other and self._is_lost(page + 1) for page, other in pairwise(chain.pages)
        ):
            return True
        if behind > self._images.page_count or behind in chain.pages or behind in self:
            return False
        if behind == 1 or self._images.page(behind)[0] in cells.TREE_PAGES:
            return False
        # A longer chain goes on with the next page or, if its last one was swapped with this one,
        # with the page behind one that ends a chain too early.
        before = behind - 1
        ends_early = before not in self and not any(self._images.page(before)[:4])
        return before == chain.pages[-1] or ends_early

    def _is_lost(self, number: int) -> bool:
        """Tell whether a page is one of a chain, and no row has it."""
        return (
            number <= self._images.page_count
            and number not in self
            and number not in self._free
            and not self._images.page(number)[0]
        )

    def rivals(self, chain: Chain, owner: Owner) -> set[Owner]:
        """Return the other rows that have pages of this chain."""
        return {self._owners.get(page, owner) for page in chain.pages} - {owner}

    def outdoes(self, chain: Chain, rival: Owner) -> bool | None:
        """Tell whose the pages are that two chains share: this one's, or not; None if unknown.

        The pages of a chain follow each other as the file grew. So the one that comes to the first
        shared page from the page before it is right, and the other one was led there by damage.
        """
        at = next(at for at, page in enumerate(chain.pages) if self._owners.get(page) == rival)
        before = chain.pages[at] - 1
        if self._owners.get(before) == rival:
            return False
        return True if at and chain.pages[at - 1] == before else None

    def claim(self, chain: Chain, owner: Owner) -> None:
        """Let a row have the pages of a chain."""
        self._owners.update(dict.fromkeys(chain.pages, owner))
