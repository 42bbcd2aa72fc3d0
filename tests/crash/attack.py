"""What the processes of ``tests/test_claim_attack.py`` do: a few threads each, told what to try.

Whoever wins a session proves it twice without the claim: by a marker file that only a dead process
may have left, and by events that no other writer's may stand between.
"""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NoReturn

from statebackend import Session, SessionForked, SessionLocked, StateBackend, StateBackendError
from tests.crash import samples
from tests.crash.children import hear, say, sleep_forever

THREADS = 3
_PATIENCE_S = 8.0
_LIFE_S = 150


class Attacker:
    """One process's sessions, by id; the lock is only for the answers."""

    def __init__(self, directory: str) -> None:
        self._backend = StateBackend(directory)
        self._markers = Path(directory).with_name("markers")
        self._held: dict[str, tuple[Session, str]] = {}
        self._answers = Lock()
        self._opened = 0

    def do(self, action: str, session_id: str, number: int) -> None:
        """Do one thing and say how it went."""
        try:
            answer: object = getattr(self, action)(session_id)
        except SessionLocked:
            answer = "locked"
        except (StateBackendError, OSError, AssertionError) as error:
            answer = repr(error)
        with self._answers:
            say([number, answer])

    def open(self, session_id: str) -> str:
        """Try to become the writer of a session."""
        session = self._backend.open(session_id)
        self._opened += 1
        token = f"{os.getpid()}-{self._opened}-{session_id[-4:]}"
        self._held[session_id] = (session, token)
        _mark(self._markers, session_id)
        samples.append(session, payload=token.encode())
        return "won"

    def append(self, session_id: str) -> str:
        """Append to a session that this process holds."""
        session, token = self._held[session_id]
        samples.append(session, payload=token.encode())
        return "appended"

    def close(self, session_id: str) -> str:
        """Close a session that this process holds."""
        session, token = self._held.pop(session_id)
        samples.append(session, payload=token.encode())
        (self._markers / session_id).unlink()
        session.close()
        return "closed"

    def fork(self, session_id: str) -> int:
        """Fork a child that tries the session that was inherited, and lives on; return its pid."""
        session, _token = self._held[session_id]
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _outlive(session, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            answer = pipe.readline()
        assert answer == b"SessionForked\n", answer
        return child


def _outlive(session: Session, writing: int) -> NoReturn:
    signal.alarm(_LIFE_S)  # where nobody learns of this process, it ends by itself
    for stream in (0, 1):  # else the parent's pipes would outlive it
        os.close(stream)
    try:
        samples.append(session)
    except SessionForked:
        session.close()
        os.write(writing, b"SessionForked\n")
    except BaseException as error:  # noqa: BLE001 - the answer
        os.write(writing, repr(error).encode() + b"\n")
    os.close(writing)
    sleep_forever()


def _mark(folder: Path, session_id: str) -> None:
    """Make the session's marker; one that is there may only be a dead process's."""
    marker, mine = folder / session_id, folder / f"{session_id}.{os.getpid()}"
    mine.write_text(str(os.getpid()))
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            os.link(mine, marker)
            break
        except FileExistsError:
            with suppress(FileNotFoundError):
                pid = int(marker.read_text())
                assert time.monotonic() < until, f"two writers: process {pid} is alive"
                if _is_over(pid):
                    marker.unlink()
    mine.unlink()


def _is_over(pid: int) -> bool:
    """Tell whether a process that wrote sessions is gone, or another program by now."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        program = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return pid != os.getpid() and (state in "ZX" or b"tests.crash.children" not in program)


def attack(directory: str, _number: str) -> None:
    """At each line, do what it says in the thread that it names."""
    attacker = Attacker(directory)
    threads = [ThreadPoolExecutor(1) for _ in range(THREADS)]
    while line := hear():
        thread, number, action, session_id = json.loads(line)
        if action == "exec":  # the locks go, although the process stays
            program = ["sh", "-c", f"echo '[{number}, \"gone\"]'; exec sleep {_LIFE_S}"]
            os.execv("/bin/sh", program)  # noqa: S606 - no shell is wanted but this one
        threads[thread].submit(attacker.do, action, session_id, number)
