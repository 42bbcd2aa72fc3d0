"""What the children of ``test_interrupts`` do: writes and reads that a signal interrupts.

Not within pytest, whose own code must not be hit by the signals.
"""

from __future__ import annotations

import ctypes
import gc
import random
import signal
import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from statebackend import (
    DuplicateEvent,
    InvalidTransition,
    Session,
    SessionLocked,
    SessionStatus,
    StateBackend,
    StorageError,
)
from statebackend.files import open_files
from tests.crash.samples import MODEL, append, cost, item

MOMENTS = 100
DELAY_S = 0.003
_armed = False


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    if _armed:
        raise KeyboardInterrupt


def interrupted(call: Callable[[], object], delay_s: float) -> None:
    """Do *call*; if it takes longer than that, end it as Ctrl-C would."""
    global _armed
    signal.signal(signal.SIGALRM, _interrupt)
    sys.unraisablehook = lambda _args: None  # one that came within a destructor
    try:
        try:
            _armed = True
            signal.setitimer(signal.ITIMER_REAL, delay_s)
            call()
        finally:
            _armed = False
    except KeyboardInterrupt:
        _armed = False
    except StorageError as error:
        # Within the authorizer, the sqlite3 module takes the interrupt for a refusal.
        assert "SQLITE_AUTH" in str(error), error  # noqa: PT017 - there need not be one
    signal.setitimer(signal.ITIMER_REAL, 0)


def _delays(seed: int, longest: float = DELAY_S) -> list[float]:
    chance = random.Random(seed)
    return [1e-6 + chance.random() * longest for _ in range(MOMENTS)]


def one(session: Session, name: str) -> None:
    """Append a message of this id."""
    append(session, name)


def several(session: Session, name: str) -> None:
    """Append a batch of a message, a plan and a message, ids from this name."""
    with session.batch() as batch:
        batch.append_message(producer=MODEL, payload=b"1", cost=cost(), event_id=f"{name}-1")
        batch.append_plan(producer=MODEL, payload=b"2", items=[item()], event_id=f"{name}-2")
        batch.append_message(producer=MODEL, payload=b"3", cost=cost(), event_id=f"{name}-3")


def appends(directory: str, session_id: str) -> None:
    """Interrupt single appends."""
    _writes(directory, session_id, one, 1)


def batches(directory: str, session_id: str) -> None:
    """Interrupt batches."""
    _writes(directory, session_id, several, 3)


def _writes(
    directory: str, session_id: str, write: Callable[[Session, str], None], size: int
) -> None:
    session = StateBackend(directory).create("default", session_id=session_id)
    for number, delay in enumerate(_delays(size)):
        interrupted(lambda: write(session, str(number)), delay)  # noqa: B023 - called at once
        count = session.counts().events
        assert count in {number * size, (number + 1) * size}
        try:
            write(session, str(number))
        except DuplicateEvent as error:
            assert (error.same_content, count) == (True, (number + 1) * size)  # noqa: PT017
        assert session.counts().events == (number + 1) * size
    sequences = [event.sequence for event in session.events()]
    assert sequences == list(range(1, MOMENTS * size + 1))
    session.close()


def statuses(directory: str, session_id: str) -> None:
    """Interrupt changes of the status."""
    backend = StateBackend(directory)
    session = backend.create("default", session_id=session_id)
    for number, delay in enumerate(_delays(3)):
        target = (SessionStatus.RUNNING, SessionStatus.COMPLETED)[number % 2 == 0]
        interrupted(lambda: session.set_status(target), delay)  # noqa: B023 - called at once
        with suppress(InvalidTransition):  # it was done before the interrupt came
            session.set_status(target)
        info = session.info
        assert info.status is target
        assert (info.ended_at is None) == (target is SessionStatus.RUNNING)
        with backend.read(session_id, check=False) as view:
            assert view.info == info
    assert append(session).sequence == 1
    session.close()


