"""OpenAI Agents SDK: ``SQLiteSession``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from agents import SQLiteSession

from benchmarks.peers.worker import AsyncPeer, serve, timed_async


class OpenAISqlite(AsyncPeer):
    """``add_items`` of one message."""

    name: ClassVar[str] = "OpenAI Agents SQLiteSession"
    package: ClassVar[str] = "openai-agents"
    stores: ClassVar[str] = "the item as JSON; updates its session's row"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "openai.db"
        self._session = SQLiteSession("session", self.path)

    async def _append_each(self, texts: Sequence[str]) -> list[int]:
        items = [[{"role": "assistant", "content": text}] for text in texts]
        return await timed_async(self._session.add_items, items)

    async def _pragma(self, name: str) -> Any:
        return await asyncio.to_thread(self._ask, name)

    def _ask(self, name: str) -> Any:
        connection = self._session._get_connection()  # noqa: SLF001 - no other way to it
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


if __name__ == "__main__":
    serve(OpenAISqlite)
