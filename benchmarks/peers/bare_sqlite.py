"""Bare ``sqlite3``: WAL, ``synchronous = FULL``, our tables, one transaction a message."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import bare
from benchmarks.peers.ours import COST, cost_row
from benchmarks.peers.worker import Peer, serve, timed
from benchmarks.samples import MODEL, START, Sample, new_session, text
from statebackend import EventKind, StateBackend
from statebackend.values.ids import new_event_id


class BareSqlite(Peer):
    """Two INSERTs in a transaction, on a byte copy of a file that we created."""

    name: ClassVar[str] = "bare sqlite3, our tables"
    stores: ClassVar[str] = "the event and its cost row"

    def __init__(self, folder: Path) -> None:
        backend = StateBackend(folder / "made")
        self.path = folder / "bare.sqlite"
        shutil.copyfile(backend.directory / f"{new_session(backend, [])}.sqlite", self.path)
        self._driver = bare.connect(self.path)
        bare.append_first(self._driver, [_sample("the first")])

    def append_each(self, texts: Sequence[str]) -> list[int]:
        """Append these messages with rows made beforehand."""
        samples = [_sample(text) for text in texts]
        return timed(lambda text: bare.append_each(self._driver, (text,)), samples)

    def pragma(self, name: str) -> Any:
        """Ask the connection."""
        return self._driver.execute(f"PRAGMA {name}").fetchone()[0]


def _sample(message: str) -> Sample:
    event_id, payload = new_event_id(), message.encode()
    source = (MODEL.category, MODEL.name, MODEL.version)
    row = (event_id, text(START), EventKind.MESSAGE.value, *source, "1", payload)
    return Sample(EventKind.MESSAGE, MODEL, payload, COST, event_id, START, row, cost_row())


if __name__ == "__main__":
    serve(BareSqlite)
