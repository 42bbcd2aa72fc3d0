"""What the children of ``test_rights`` do as a user who may change nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from statebackend import StateBackend, StateBackendError
from tests.crash.children import say

_NOBODY = 65534


def use_as_nobody(directory: str, session_id: str) -> None:
    """Do everything with a session as another user; say what each gave, or its error."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    use(directory, session_id)


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
