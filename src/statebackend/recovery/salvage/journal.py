"""The page images in a rollback journal."""

from __future__ import annotations

import struct

from statebackend.recovery.salvage.images import JOURNAL, Images, Place

_MAGIC = bytes.fromhex("d9d505f920a163d7")


def read_pages(images: Images) -> list[tuple[int, Place]]:
    """Return number and place of the page images in the journal whose checksum is right.

    A journal that was synced several times has as many segments, each with a header at the start
    of a sector.
    """
    pages: list[tuple[int, Place]] = []
    at = 0
    while (header := _read_header(images, at)) is not None:
        nonce, sector = header
        at += sector
        while (page := _read_page(images, at, nonce)) is not None:
            pages.append((page, Place(JOURNAL, at + 4)))
            at += images.page_size + 8
        at = -(-at // sector) * sector
    return pages


def truncate(images: Images) -> None:
    """Drop the pages that the transaction appended, once its journal is rolled back.

    Only if the header of the file before the transaction agrees with the journal's.
    """
    before = images.read(JOURNAL, 16, 4)
    if images.page(1)[28:32] == before:
        images.page_count = min(images.page_count, int.from_bytes(before, "big"))


def _read_header(images: Images, at: int) -> tuple[int, int] | None:
    """Return nonce and sector size of the segment at *at*, None if there is none."""
    head = images.read(JOURNAL, at, 28)
    if len(head) < 28 or head[:8] != _MAGIC:
        return None
    _count, nonce, _pages, sector, page_size = struct.unpack(">IIIII", head[8:])
    if page_size != images.page_size or not 28 <= sector <= 65536:
        return None
    return nonce, sector


def _read_page(images: Images, at: int, nonce: int) -> int | None:
    """Return the page number of the record at *at*, None if it is not valid."""
    record = images.read(JOURNAL, at, images.page_size + 8)
    if len(record) < images.page_size + 8:
        return None
    page, image = int.from_bytes(record[:4], "big"), record[4:-4]
    total = (nonce + sum(image[images.page_size - 200 : 0 : -200])) & 0xFFFFFFFF
    return page if page and total == int.from_bytes(record[-4:], "big") else None
