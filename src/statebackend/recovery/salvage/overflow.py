"""The overflow chains of the rows, and which row owns which overflow page."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.images import Images

Owner = tuple[str, int]
"""Table and rowid of the row that owns an overflow page."""

CONTESTED: Owner = ("", 0)
"""Owner of the pages that two rows claim with equal right."""
_LEAST_WIPED_BYTES = 16


@dataclass(frozen=True, slots=True)
class OverflowChain:
    """The overflow pages of one row, and their content.

    ``next_page`` is the pointer in the last page, 0 in a valid chain.
    """

    pages: list[int]
    content: bytes
    next_page: int


class OverflowChains:
    """All overflow chains, and the owners of their pages. No chain has a page of *free*."""

    def __init__(self, images: Images, free: frozenset[int]) -> None:
        self._images = images
        self._free = free
        self._owners: dict[int, Owner] = {}

    def has_owner(self, page: int) -> bool:
        """Return whether a row owns this page."""
        return page in self._owners

    def follow(self, cell: cells.Cell) -> OverflowChain | None:
        """Return the overflow chain of *cell*, None if its pages cannot be one."""
        last = cell.record[-1:]
        usable, size = self._images.usable, cell.payload - len(cell.record)
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
            if self._images.is_cut(self._images.place(number), 4 + len(part)):
                return None
            wiped = len(part) >= _LEAST_WIPED_BYTES and last != b"\0" and not any(page)
            if wiped or page[0] in cells.TREE_PAGES or (page[0] and len(part) < size):
                return None
            pages.append(number)
            parts.append(part)
            size -= len(part)
            last = part[-1:]
            number = int.from_bytes(page[:4], "big")
        return OverflowChain(pages, b"".join(parts), number)

    def may_continue(self, chain: OverflowChain) -> bool:
        """Return whether a chain may be part of another row's, reached through a damaged pointer.

        SQLite ignores the pointer in the last page. If damaged, it leads nowhere, or to a page that
        another row owns.
        """
        number = chain.next_page
        if not number:
            return False
        skipped = (page + 1 for page, after in pairwise(chain.pages) if page + 1 != after)
        if any(map(self._is_unowned, skipped)):
            return True
        if number > self._images.page_count or number in chain.pages or self.has_owner(number):
            return False
        if number == 1 or self._images.page(number)[0] in cells.TREE_PAGES:
            return False
        # A longer chain continues with the next page. If its last page was swapped with this one,
        # it continues behind a page that ends a chain too early.
        before = number - 1
        ends_early = not self.has_owner(before) and not any(self._images.page(before)[:4])
        return before == chain.pages[-1] or ends_early

    def _is_unowned(self, number: int) -> bool:
        """Return whether a page looks like an overflow page and no row owns it."""
        return (
            number <= self._images.page_count
            and not self.has_owner(number)
            and number not in self._free
            and not self._images.page(number)[0]
        )

    def other_owners(self, chain: OverflowChain, owner: Owner) -> set[Owner]:
        """Return the rows other than *owner* that own pages of this chain."""
        return {self._owners.get(page, owner) for page in chain.pages} - {owner}

    def has_better_claim(self, chain: OverflowChain, owner: Owner) -> bool | None:
        """Return whether a chain has a better claim than *owner* to the pages they share.

        The pages of a chain follow each other as the file grew. So the chain that comes to the
        first shared page from the page before it is right; damage led the other there. None if
        neither does.
        """
        at = next(at for at, page in enumerate(chain.pages) if self._owners.get(page) == owner)
        before = chain.pages[at] - 1
        if self._owners.get(before) == owner:
            return False
        return True if at and chain.pages[at - 1] == before else None

    def claim(self, chain: OverflowChain, owner: Owner) -> None:
        """Make a row the owner of the pages of a chain."""
        self._owners.update(dict.fromkeys(chain.pages, owner))
