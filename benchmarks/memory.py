"""One process whose memory is measured.

``python -m benchmarks.memory ours|bare FOLDER SESSION_ID`` prints the bytes by which the
peak grew while the session was read, and the size of all payloads.
"""

from __future__ import annotations

import resource
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path

from benchmarks.replaying import read_all, read_all_bare
from statebackend import StateBackend


def main() -> None:
    """Read the session once and print the two numbers."""
    side, folder, session_id = sys.argv[1:]
    # Loaded on first use, and not part of what reading a session needs.
    import_module("statebackend.opening.read")
    read = {"ours": _read_ours, "bare": _read_bare}[side]
    print(*_grown_by(lambda: read(Path(folder), session_id)))


def _grown_by(work: Callable[[], int]) -> tuple[int, int]:
    before = peak_bytes()
    size = work()
    return peak_bytes() - before, size


def _read_ours(folder: Path, session_id: str) -> int:
    with StateBackend(folder).read(session_id) as view:
        return read_all(view)


def _read_bare(folder: Path, session_id: str) -> int:
    with closing(sqlite3.connect(folder / f"{session_id}.sqlite")) as driver:
        return read_all_bare(driver)


def peak_bytes() -> int:
    """Return the greatest size that this program had so far.

    Linux hands the parent's peak down to ``ru_maxrss`` of a child, so that a small child of a
    great parent would never seem to grow; the peak in ``/proc`` is the program's own.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
