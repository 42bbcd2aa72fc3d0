"""What the children of ``tests/test_fork.py`` do: fork with a session open, look at the harm."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from statebackend import (
    BadSession,
    Session,
    SessionForked,
    SessionStatus,
    SessionView,
    StateBackend,
)
from tests.crash.children import say
from tests.crash.samples import MODEL, append, cost

# A child that hangs is ended by this, and its code is then not the expected one.
HANG_S = 60


def in_child(work: Callable[[], object]) -> str:
    """Do *work* in a forked child and return what it returned, as text; end it by ``_exit``."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(HANG_S)
        try:
            answer = str(work())
        except BaseException as error:  # noqa: BLE001 - the answer
            answer = type(error).__name__
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the child ended with {os.waitstatus_to_exitcode(status)}"
    return answer


def batch(session: Session) -> None:
    """Append a batch."""
    with session.batch() as batch:
        batch.append_message(producer=MODEL, payload=b"1", cost=cost())


def orm(view: SessionView) -> None:
    """Enter an ORM block."""
    with view.orm():
        pass


USES: dict[str, Callable[[Session, SessionView], object]] = {
    "append": lambda session, _: append(session),
    "batch": lambda session, _: batch(session),
    "set_status": lambda session, _: session.set_status(SessionStatus.FAILED),
    "info": lambda session, _: session.info,
    "events": lambda session, _: list(session.events()),
    "view's events": lambda _, view: list(view.events()),
    "event": lambda _, view: view.event("none"),
    "counts": lambda _, view: view.counts(),
    "costs": lambda _, view: list(view.costs()),
    "cost_totals": lambda session, _: session.cost_totals(),
    "plan_items": lambda session, _: list(session.plan_items()),
    "producers": lambda session, _: session.producers(),
    "open_tool_calls": lambda session, _: session.open_tool_calls(lambda _: None),
    "follow": lambda _, view: list(view.follow()),
    "orm": lambda _, view: orm(view),
    "session's orm": lambda session, _: orm(session),  # type: ignore[arg-type]
    "enter": lambda session, _: session.__enter__().counts(),
}


def use_in_child(directory: str, session_id: str, use: str) -> None:
    """Use inherited handles; then append in the parent."""
    backend = StateBackend(directory)
    with backend.open(session_id) as session, backend.read(session_id) as view:
        session.counts()
        answer = in_child(lambda: USES[use](session, view))
        append(session)
        say([answer, session.counts().events])


def use_in_child_of_busy_parent(directory: str, session_id: str, use: str) -> None:
    """Use inherited handles whose locks another thread of the parent held."""
    backend = StateBackend(directory)
    with backend.open(session_id) as session, backend.read(session_id) as view:
        session.counts()
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with session._held.lock, view._held.lock:
                held.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        answer = in_child(lambda: USES[use](session, view))
        done.set()
        thread.join()
        append(session)
        say([answer, session.counts().events])


def end_of_child(directory: str, session_id: str, way: str) -> None:
    """Let a child end with everything open; then see what is left of the parent's."""
    backend = StateBackend(directory)
    path = Path(directory) / f"{session_id}.sqlite"
    log = Path(f"{path}-wal")
    session, view = backend.open(session_id), backend.read(session_id)
    append(session)
    list(view.events())
    iterating = iter(view.events())
    next(iterating)
    with view.orm() as open_orm:
        open_orm.connection().exec_driver_sql("SELECT 1 FROM events").all()
        before, size = _locks(path), log.stat().st_size
        if not (child := os.fork()):
            _end(way)
        os.waitpid(child, 0)
        told = {
            "locks kept": bool(before) and _locks(path) == before,
            "log kept": log.stat().st_size == size,
        }
    append(session)
    lock = path.parent / ".locks" / f"{session_id}.lock"
    told["claimed"] = in_child(lambda: _lock(lock)) == "BlockingIOError"
    say(told | {"events": session.counts().events})
    view.close()
    session.close()


def child_outlives(directory: str, session_id: str, way: str) -> None:
    """Let a child end after this process has closed the session and others have written it."""
    backend = StateBackend(directory)
    session, view = backend.open(session_id), backend.read(session_id)
    for _ in range(5):
        append(session, payload=b"x" * 5000)
    list(view.events())
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.close(writing)
        os.read(reading, 1)
        _end(way)
    view.close()
    session.close()
    for _ in range(3):
        with backend.open(session_id) as again:
            for _ in range(10):
                append(again, payload=b"y" * 9000)
    os.close(writing)
    os.waitpid(child, 0)
    with backend.read(session_id) as view:
        say([event.sequence for event in view.events()])


def _end(way: str) -> NoReturn:
    signal.alarm(HANG_S)
    gc.collect()
    if way == "_exit":
        os._exit(0)
    if way == "exec":
        os.execv(sys.executable, [sys.executable, "-c", ""])  # noqa: S606 - the very point
    os.close(2)  # the traceback is of no interest
    raise SystemExit(0) if way == "exit" else ValueError


