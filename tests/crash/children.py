"""What child processes of the tests do: ``python -m tests.crash.children MODULE:FUNCTION …``.

pytest is not imported here, so that a child starts fast and with one thread.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import socket
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NoReturn

from statebackend import (
    EventKind,
    InvalidTransition,
    Session,
    SessionLocked,
    StateBackend,
    StateBackendError,
)
from tests.crash import samples


def say(value: object) -> None:
    """Send one line to the test."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def hear() -> str:
    """Return the next line of the test, empty when it is gone."""
    return sys.stdin.readline().strip()  # nothing has read from it before a fork


# ── The claim ────────────────────────────────────────────────────────────────────────────────


def hold(directory: str, session_id: str) -> None:
    """Keep a session open for writing until told to close it."""
    with StateBackend(directory).open(session_id):
        say("open")
        hear()
    say("closed")


def create_and_hold(directory: str, session_id: str) -> None:
    """Create a session and keep it open until told to close it."""
    with StateBackend(directory).create("default", session_id=session_id) as session:
        samples.append(session)
        say("open")
        hear()


def hold_beside_a_fork(directory: str, session_id: str) -> None:
    """Keep a session open; a forked child sleeps. Say the child's pid."""
    with StateBackend(directory).open(session_id) as session:
        samples.append(session)
        child = os.fork()
        if not child:
            sleep_forever()
        say(child)
        hear()


def attempt(directory: str, session_id: str) -> None:
    """Try to open a session for writing and say how it went."""
    try:
        StateBackend(directory).open(session_id).close()
    except SessionLocked as error:
        since = None if error.since is None else error.since.isoformat()
        say({"pid": error.pid, "host": error.host, "since": since})
    else:
        say("opened")


def lock_bare(lock: str) -> None:
    """Take the record lock on a file as it is, writing nothing into it."""
    with Path(lock).open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        say("locked")
        hear()


def race(directory: str, session_id: str, _number: str) -> None:
    """At each line open the session, or close what was won; say how it went."""
    backend, session = StateBackend(directory), None
    while hear():
        if session is not None:
            session.close()
            session = None
            say("closed")
            continue
        try:
            session = backend.open(session_id)
            say("won")
        except SessionLocked:
            say("locked")
        except StateBackendError as error:
            say(repr(error))


def churn(directory: str, session_id: str, times: str, number: str) -> None:
    """Open and close as fast as can be; while open, a marker file proves that nobody else is."""
    backend, marker, held = StateBackend(directory), Path(directory) / "marker", 0
    for _ in range(int(times)):
        try:
            session = backend.open(session_id)
        except SessionLocked:
            continue
        with session:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            samples.append(session, f"{number}-{held}")
            held += 1
            marker.unlink()
    say(held)


def race_to_append(directory: str, _number: str) -> None:
    """At each line, an id, resume that session and append to it; say how it went."""
    backend = StateBackend(directory)
    while session_id := hear():
        try:
            with backend.open(session_id) as session:
                samples.append(session)
            say("appended")
        except (SessionLocked, InvalidTransition):
            say("refused")


def race_to_reap(directory: str, _number: str) -> None:
    """At each line, an id, close that session for its dead writer; say what became of it."""
    backend = StateBackend(directory)
    while session_id := hear():
        (row,) = backend.reap("failed", session_ids=[session_id], dry_run=False)
        say(row.outcome)


def open_as_nobody(directory: str, session_id: str) -> None:
    """Try to open a session as a user who may not change the mode of its lock file."""
    backend = StateBackend(directory)
    with suppress(StateBackendError):
        backend.open(session_id).close()  # so that all imports are done
    os.setuid(65534)
    say("ready")
    hear()
    try:
        backend.open(session_id).close()
    except StateBackendError as error:
        say(type(error).__name__)
    else:
        say("opened")


# ── Killed writers ───────────────────────────────────────────────────────────────────────────


def append_until_killed(directory: str, session_id: str) -> None:
    """Append as fast as can be, saying each number of events that is durable."""
    with StateBackend(directory).open(session_id) as session:
        _append_forever(session, say)


def die_between_call_and_result(directory: str, session_id: str) -> None:
    """Append a finished call, then one without a result, and die."""
    session = StateBackend(directory).open(session_id)
    for call in (b"one", b"two"):
        session.append(EventKind.TOOL_CALL, producer=samples.TOOL, payload=call, schema_version="1")
        if call == b"two":
            os.kill(os.getpid(), signal.SIGKILL)
        session.append(
            EventKind.TOOL_RESULT, producer=samples.TOOL, payload=call, schema_version="1"
        )


def kill_appending(directory: str, rounds: str, seed: str) -> None:
    """Fork a writer, kill it at a random moment, say what it had acknowledged; again and again.

    This process has no session open itself, so that the forked ones may open theirs.
    """
    backend, chance = StateBackend(directory), random.Random(int(seed))
    samples.new_session(backend, 1)  # so that the forked ones find all imports done
    for _ in range(int(rounds)):
        session_id = samples.new_session(backend)
        say({"session_id": session_id, "acknowledged": _killed_writer(backend, session_id, chance)})


def _killed_writer(backend: StateBackend, session_id: str, chance: random.Random) -> int:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with backend.open(session_id) as session:
            _append_forever(session, lambda count: os.write(writing, b"%d\n" % count))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = [pipe.readline() for _ in range(chance.randrange(12))]
        until = time.perf_counter() + chance.random() * 0.004
        while time.perf_counter() < until:
            pass
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said += pipe.read().splitlines()
    return int(said[-1]) if said else 0


