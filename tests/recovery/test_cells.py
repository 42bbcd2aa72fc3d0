"""Cells and records in bytes that may be damaged."""

from __future__ import annotations

import random

import pytest

from statebackend.recovery.salvage import cells


@pytest.mark.parametrize("kind", sorted(cells.TREE_PAGES))
def test_noise_raises_no_error(kind: int) -> None:
    """Nothing is read behind the end of a page."""
    dice = random.Random(kind)
    for _round in range(300):
        page = bytes([kind, 0, 0, 0, dice.randrange(1, 250)]) + dice.randbytes(507)
        for start in cells.pointers(page, 0, 512):
            cell = cells.read_cell(page, start, 512)
            assert cell is None or cell.end <= 512
        assert all(isinstance(record, list) for record in cells.index_records(page, 0, 512))
        assert cells.children(page, 0, 512)
