"""Overflow pages that were written in each other's place."""

from __future__ import annotations

from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.target import Target

_RARE = 16


def run(evidence: Evidence, target: Target) -> None:
    """Swap overflow pages back that a misdirected write put in each other's place.

    The pages of a chain follow each other as the file grew. Of two swapped pages, each points where
    the other one should, which is backwards for one of the two. Where freed pages were used again,
    undamaged chains go back and forth too, and nothing is swapped.
    """
    images = evidence.images
    next_page: dict[int, int] = {}
    for number in evidence.survey.others:
        pointer = int.from_bytes(images.page(number)[:4], "big")
        if 0 < pointer <= images.page_count:
            next_page[number] = pointer
    swapped = [
        (number, pointer - 1)
        for number, pointer in next_page.items()
        if number < pointer - 1
        and next_page.get(pointer - 1) == number + 1
        and next_page.get(number - 1, number) == number
        and next_page.get(pointer - 2, pointer - 1) == pointer - 1
    ]
    in_order = sum(pointer == number + 1 for number, pointer in next_page.items())
    out_of_order = len(next_page) - in_order - 2 * len(swapped)
    if out_of_order * _RARE <= in_order:
        for number, other in swapped:
            images.swap(number, other)
            target.note(f"pages {number} and {other} were in each other's place")
