"""LangGraph: ``SqliteSaver``, which stores the whole state at every step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.peers.worker import Peer, serve, timed


class LangGraphSaver(Peer):
    """``put`` of a checkpoint whose state holds the last ``history`` messages."""

    name: ClassVar[str] = "LangGraph SqliteSaver, 1 message"
    package: ClassVar[str] = "langgraph-checkpoint-sqlite"
    stores: ClassVar[str] = "a checkpoint: the state, here 1 message"
    history: ClassVar[int] = 1

    def __init__(self, folder: Path) -> None:
        self.path = folder / "langgraph.db"
        self._stack = ExitStack()
        self._saver = self._stack.enter_context(SqliteSaver.from_conn_string(str(self.path)))
        self._saver.setup()
        self._last: dict[str, Any] = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
        self._state: list[str] = []

    def append_each(self, texts: Sequence[str]) -> list[int]:
        """Put a checkpoint after each message."""
        return timed(self._put, [self._checkpoint(text) for text in texts])

    def _checkpoint(self, text: str) -> Any:
        checkpoint = empty_checkpoint()
        self._state = [*self._state, text][-self.history :]
        checkpoint["channel_values"] = {"messages": self._state}
        return checkpoint

    def _put(self, checkpoint: Any) -> None:
        self._last = self._saver.put(self._last, checkpoint, {"source": "loop"}, {})

    def pragma(self, name: str) -> Any:
        """Ask the connection of the saver."""
        return self._saver.conn.execute(f"PRAGMA {name}").fetchone()[0]


if __name__ == "__main__":
    serve(LangGraphSaver)
