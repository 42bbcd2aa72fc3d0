"""Overflow pages in each other's place."""

from __future__ import annotations

from statebackend import StateBackend
from tests.damaging import create_large, layout_of, overflow_pages, recover, same_rows, swap
from tests.session_files import damage_index, rows_of


def test_swapped_overflow_pages_are_swapped_back(backend: StateBackend) -> None:
    """SQLite would return both payloads with a part of the other one."""
    path = create_large(backend, 20_000, 20_000, 20_000)
    before = rows_of(path)
    rows = layout_of(path).rows["events"]
    first, other = overflow_pages(rows[1,], 4096)[2], overflow_pages(rows[3,], 4096)[2]
    swap(path, first, other)
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert recovery.notes == (f"pages {first} and {other} were in each other's place",)
    assert same_rows(backend, path.stem, before)


def test_chains_through_freed_pages_are_not_swapped(backend: StateBackend) -> None:
    """They go back and forth, so two of their pages may look swapped."""
    path = create_large(backend, 20_000, 20_000, 20_000)
    before = rows_of(path)
    rows = layout_of(path).rows["events"]
    (first_head, first, *_), (other_head, other, *_) = (
        overflow_pages(rows[number,], 4096) for number in (1, 3)
    )
    swap(path, first, other)
    with path.open("r+b") as file:
        for head, page in ((first_head, other), (other_head, first)):
            file.seek((head - 1) * 4096)
            file.write(page.to_bytes(4, "big"))
    assert rows_of(path) == before
    damage_index(path)
    assert not any("in each other's place" in note for note in recover(backend, path.stem).notes)
    assert same_rows(backend, path.stem, before)
