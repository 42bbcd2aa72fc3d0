"""What all work on many session files has in common: one result a file, whatever its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

from statebackend.errors import SessionLocked, StateBackendError, StorageError
from statebackend.files import claim
from statebackend.files.paths import SessionFiles

_WINDOW = 64
_T = TypeVar("_T")


def map_stems(work: Callable[[str], _T], stems: Iterator[str], threads: int) -> Iterator[_T]:
    """Return the results of *work* in order, lazily; threads may be up to 64 files ahead."""
    if threads == 1:
        yield from map(work, stems)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        while window := list(islice(stems, _WINDOW)):
            yield from pool.map(work, window)
    finally:
        pool.shutdown(cancel_futures=True)


def typed_error(path: Path, error: Exception) -> StateBackendError:
    """Return *error* as one of the package's own: an unexpected one becomes a result too."""
    if isinstance(error, StateBackendError):
        return error
    return StorageError(path, f"{type(error).__name__}: {error}")


def refuse_live(path: Path) -> None:
    """Raise :class:`SessionLocked` if a program has the session open for writing."""
    if (writer := claim.writer_of(path)) is not None:
        session_id = SessionFiles(path).session_id
        raise SessionLocked(session_id, writer.pid, writer.host, writer.since)
