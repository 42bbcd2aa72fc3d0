"""Entries of the indexes, which repeat columns of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from statebackend.recovery.salvage import cells
from statebackend.recovery.salvage.images import Images
from statebackend.recovery.salvage.shapes import is_sequence
from statebackend.values.recorded import EventKind, ProducerCategory

IdEntries = list[tuple[bytes, int]]
"""The entries (id, sequence) of one page of the index of ids, in its order."""

_WORDS = {word.value.encode() for words in (EventKind, ProducerCategory) for word in words}
_LEAST_ID_CHARACTERS = 8


def read_first_texts(images: Images, pages: Iterable[int]) -> Iterator[tuple[bytes, int]]:
    """Return (text, sequence) of every entry: the text is an id, a kind or a category."""
    for number in pages:
        page = images.page(number)
        for record in cells.index_records(page, 100 if number == 1 else 0, images.usable):
            if len(record) in {2, 4} and isinstance(record[0], bytes) and is_sequence(record[-1]):
                yield record[0], record[-1]


def read_id_entries(images: Images, pages: Iterable[int]) -> Iterator[IdEntries]:
    """Return the entries of each page of the index of ids.

    A page whose first two entries hold no id belongs to another index.
    """
    for number in pages:
        records = cells.index_records(images.page(number), 0, images.usable)
        first = list(islice(records, 2))
        if any(map(_is_id_entry, first)):
            yield [
                (record[0], record[1]) for record in chain(first, records) if _is_id_entry(record)
            ]


def is_word(text: bytes) -> bool:
    """Tell whether the text of an entry is a kind of event or a producer's category."""
    return text in _WORDS


def is_id(text: bytes) -> bool:
    """Tell whether the text of an entry is an event's id."""
    return len(text) >= _LEAST_ID_CHARACTERS and not is_word(text)


def _is_id_entry(record: list[Any]) -> bool:
    if len(record) != 2:
        return False
    text, sequence = record
    return isinstance(text, bytes) and is_sequence(sequence) and not is_word(text)
