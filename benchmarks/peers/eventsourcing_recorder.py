"""eventsourcing: the recorder of an application, on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

from benchmarks.peers.worker import Peer, serve, timed


class EventsourcingRecorder(Peer):
    """``insert_events`` of one stored event."""

    name: ClassVar[str] = "eventsourcing SQLite recorder"
    package: ClassVar[str] = "eventsourcing"
    stores: ClassVar[str] = "the event's state as bytes"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "eventsourcing.db"
        self._datastore = SQLiteDatastore(str(self.path))
        self._recorder = SQLiteApplicationRecorder(self._datastore)
        self._recorder.create_table()
        self._id = uuid4()
        self._versions = count(1)

    def append_each(self, texts: Sequence[str]) -> list[int]:
        """Insert each event by itself."""
        events = [
            [StoredEvent(self._id, next(self._versions), "sample:Message", text.encode())]
            for text in texts
        ]
        return timed(self._recorder.insert_events, events)

    def pragma(self, name: str) -> Any:
        """Ask a connection of the datastore's pool."""
        with self._datastore.transaction(commit=False) as cursor:
            cursor.execute(f"PRAGMA {name}")
            return cursor.fetchone()[0]


if __name__ == "__main__":
    serve(EventsourcingRecorder)