def reads(directory: str, session_id: str) -> None:
    """Interrupt reading, in between appends."""
    session = StateBackend(directory).create("default", session_id=session_id)
    for _ in range(20):
        append(session)
    for number, delay in enumerate(_delays(4)):
        interrupted(lambda: _read(session), delay)
        assert len(list(session.events())) == 20 + number
        append(session)
    session.close()


def _read(session: Session) -> None:
    while True:
        session.counts()
        for event in session.events(limit=5):
            session.event(event.id)


def opens(directory: str, session_id: str) -> None:
    """Interrupt opening for writing, and for reading."""
    warnings.simplefilter("ignore", ResourceWarning)
    backend = StateBackend(directory)
    with backend.create("default", session_id=session_id) as session:
        append(session)
    for number, delay in enumerate(_delays(5, 2 * DELAY_S)):
        open_it = (backend.open, backend.read)[number % 2]
        interrupted(lambda: open_it(session_id).close(), delay)  # noqa: B023 - called at once
        with _open(backend, session_id) as again:
            assert again.counts().events == 1
    gc.collect()
    backend.open(session_id).close()


def notes(directory: str, session_id: str) -> None:
    """Interrupt the noting that a file is open: it ends with the block, at whatever moment."""
    backend = StateBackend(directory)
    with backend.create("default", session_id=session_id) as session:
        append(session)
        path = session.path
    for delay in _delays(6, 6e-5) * 20:
        interrupted(lambda: _note(path), delay)
        with open_files.untouched(path) as free:
            assert free


def closes(directory: str, session_id: str) -> None:
    """Interrupt the closing of a view, close it again: nothing of its locks is left behind."""
    backend = StateBackend(directory)
    with backend.create("default", session_id=session_id) as session:
        append(session)
    for delay in _delays(7, 1e-3) * 2:
        view = backend.read(session_id, check=False)
        interrupted(view.close, delay)
        view.close()
        with backend.open(session_id) as again:
            assert again.counts().events == 1
        assert not Path(f"{again.path}-wal").exists(), "a lock of the view is left"


def _note(path: Path) -> None:
    with open_files.OpenFile(path):
        pass


def _open(backend: StateBackend, session_id: str) -> Session:
    try:
        return backend.open(session_id)
    except SessionLocked:  # by a session that nobody was given and nobody closed
        gc.collect()
        return backend.open(session_id)


class Stopped(BaseException):
    """What is raised in a thread from outside."""


def threads(directory: str, session_id: str) -> None:
    """Stop a thread within its appends, again and again."""
    chance = random.Random(6)
    session = StateBackend(directory).create("default", session_id=session_id)
    acknowledged: list[int] = []

    def work() -> None:
        with suppress(Stopped):
            while True:
                acknowledged.append(append(session).sequence)

    sys.unraisablehook = lambda _args: None
    threading.excepthook = lambda _args: None
    for _ in range(20):
        thread = threading.Thread(target=work)
        thread.start()
        threading.Event().wait(chance.random() * DELAY_S)
        while thread.is_alive():
            assert thread.ident is not None
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped)
            )
            thread.join(0.05)
        acknowledged.append(append(session).sequence)
    sequences = [event.sequence for event in session.events()]
    assert sequences == list(range(1, len(sequences) + 1))
    assert acknowledged == sorted(set(acknowledged))
    assert set(acknowledged) <= set(sequences)
    session.close()


def failing_blocks(directory: str, session_id: str) -> None:
    """Raise within the block of a batch."""
    with StateBackend(directory).create("default", session_id=session_id) as session:
        for error in (KeyboardInterrupt(), ValueError("mine"), sqlite3.OperationalError("mine")):
            try:
                with session.batch() as batch:
                    batch.append_message(producer=MODEL, payload=b"1", cost=cost())
                    raise error
            except type(error) as raised:
                assert raised is error  # noqa: PT017 - pytest is not here
            assert batch.events == ()
        assert append(session).sequence == 1
