"""LangGraph: ``SqliteSaver`` with the state of a conversation that has gone on for a while."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from benchmarks.peers.langgraph_saver import LangGraphSaver
from benchmarks.peers.worker import MESSAGE_BYTES, serve


class LangGraphHistory(LangGraphSaver):
    """As :class:`LangGraphSaver`, with the last 100 messages in the state."""

    name: ClassVar[str] = "LangGraph SqliteSaver, 100 messages"
    stores: ClassVar[str] = "a checkpoint: the state, here 100 messages"
    history: ClassVar[int] = 100

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._state = ["x" * MESSAGE_BYTES] * self.history


if __name__ == "__main__":
    serve(LangGraphHistory)
