"""What the children of ``test_limits`` do: sessions under limits of the system, and signals."""

from __future__ import annotations

import gc
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from statebackend import DuplicateEvent, StateBackend, StateBackendError, StorageError
from tests.crash.children import hear, say
from tests.crash.samples import append

_SPARE = 14


@contextmanager
def limit(kind: int, value: int) -> Iterator[None]:
    """Set a limit of this process for a while."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def _uses(backend: StateBackend, session_id: str, other: str) -> dict[str, Callable[[], object]]:
    session = backend.open(other)

    def read() -> None:
        with backend.read(session_id) as view:
            list(view.events())

    def write() -> None:
        append(session)
        list(session.events())

    return {
        "list": backend.list,
        "read": read,
        "open": lambda: backend.open(session_id).close(),
        "create": lambda: backend.create("default").close(),
        "append": write,
        "copy": lambda: backend.copy(session_id, backend.directory.parent / "copy.sqlite").unlink(),
    }


def few_descriptors(directory: str, session_id: str, other: str) -> None:
    """Do everything with 0, 1, 2 … descriptors left; say what errors each had, typed ones."""
    backend = StateBackend(directory)
    said = {}
    for name, use in _uses(backend, session_id, other).items():
        use()  # so that all imports are done
        errors = set()
        for left in range(_SPARE):
            gc.collect()
            lowest = os.dup(0)
            os.close(lowest)
            try:
                with limit(resource.RLIMIT_NOFILE, lowest + left):
                    found = use()
                if isinstance(found, list):
                    errors |= {type(one.error).__name__ for one in found if hasattr(one, "error")}
            except StateBackendError as error:
                named = str(getattr(error, "path", "")).startswith(str(Path(directory).parent))
                errors.add(type(error).__name__ + ("" if named else " without its file"))
        use()
        said[name] = sorted(errors)
    say(said)


def few_descriptors_in_a_recovery(directory: str, session_id: str) -> None:
    """Open a damaged session with 0, 1, 2 … descriptors left, until that recovers it."""
    backend = StateBackend(directory)
    with suppress(StateBackendError):
        backend.read(session_id)
    backend.create("default").close()
    import statebackend.recovery.salvage.target  # noqa: F401 - before descriptors are few

    refused = 0
    for left in range(_SPARE):
        lowest = os.dup(0)
        os.close(lowest)
        try:
            with limit(resource.RLIMIT_NOFILE, lowest + left):
                backend.open(session_id).close()
            break
        except StorageError:
            refused += 1
            corrupt = [one for one in backend.directory.iterdir() if ".corrupt" in one.name]
            say([len(corrupt) > 0, len(backend.recoveries())])
    say(refused)


def little_memory(directory: str, session_id: str) -> None:
    """Append ever larger payloads in little memory; say how many were kept, and were not."""
    with StateBackend(directory).open(session_id) as session:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        used = pages * resource.getpagesize()
        kept = failed = 0
        with limit(resource.RLIMIT_AS, used + (48 << 20)):
            for size in range(1, 64, 9):
                try:
                    append(session, f"{size}", bytes(size << 20))
                    kept += 1
                except (MemoryError, StorageError):
                    failed += 1
        for size in range(1, 64, 9):  # with memory again, the same session takes them all
            try:
                append(session, f"{size}", bytes(size << 20))
            except DuplicateEvent as error:
                assert error.same_content  # noqa: PT017 - there need not be one
        say([kept, failed, session.counts().events])


def end_by_sigterm(directory: str, session_id: str, way: str) -> None:
    """Append and say so, until SIGTERM comes: it kills, or a handler ends the process."""

    def leave(_signal: int, _frame: FrameType | None) -> None:
        sys.exit(0)

    if way == "handled":
        signal.signal(signal.SIGTERM, leave)
    with StateBackend(directory).open(session_id) as session:
        for number in range(random.Random().randrange(10**6, 10**7), 10**8):
            append(session, str(number))
            say(str(number))


def wait_for_it(directory: str) -> None:
    """Say that it is there, and wait."""
    say(directory)
    hear()
