"""The pages of a damaged session, out of its file, its write-ahead log and a rollback journal.

Plain file calls throughout: only while this process has no connection on the session.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from statebackend.files import wal
from statebackend.files.paths import SessionFiles
from statebackend.recovery.salvage import cells

_MAGIC = b"SQLite format 3\0"
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_LIKELY_PAGE_SIZES = (4096, 1024, 8192, 2048, 16384, 512, 32768, 65536)
_SAMPLE_BYTES = 1 << 20

FILE, LOG, JOURNAL = range(3)


class Images:
    """Every image of every page.

    ``current`` says which image of a page counts, where that is not the one in the file; it is laid
    by :meth:`lay`. ``older`` are images that another one hides, ``outdated`` the pages whose newest
    image is in a broken frame. A page is ``usable`` bytes long
    without what its header reserves. A *descriptor* of the file is used, and left open.
    """

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        self._files: dict[int, int] = {}
        self._given = descriptor
        try:
            if descriptor is None:
                self._open(FILE, path)
            else:
                self._files[FILE] = descriptor
            self.size = os.fstat(self._files[FILE]).st_size
            with suppress(FileNotFoundError):
                self._open(LOG, SessionFiles(path).wal)
            with suppress(FileNotFoundError):
                self._open(JOURNAL, SessionFiles(path).journal)
            self._head = os.pread(self._files[FILE], 100, 0)
            head = self._head
            self._reserved = head[20] if head.startswith(_MAGIC) and head[20] < 33 else 0
            self.page_size = self._page_size()
            self.log = wal.read(path, self.page_size)
        except BaseException:
            self.close()
            raise
        self.usable = self.page_size - self._reserved
        self.current: dict[int, tuple[int, int]] = {}
        self.older: list[tuple[int, int, int]] = []
        self.outdated: set[int] = set()
        self.page_count = -(-self.size // self.page_size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        while self._files:
            descriptor = self._files.popitem()[1]
            if descriptor != self._given:
                os.close(descriptor)

    def _open(self, which: int, path: Path) -> None:
        self._files[which] = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    # -- what counts ---------------------------------------------------------------------------

    def lay(self, which: int, page: int, offset: int) -> None:
        """Let the image at *offset* of file *which* count for *page*; the one below is older."""
        if page in self.current:
            self.older.insert(0, (page, *self.current[page]))
        elif page <= -(-self.size // self.page_size):
            self.older.append((page, FILE, (page - 1) * self.page_size))
        self.current[page] = (which, offset)
        self.page_count = max(self.page_count, page)

    def swap(self, one: int, other: int) -> None:
        """Let each of two pages have the image that counts for the other."""
        places = {number: self.place(number) for number in (one, other)}
        self.current[one], self.current[other] = places[other], places[one]

    def place(self, number: int) -> tuple[int, int]:
        """Return file and offset (bytes) of the image of page *number* that counts."""
        return self.current.get(number, (FILE, (number - 1) * self.page_size))

    def page(self, number: int) -> bytes:
        """Return the image of page *number* that counts; what is cut off reads as zeros."""
        return self.image(*self.place(number))

    def image(self, which: int, offset: int) -> bytes:
        """Return the page image at *offset* of file *which*."""
        found = os.pread(self._files[which], self.page_size, offset)
        return found if len(found) == self.page_size else found.ljust(self.page_size, b"\0")

    def is_cut(self, which: int, offset: int, end: int) -> bool:
        """Tell whether the file ends before byte *end* of the image at *offset* of file *which*."""
        return which == FILE and offset + end > self.size

    def pages(self) -> Iterator[tuple[int, bytes]]:
        """Return every page that counts, in order of its number."""
        for number in range(1, self.page_count + 1):
            yield number, self.page(number)

    # -- the header of the file ----------------------------------------------------------------

    def user_versions(self) -> Iterator[int]:
        """Return the schema version by each image of page 1 with a header, the newest first."""
        images = [self.page(1)]
        images += [self.image(which, at) for page, which, at in self.older if page == 1]
        for image in images:
            if image.startswith(_MAGIC):
                yield int.from_bytes(image[60:64], "big", signed=True)

    def is_whole(self) -> bool:
        """Tell whether the file has as many pages as its header says."""
        stated = int.from_bytes(self._head[28:32], "big")
        return self._head.startswith(_MAGIC) and stated * self.page_size == self.size

    def pages_once(self) -> int:
        """Return how many pages the file had, by its header where that can be believed."""
        stated = int.from_bytes(self._head[28:32], "big") if self._head.startswith(_MAGIC) else 0
        return max(self.page_count, stated if stated <= 64 * max(self.page_count, 1024) else 0)

    def freelist(self) -> frozenset[int]:
        """Return the free pages, empty unless the list is whole."""
        head = self.page(1)
        if not head.startswith(_MAGIC):
            return frozenset()
        trunk, count = struct.unpack(">II", head[32:40])
        free: set[int] = set()
        while trunk:
            if trunk in free or not 1 < trunk <= self.page_count:
                return frozenset()
            free.add(trunk)
            page = self.page(trunk)
            trunk, leaves = struct.unpack_from(">II", page)
            if leaves > self.usable // 4 - 2:
                return frozenset()
            free.update(struct.unpack_from(f">{leaves}I", page, 8))
        return frozenset(free) if len(free) == count else frozenset()

    def _page_size(self) -> int:
        stated = int.from_bytes(self._head[16:18], "big") if len(self._head) >= 18 else 0
        stated = 65536 if stated == 1 else stated
        sizes = [stated] if _possible(stated) else []
        with suppress(KeyError):
            sizes += [size for size in [wal.stated_page_size(self._files[LOG])] if size]
        if len(sizes) == 2 and sizes[0] == sizes[1]:
            return sizes[0]
        return max(
            [*sizes, *_LIKELY_PAGE_SIZES],
            key=self._full_pages,
        )

    def _full_pages(self, page_size: int) -> int:
        """Count the bytes of pages that are leaves of tables, were pages *page_size* bytes long.

        The cells of a page are laid from its very end, so its size shows; a payload that holds an
        image of a page has it anywhere.
        """
        found = 0
        for number in range(1, min(_SAMPLE_BYTES // page_size, self.size // page_size) + 1):
            page = self.image_of_size(number, page_size)
            header = 100 if number == 1 else 0
            if page[header] == cells.LEAF_TABLE:
                ends = [one.end for one in cells.leaf_cells(page, header, page_size)]
                found += page_size if ends and max(ends) == page_size - self._reserved else 0
        return found

    def image_of_size(self, number: int, page_size: int) -> bytes:
        """Return the bytes where page *number* of the file were, if pages had *page_size* bytes."""
        return os.pread(self._files[FILE], page_size, (number - 1) * page_size)

    # -- a rollback journal --------------------------------------------------------------------

    def journal_pages(self) -> list[tuple[int, int]]:
        """Return number and offset of the pages in a rollback journal that pass its checksum.

        One that was written to the disk several times has as many parts, each with a header that
        begins a sector.
        """
        found: list[tuple[int, int]] = []
        at = 0
        while (head := self._journal_head(at)) is not None:
            nonce, sector = head
            at += sector
            while (number := self._journal_page(at, nonce)) is not None:
                found.append((number, at + 4))
                at += self.page_size + 8
            at = -(-at // sector) * sector
        return found

    def cut_to_journal(self) -> None:
        """Let nothing count that the transaction of the journal, now laid, put behind the end.

        Only if the header of the file that was then agrees with the journal's.
        """
        before = os.pread(self._files[JOURNAL], 4, 16)
        if self.page(1)[28:32] == before:
            self.page_count = min(self.page_count, int.from_bytes(before, "big"))

    def _journal_head(self, at: int) -> tuple[int, int] | None:
        head = os.pread(self._files[JOURNAL], 28, at) if JOURNAL in self._files else b""
        if len(head) < 28 or head[:8] != _JOURNAL_MAGIC:
            return None
        _count, nonce, _pages, sector, page_size = struct.unpack(">IIIII", head[8:])
        if page_size != self.page_size or not 28 <= sector <= 65536:
            return None
        return nonce, sector

    def _journal_page(self, at: int, nonce: int) -> int | None:
        record = os.pread(self._files[JOURNAL], self.page_size + 8, at)
        if len(record) < self.page_size + 8:
            return None
        number, image = int.from_bytes(record[:4], "big"), record[4:-4]
        total = (nonce + sum(image[self.page_size - 200 : 0 : -200])) & 0xFFFFFFFF
        return number if number and total == int.from_bytes(record[-4:], "big") else None


def _possible(page_size: int) -> bool:
    return 512 <= page_size <= 65536 and page_size & (page_size - 1) == 0
