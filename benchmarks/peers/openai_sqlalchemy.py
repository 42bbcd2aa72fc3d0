"""OpenAI Agents SDK: ``SQLAlchemySession`` on aiosqlite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from agents.extensions.memory import SQLAlchemySession
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.peers.worker import AsyncPeer, serve, timed_async


class OpenAISqlalchemy(AsyncPeer):
    """``add_items`` of one message."""

    name: ClassVar[str] = "OpenAI Agents SQLAlchemySession"
    package: ClassVar[str] = "openai-agents"
    stores: ClassVar[str] = "the item as JSON; updates its session's row"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "openai.db"
        self._engine = create_async_engine(f"sqlite+aiosqlite:///{self.path}")
        self._session = SQLAlchemySession("session", engine=self._engine, create_tables=True)

    async def _append_each(self, texts: Sequence[str]) -> list[int]:
        items = [[{"role": "assistant", "content": text}] for text in texts]
        return await timed_async(self._session.add_items, items)

    async def _pragma(self, name: str) -> Any:
        async with self._engine.connect() as connection:
            return (await connection.execute(text(f"PRAGMA {name}"))).scalar()


if __name__ == "__main__":
    serve(OpenAISqlalchemy)
