"""Rows whose overflow chain seems to continue."""

from __future__ import annotations

from statebackend import StateBackend
from tests.damaging import create_large, layout_of, overflow_pages, recover, same_rows, table_report
from tests.session_files import damage_index, overwrite, rows_of


def test_a_last_pointer_to_another_rows_page_loses_no_row(backend: StateBackend) -> None:
    """Once the other row is read, the page is its own."""
    path = create_large(backend, 9000, 9000, 9000)
    before = rows_of(path)
    rows = layout_of(path).rows["events"]
    last = overflow_pages(rows[2,], 4096)[-1]
    overwrite(path, last, overflow_pages(rows[3,], 4096)[1].to_bytes(4, "big"))
    damage_index(path)
    recovery = recover(backend, path.stem)
    assert (
        table_report(recovery, "events").doubtful == 1
    )  # the rest of that page may be hit as well
    assert not recovery.partial
    assert same_rows(backend, path.stem, before)