def _lock(path: Path) -> None:
    with path.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _locks(path: Path) -> set[str]:
    inodes = {str(Path(f"{path}{ending}").stat().st_ino) for ending in ("", "-wal", "-shm")}
    return {
        line.partition(":")[2]
        for line in Path("/proc/locks").read_text().splitlines()
        if f" {os.getpid()} " in line and line.split()[5].rpartition(":")[2] in inodes
    }


def open_anew(directory: str, session_id: str) -> None:
    """Open, read and copy the session in a child."""
    backend = StateBackend(directory)
    with backend.open(session_id):
        say(
            [
                in_child(lambda: backend.open(session_id)),
                in_child(lambda: backend.read(session_id)),
                in_child(lambda: backend.copy(session_id, Path(directory).parent / "copy")),
            ]
        )


def use_others(directory: str, session_id: str) -> None:
    """Create, open and list in a child."""
    backend = StateBackend(directory)
    other = _new(backend)

    def create() -> int:
        with backend.create("default") as created:
            append(created)
            return created.counts().events

    def reopen() -> int:
        with backend.open(other) as opened, backend.read(other) as view:
            append(opened)
            append(opened)
            return len(list(view.events()))

    with backend.open(session_id) as session:
        told = {"created": int(in_child(create)), "opened": int(in_child(reopen))}
        told["listed"] = int(in_child(lambda: len(backend.list())))
        told["flagged"] = int(in_child(lambda: len(_flagged(backend))))
        append(session)
        say(told)


def _new(backend: StateBackend) -> str:
    with backend.create("default") as session:
        append(session)
        return session.session_id


def _flagged(backend: StateBackend) -> list[BadSession]:
    flagged = [one for one in backend.scan() if isinstance(one, BadSession)]
    assert all(isinstance(one.error, SessionForked) for one in flagged)
    return flagged


def grandchild(directory: str, session_id: str) -> None:
    """Fork twice."""
    backend = StateBackend(directory)
    with backend.open(session_id) as session:
        say(
            [
                in_child(lambda: in_child(lambda: append(session))),
                in_child(lambda: in_child(lambda: backend.read(session_id))),
                append(session).sequence,
            ]
        )


def ids(directory: str, session_id: str) -> None:
    """Make ids of one millisecond in parent and child."""
    from datetime import UTC, datetime

    from statebackend.values.ids import new_event_id, new_session_id

    moment = datetime(2026, 1, 1, tzinfo=UTC)

    def make() -> str:
        made = [new_session_id(moment) for _ in range(100)] + [new_event_id() for _ in range(100)]
        return " ".join(made)

    make()
    with StateBackend(directory).open(session_id):
        theirs = in_child(make)
        say(len({*theirs.split(), *make().split()}))


def pool(directory: str, session_id: str) -> None:
    """Let forked workers create sessions while this process has one open."""
    backend = StateBackend(directory)
    with backend.open(session_id) as session:
        with multiprocessing.get_context("fork").Pool(2) as workers:
            made = workers.starmap(_work, [(directory, session_id)] * 8)
        append(session)
        say({"workers": len(set(made)), "events": session.counts().events})


def _work(directory: str, parent: str) -> str:
    backend = StateBackend(directory)
    with suppress(SessionForked):
        backend.open(parent)
    return _new(backend)


@contextmanager
def busy_threads(backend: StateBackend, session_id: str) -> Iterator[None]:
    """Keep the package's own locks busy: list, read, open and close in threads."""
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            backend.list()
            with backend.read(session_id, check=False) as view:
                view.counts()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def fork_beside_threads(directory: str, session_id: str) -> None:
    """Fork again and again, and use the package's locks in the child."""
    from statebackend.files import claim, open_files

    backend = StateBackend(directory)
    path = Path(directory) / f"{session_id}.sqlite"

    def touch() -> int:
        with open_files._registry.mutex:
            claim.writer_of(path)
            with suppress(SessionForked), open_files.untouched(path):
                pass
        return 1

    with busy_threads(backend, session_id):
        say(sum(int(in_child(touch)) for _ in range(20)))


def close_in_child(directory: str, session_id: str) -> None:
    """Close and forget the handles in a child, in the middle of blocks."""
    backend = StateBackend(directory)
    session, view = backend.open(session_id), backend.read(session_id)

    def close() -> str:
        nonlocal session, view
        session.close()
        view.close()
        del session, view
        gc.collect()
        return "closed"

    append(session)
    with view.orm() as open_orm, contextlib.ExitStack():
        open_orm.connection().exec_driver_sql("SELECT 1 FROM events").all()
        answer = in_child(close)
    say([answer, session.counts().events])
    session.close()
    view.close()