def _append_forever(session: Session, acknowledge: Callable[[int], object]) -> NoReturn:
    """Append event 1, 2, 3 …, of several kinds, the id being the number."""
    count = 0
    while True:
        samples.append(session, str(count + 1), b"x" * 600)
        acknowledge(count + 1)
        session.append_plan(
            producer=samples.MODEL, payload=b"{}", items=[samples.item()], event_id=str(count + 2)
        )
        acknowledge(count + 2)
        with session.batch() as batch:
            for number in range(count + 3, count + 6):
                batch.append_message(
                    producer=samples.MODEL,
                    payload=b"x" * 3000,
                    cost=samples.cost(),
                    event_id=str(number),
                )
        acknowledge(count + 5)
        count += 5


def kill_creating(directory: str) -> None:
    """Create a session in a forked child that is killed after its n-th call of the system.

    For every n, until a child comes through; say for each step the folder it was done in.
    """
    samples.new_session(StateBackend(directory), 1)
    step, killed = 0, True
    while killed:
        step += 1
        folder = f"{directory}/{step}"
        child = os.fork()
        if not child:
            _create_until(folder, step)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) < 0
        say(folder)


def _create_until(folder: str, step: int) -> NoReturn:
    left = step

    def profile(_frame: FrameType, event: str, called: Any) -> None:
        nonlocal left
        if event == "c_return" and called.__name__ in _CHANGING:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    backend = StateBackend(folder)
    sys.setprofile(profile)
    session = backend.create("default", session_id=SESSION_ID)
    samples.append(session)
    session.close()
    sys.setprofile(None)
    os._exit(0)


# What changes something outside this process; in between, there is nothing new to be killed at.
_CHANGING = {
    *("chmod", "fchmod", "link", "lockf", "mkdir", "open", "rename", "replace", "unlink"),
    *("flush", "fsync", "ftruncate", "pwrite", "write"),
    *("__exit__", "close", "connect", "execute"),
}
SESSION_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


# ── Readers and writers ──────────────────────────────────────────────────────────────────────


def hold_snapshot(path: str) -> None:
    """Keep a read transaction open on a session file; say its count of events before and after."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as driver:
        driver.execute("BEGIN")
        say(driver.execute("SELECT count(*) FROM events").fetchone()[0])
        hear()
        say(driver.execute("SELECT count(*) FROM events").fetchone()[0])


def append_on_demand(directory: str, session_id: str) -> None:
    """At each line open the session, append so many events, close it, and say how many there are.

    A line with a minus sign leaves the session open.
    """
    backend, session = StateBackend(directory), None
    while line := hear():
        session = session or backend.open(session_id)
        for _ in range(abs(int(line))):
            samples.append(session)
        count = session.counts().events
        if int(line) >= 0:
            session.close()
            session = None
        say(count)


def churn_appending(directory: str, session_id: str, rounds: str) -> None:
    """Open, append three events, close, again and again; say how many there are after each."""
    backend = StateBackend(directory)
    for number in range(int(rounds)):
        with backend.open(session_id) as session:
            for _ in range(3):
                samples.append(session)
            say(3 * (number + 1))


def read_on_demand(directory: str, _number: str) -> None:
    """At each line, which is an id, read that session and say its count of events."""
    backend = StateBackend(directory)
    while session_id := hear():
        try:
            with backend.read(session_id) as view:
                say(len(list(view.events())))
        except StateBackendError as error:
            say(repr(error))


def list_on_demand(directory: str) -> None:
    """At each line list the folder and say the ids."""
    backend = StateBackend(directory)
    while hear():
        say([one.session_id for one in backend.list(limit=None)])


def follow(directory: str, session_id: str) -> None:
    """Follow a session, saying each sequence, until it ends."""
    with StateBackend(directory).read(session_id) as view:
        for event in view.follow(poll_interval_s=0.01):
            say(event.sequence)


def open_and_close_bare(path: str) -> None:
    """Open a session file for writing as a foreign program would, look at it, close it."""
    with closing(sqlite3.connect(path)) as driver:
        say(driver.execute("SELECT count(*) FROM events").fetchone()[0])


def try_write_lock(path: str) -> None:
    """Say whether the write lock of a session file can be had."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as driver:
        try:
            driver.execute("BEGIN IMMEDIATE")
            say("taken")
        except sqlite3.OperationalError as error:
            say(error.sqlite_errorname)


def sleep_forever() -> NoReturn:
    """Do nothing until killed."""
    while True:
        time.sleep(3600)


# ── Starting ─────────────────────────────────────────────────────────────────────────────────


def serve(descriptor: str) -> None:
    """Fork a child for every command that comes, reap one for every pid; see ``processes``."""
    _load()
    with socket.socket(fileno=int(descriptor)) as requests:
        while True:
            text, descriptors, _flags, _address = socket.recv_fds(requests, 1 << 16, 2)
            if not text:
                return
            request = json.loads(text)
            if isinstance(request, int):
                status = os.waitpid(request, 0)[1]
                requests.send(b"%d" % os.waitstatus_to_exitcode(status))
                continue
            if not (child := os.fork()):
                requests.close()
                _run_in_child(request, *descriptors)
            for one in descriptors:
                os.close(one)
            requests.send(b"%d" % child)


def _load() -> None:
    """Import whatever a session needs."""
    with TemporaryDirectory() as folder:
        samples.new_session(StateBackend(folder), 1)


def _run_in_child(command: list[str], stdin: int, stdout: int) -> NoReturn:
    for number, descriptor in enumerate((stdin, stdout)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    code = 1
    try:
        _run(command)
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(command: list[str]) -> None:
    module, _colon, name = command[0].partition(":")
    function: Callable[..., None] = getattr(import_module(module), name)
    function(*command[1:])


def main() -> None:
    """Run the function that the command line names."""
    _run(sys.argv[1:])


if __name__ == "__main__":
    main()
