"""Google ADK: ``DatabaseSessionService`` on aiosqlite."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService
from google.genai import types
from sqlalchemy import text

from benchmarks.peers.worker import AsyncPeer, serve, timed_async


class AdkDatabase(AsyncPeer):
    """``append_event`` of one message."""

    name: ClassVar[str] = "Google ADK DatabaseSessionService"
    package: ClassVar[str] = "google-adk"
    stores: ClassVar[str] = "the event as JSON; reads and updates its session"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "adk.db"
        self._service = DatabaseSessionService(f"sqlite+aiosqlite:///{self.path}")
        self._session = self._loop.run(self._service.create_session(app_name="app", user_id="user"))

    async def _append_each(self, texts: Sequence[str]) -> list[int]:
        events = [
            Event(
                invocation_id="invocation",
                author="model",
                content=types.Content(role="model", parts=[types.Part(text=text)]),
            )
            for text in texts
        ]
        return await timed_async(partial(self._service.append_event, self._session), events)

    async def _pragma(self, name: str) -> Any:
        async with self._service.db_engine.connect() as connection:
            return (await connection.execute(text(f"PRAGMA {name}"))).scalar()


if __name__ == "__main__":
    serve(AdkDatabase)
