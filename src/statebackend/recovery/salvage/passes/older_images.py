"""Rows in older images of pages."""

from __future__ import annotations

from collections.abc import Iterator

from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.images import WAL, Place
from statebackend.recovery.salvage.records import save_if_missing
from statebackend.recovery.salvage.survey import judge_rowids
from statebackend.recovery.salvage.target import Target


def run(evidence: Evidence, target: Target) -> None:
    """Save missing rows out of images that newer ones hide.

    Answers damage to the current image of a page, while an older one is still in the file, on the
    freelist, or in a frame of the WAL that was checkpointed or is broken.
    """
    for page, place in _older_images(evidence):
        for shape, group in evidence.group_by_table(evidence.leaf_cells(page, place)):
            for cell, rowid in zip(group, judge_rowids([c.rowid for c in group]), strict=True):
                sequence = rowid.value
                if rowid.expected is not None and not (rowid.confirmed or rowid.ascending):
                    sequence = rowid.expected
                save_if_missing(
                    evidence, target, shape, cell, route="older image", sequence=sequence
                )


def _older_images(evidence: Evidence) -> Iterator[tuple[int, Place]]:
    yield from evidence.images.older
    for page in sorted(evidence.survey.free):
        yield page, evidence.images.place(page)
    if wal := evidence.images.wal:
        for frame in reversed((*wal.stale, *wal.broken)):
            yield frame.page, Place(WAL, frame.offset)
