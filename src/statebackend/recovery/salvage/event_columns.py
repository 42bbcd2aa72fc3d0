"""Kinds and producers of events, which an index of each holds as well as the row.

Of the two, the one that no session could have, or that is no producer of this one, is wrong; where
that does not tell, nobody can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from statebackend.recovery.salvage.target import Target
from statebackend.values.recorded import EventKind

_KINDS = {kind.value for kind in EventKind}
_KIND = ("kind",)
_PRODUCER = ("producer_category", "producer_name", "producer_version")
_Found = tuple[int, tuple[str, ...], tuple[str, ...]]


def put_right(new: Target, records: Callable[[], Iterable[list[Any]]]) -> None:
    """Give each saved event the kind and the producer that the index has, if the row's is wrong.

    *records* gives the records of all indexes. An entry whose number was hit is of no event that
    another entry agrees with.
    """
    differing = {
        (number, columns): told
        for number, columns, told in _entries(records)
        if (stored := new.event_columns(number, columns)) is not None and stored != told
    }
    if not differing:
        return
    for number, columns, told in _entries(records):
        if (number, columns) in differing and new.event_columns(number, columns) == told:
            del differing[number, columns]
    for (number, columns), told in sorted(differing.items()):
        stored = new.event_columns(number, columns)
        assert stored is not None
        names = ", ".join(columns)
        if _is_known(new, stored, number):
            if _is_known(new, told, number):
                new.doubt(
                    "events",
                    f"events sequence {number}: {names} may be {told!r}, as the index has it",
                )
        elif _is_known(new, told, number):
            new.set_event_columns(number, columns, told)
        else:
            new.doubt("events", f"events sequence {number}: {names} may be wrong")


def _entries(records: Callable[[], Iterable[list[Any]]]) -> Iterator[_Found]:
    for *texts, number in records():
        try:
            told = tuple(text.decode() for text in texts)
        except (AttributeError, UnicodeDecodeError):  # no text, or a damaged one
            continue
        if len(told) == len(_PRODUCER):
            yield number, _PRODUCER, told
        elif len(told) == 1 and told[0] in _KINDS:
            yield number, _KIND, told


def _is_known(new: Target, values: tuple[str, ...], event: int) -> bool:
    return values[0] in _KINDS if len(values) == 1 else new.has_producer(values, event)
