"""The process of one peer: it reads requests on stdin and answers on stdout, as lines of JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, TypeVar

MESSAGE_BYTES = 1_000
FACT_APPENDS = 20
_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
_Item = TypeVar("_Item")


class Peer(ABC):
    """One store, opened in a new folder, with nothing set but where its file is.

    ``stores`` says what it keeps of a message. ``path`` is its file once it was used.
    """

    name: ClassVar[str]
    package: ClassVar[str] = ""
    stores: ClassVar[str]
    path: Path

    @abstractmethod
    def append_each(self, texts: Sequence[str]) -> list[int]:
        """Append these messages, each acknowledged before the next; return the nanoseconds of each.

        What a caller would have at hand is built before the clock starts.
        """

    @abstractmethod
    def pragma(self, name: str) -> Any:
        """Return the value of a pragma on the connection that this peer writes with."""


def timed(append: Callable[[_Item], object], items: Iterable[_Item]) -> list[int]:
    """Return how many nanoseconds each call took."""
    clock = time.perf_counter_ns
    times = []
    for item in items:
        start = clock()
        append(item)
        times.append(clock() - start)
    return times


async def timed_async(
    append: Callable[[_Item], Awaitable[object]], items: Iterable[_Item]
) -> list[int]:
    """Return how many nanoseconds each awaited call took."""
    clock = time.perf_counter_ns
    times = []
    for item in items:
        start = clock()
        await append(item)
        times.append(clock() - start)
    return times


def serve(make: Callable[[Path], Peer]) -> None:
    """Answer until stdin ends: ``N`` appends N messages, ``facts`` tells what an append does."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the peer prints is no answer
    texts = _messages()
    peer = make(Path(sys.argv[1]))
    for line in sys.stdin:
        word = line.strip()
        if word == "facts":
            answer: object = _facts(peer, texts)
        else:
            prepared = [next(texts) for _ in range(int(word))]
            gc.collect()
            start = time.perf_counter_ns()
            each = peer.append_each(prepared)
            answer = {"each": each, "all": time.perf_counter_ns() - start}
        print(json.dumps(answer), file=answers)


def _messages() -> Iterator[str]:
    """Return an endless stream of messages of about 1 kB, none like another."""
    number = 0
    while True:
        number += 1
        words = f"Message {number}: the tool answered, and the next step is this one. "
        yield (words * (MESSAGE_BYTES // len(words) + 1))[:MESSAGE_BYTES]


def _facts(peer: Peer, texts: Iterator[str]) -> dict[str, Any]:
    """Look at the peer's own file from outside while it appends."""
    peer.append_each([next(texts)])
    before = _rows(peer.path)
    seen = 0
    with closing(sqlite3.connect(peer.path, isolation_level=None)) as observer:
        last = _data_version(observer)
        for _ in range(FACT_APPENDS):
            peer.append_each([next(texts)])
            now = _data_version(observer)
            seen += now != last
            last = now
        observer.execute("PRAGMA wal_checkpoint").fetchall()
    after = _rows(peer.path)
    after.subtract(before)
    return {
        "name": peer.name,
        "version": version(peer.package) if peer.package else sqlite3.sqlite_version,
        "stores": peer.stores,
        "journal_mode": str(_stored_pragma(peer.path, "journal_mode")).upper(),
        "synchronous": _SYNCHRONOUS[int(peer.pragma("synchronous"))],
        "seen": seen / FACT_APPENDS,
        "rows": {name: count / FACT_APPENDS for name, count in after.items() if count},
    }


def _data_version(observer: sqlite3.Connection) -> int:
    """Return a number that changes when another connection has committed."""
    return int(observer.execute("PRAGMA data_version").fetchone()[0])


def _stored_pragma(path: Path, name: str) -> Any:
    with closing(sqlite3.connect(path)) as driver:
        return driver.execute(f"PRAGMA {name}").fetchone()[0]


def _rows(path: Path) -> Counter[str]:
    with closing(sqlite3.connect(path)) as driver:
        names = driver.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        return Counter(
            {
                name: driver.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
                for (name,) in names
            }
        )


class AsyncPeer(Peer):
    """A peer with an asynchronous API, in one event loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.Runner()

    def append_each(self, texts: Sequence[str]) -> list[int]:
        """Append these messages in turn, within the loop."""
        return self._loop.run(self._append_each(texts))

    def pragma(self, name: str) -> Any:
        """Return the value of a pragma on a connection of the peer's own making."""
        return self._loop.run(self._pragma(name))

    @abstractmethod
    async def _append_each(self, texts: Sequence[str]) -> list[int]: ...

    @abstractmethod
    async def _pragma(self, name: str) -> Any: ...
