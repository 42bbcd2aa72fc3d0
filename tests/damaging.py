"""Damage to a chosen place of a session, and what its recovery did."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from statebackend import Recovery, StateBackend, TableRecovery
from tests.damage import layout
from tests.damage.bases import files_of
from tests.damage.layout import Layout, Row
from tests.session_files import overwrite, path_of, rows_of

NOISE = random.Random(7).randbytes(65536)
"""Bytes that are no page."""


def layout_of(path: Path) -> Layout:
    """Return where the rows of a healthy session lie."""
    return layout.read(files_of(path))


def spoil(path: Path, page: int) -> None:
    """Overwrite a page of the file with noise."""
    overwrite(path, page, NOISE[: page_size_of(path)])


def page_size_of(path: Path) -> int:
    """Return the page size (bytes) that a file's header states."""
    stated = int.from_bytes(path.read_bytes()[16:18], "big")
    return 65536 if stated == 1 else stated


def overflow_pages(row: Row, page_size: int) -> list[int]:
    """Return the overflow pages of a row that lies in the file itself."""
    return [start // page_size + 1 for _name, start, _end in row.own[1:]]


def recover(backend: StateBackend, session_id: str) -> Recovery:
    """Open a damaged session for writing, and return what its recovery tells."""
    with backend.open(session_id) as session:
        assert session.recovery is not None
        return session.recovery


def told(recovery: Recovery, table: str) -> TableRecovery:
    """Return what a recovery did with a table."""
    return next(one for one in recovery.tables if one.table == table)


def same_rows(
    backend: StateBackend, session_id: str, before: dict[str, list[tuple[Any, ...]]]
) -> bool:
    """Tell whether a session holds these rows, and no others, in any order."""
    now = rows_of(path_of(backend, session_id))
    return {name: sorted(found) for name, found in now.items()} == {
        name: sorted(found) for name, found in before.items()
    }
