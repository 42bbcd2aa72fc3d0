"""This package, 16 threads that append to one session."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.ours import Ours
from benchmarks.peers.worker import serve

THREADS = 16


class OursThreads(Ours):
    """As :class:`Ours`, each thread with its share of the messages."""

    name: ClassVar[str] = f"statebackend, {THREADS} threads"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._threads = ThreadPoolExecutor(THREADS)

    def append_each(self, texts: Sequence[str]) -> list[int]:
        """Append these messages, each thread its own in turn."""
        shares = [texts[number::THREADS] for number in range(THREADS)]
        one_thread = super().append_each
        return [
            each for share_times in self._threads.map(one_thread, shares) for each in share_times
        ]


if __name__ == "__main__":
    serve(OursThreads)
