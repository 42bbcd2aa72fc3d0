"""What the children of ``test_rights`` do as a user who may change nothing."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from statebackend import AsyncStateBackend, StateBackend, StateBackendError
from statebackend.aio import Opening
from tests.crash.children import say

_NOBODY = 65534


def use_as_nobody(directory: str, session_id: str) -> None:
    """Do everything with a session as another user; say what each gave, or its error."""
    _become_nobody()
    use(directory, session_id)


def open_as_nobody(directory: str, session_id: str) -> None:
    """Open a session as another user; say the error."""
    _become_nobody()
    try:
        StateBackend(directory).open(session_id).close()
    except StateBackendError as error:
        say(str(error))
    else:
        say("opened")


def append_without_threads(directory: str, session_id: str) -> None:
    """Use asyncio as a user who may start no thread, then as one who may again."""
    _become_nobody()

    async def work() -> None:
        backend = AsyncStateBackend(directory)
        limits = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, limits[1]))
        errors = []
        for use in (
            lambda: _entered(backend.open(session_id)),
            lambda: _entered(backend.read(session_id)),
            backend.list,
        ):
            try:
                await asyncio.wait_for(use(), 10)
                errors.append("done")
            except (StateBackendError, TimeoutError) as error:
                errors.append(f"{type(error).__name__}: {error}")
        resource.setrlimit(resource.RLIMIT_NPROC, limits)
        session = await backend.open(session_id)
        await session.append_prompt(payload=b"", schema_version="1", event_id="kept")
        events = [event.id async for event in session.events()]
        await session.close()
        say([errors, events])

    asyncio.run(work())


async def _entered(opening: Opening[Any]) -> None:
    async with opening:
        pass


def _become_nobody() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


def use(directory: str, session_id: str) -> None:
    """Do everything with a session; say what each gave, or its error."""
    backend = StateBackend(directory)

    def read() -> int:
        with backend.read(session_id) as view, view.orm() as orm:
            orm.connection()
            return len(list(view.events()))

    def partial() -> int:
        with backend.read_partial(session_id) as view:
            return view.counts().events

    def copy() -> int:
        with TemporaryDirectory() as folder:
            return int(backend.copy(session_id, Path(folder)).exists())

    uses: dict[str, Callable[[], object]] = {
        "list": lambda: type(backend.list()[0]).__name__,
        "read": read,
        "partial": partial,
        "copy": copy,
        "open": lambda: backend.open(session_id).close(),
        "create": lambda: backend.create("default").close(),
    }
    said = {}
    for name, one in uses.items():
        try:
            said[name] = one()
        except StateBackendError as error:
            path = getattr(error, "path", "")
            said[name] = type(error).__name__ + (" named" if str(directory) in str(path) else "")
    say(said)
