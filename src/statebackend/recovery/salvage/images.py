"""The page images of a damaged session: in its file, its WAL and its rollback journal.

Plain file calls throughout: only while this process has no connection on the session.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from statebackend.files import wal
from statebackend.files.paths import SessionFiles
from statebackend.recovery.salvage import cells

_MAGIC = b"SQLite format 3\0"
_PAGE_SIZES = (4096, 1024, 8192, 2048, 16384, 512, 32768, 65536)
_SAMPLE_BYTES = 1 << 20

FILE, WAL, JOURNAL = range(3)


class Place(NamedTuple):
    """Where a page image lies: in which of the three files, and at which offset (bytes)."""

    source: int
    offset: int


class Images:
    """Every image of every page, and which of them is current.

    The current image of a page is the one in the file unless :meth:`overlay` put another one over
    it. ``older`` are images below a current one, with their page numbers; ``outdated`` are the
    pages whose newest image is in a broken frame. ``usable`` is the page size (bytes) without what
    the header reserves, and ``stated_pages`` is the page count in the header, 0 without one. A
    *descriptor* of the file is used, and left open.
    """

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        self._files: dict[int, int] = {}
        self._callers_descriptor = descriptor
        try:
            self._files[FILE] = _open(path) if descriptor is None else descriptor
            self.size = os.fstat(self._files[FILE]).st_size
            files = SessionFiles(path)
            for source, sidecar in ((WAL, files.wal), (JOURNAL, files.journal)):
                with suppress(FileNotFoundError):
                    self._files[source] = _open(sidecar)
            self._head = self.read(FILE, 0, 100)
            has_header = self._head.startswith(_MAGIC)
            self.stated_pages = int.from_bytes(self._head[28:32], "big") if has_header else 0
            self._reserved = self._head[20] if has_header and self._head[20] < 33 else 0
            self.page_size = self._choose_page_size()
            self.wal = wal.read(path, self.page_size)
        except BaseException:
            self.close()
            raise
        self.usable = self.page_size - self._reserved
        self._current: dict[int, Place] = {}
        self.older: list[tuple[int, Place]] = []
        self.outdated: set[int] = set()
        self.file_pages = -(-self.size // self.page_size)
        self.page_count = self.file_pages

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        while self._files:
            descriptor = self._files.popitem()[1]
            if descriptor != self._callers_descriptor:
                os.close(descriptor)

    def overlay(self, page: int, place: Place) -> None:
        """Make the image at *place* the current one of *page*; the one below is older."""
        if page in self._current:
            self.older.insert(0, (page, self._current[page]))
        elif page <= self.file_pages:
            self.older.append((page, self.place(page)))
        self._current[page] = place
        self.page_count = max(self.page_count, page)

    def swap(self, page: int, other: int) -> None:
        """Exchange the current images of two pages."""
        self._current[page], self._current[other] = self.place(other), self.place(page)

    def place(self, page: int) -> Place:
        """Return where the current image of *page* lies."""
        return self._current.get(page, Place(FILE, (page - 1) * self.page_size))

    def page(self, page: int) -> bytes:
        """Return the current image of *page*; bytes behind the end of the file are zeros."""
        return self.image(self.place(page))

    def read(self, source: int, offset: int, size: int) -> bytes:
        """Return up to *size* bytes of a file, none if it does not exist."""
        return os.pread(self._files[source], size, offset) if source in self._files else b""

    def image(self, place: Place) -> bytes:
        """Return the page image at *place*."""
        return self.read(place.source, place.offset, self.page_size).ljust(self.page_size, b"\0")

    def image_in_file(self, page: int) -> bytes:
        """Return the image of *page* in the file itself."""
        return self.image(Place(FILE, (page - 1) * self.page_size))

    def is_cut(self, place: Place, end: int) -> bool:
        """Return whether the file ends before byte *end* of the image at *place*."""
        return place.source == FILE and place.offset + end > self.size

    def user_versions(self) -> Iterator[int]:
        """Return the schema version in each image of page 1 that has a header, newest first."""
        places = [self.place(1), *(place for page, place in self.older if page == 1)]
        for image in map(self.image, places):
            if image.startswith(_MAGIC):
                yield int.from_bytes(image[60:64], "big", signed=True)

    def freelist(self) -> frozenset[int]:
        """Return the pages of the freelist, none unless the whole list is valid."""
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

    def _choose_page_size(self) -> int:
        """Return the page size of file and WAL header, or the size that most bytes fit."""
        in_file = int.from_bytes(self._head[16:18], "big") if len(self._head) >= 18 else 0
        in_file = 65536 if in_file == 1 else in_file
        sizes = [in_file] if in_file in _PAGE_SIZES else []
        if WAL in self._files and (in_wal := wal.stated_page_size(self._files[WAL])):
            sizes.append(in_wal)
        if len(sizes) == 2 and sizes[0] == sizes[1]:
            return in_file
        return max([*sizes, *_PAGE_SIZES], key=self._leaf_bytes)

    def _leaf_bytes(self, page_size: int) -> int:
        """Count the bytes of table leaves in the file if its pages have *page_size* bytes."""
        # SQLite fills a page from its end, so the last cell ends there; a page image in a payload
        # lies anywhere.
        total = 0
        for page in range(1, min(_SAMPLE_BYTES // page_size, self.size // page_size) + 1):
            image = self.read(FILE, (page - 1) * page_size, page_size)
            header = 100 if page == 1 else 0
            if image[header] == cells.LEAF_TABLE:
                ends = (cell.end for cell in cells.leaf_cells(image, header, page_size))
                if max(ends, default=0) == page_size - self._reserved:
                    total += page_size
        return total


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
