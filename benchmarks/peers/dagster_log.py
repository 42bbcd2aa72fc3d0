"""Dagster: the event log of a run, a file of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from dagster import EventLogEntry
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy import text

from benchmarks.peers.worker import Peer, serve, timed

_RUN = "0123abcd"


class DagsterLog(Peer):
    """``store_event`` of one log message."""

    name: ClassVar[str] = "Dagster event log of a run"
    package: ClassVar[str] = "dagster"
    stores: ClassVar[str] = "the entry as JSON; opens and closes the file"

    def __init__(self, folder: Path) -> None:
        self._storage = SqliteEventLogStorage(str(folder))
        self.path = Path(self._storage.path_for_shard(_RUN))

    def append_each(self, texts: Sequence[str]) -> list[int]:
        """Store each entry by itself."""
        entries = [
            EventLogEntry(
                error_info=None,
                level="info",
                user_message=text,
                run_id=_RUN,
                timestamp=time.time(),
            )
            for text in texts
        ]
        return timed(self._storage.store_event, entries)

    def pragma(self, name: str) -> Any:
        """Ask a connection that the storage makes."""
        with self._storage.run_connection(_RUN) as connection:
            return connection.execute(text(f"PRAGMA {name}")).scalar()


if __name__ == "__main__":
    serve(DagsterLog)
