"""What the processes of ``tests/soak_load.py`` do: writers, which get killed, and readers.

An event's payload follows from its id, so whoever sees one can tell whether it is right.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Signal
from threading import Thread

from statebackend import DuplicateEvent, Event, Session, SessionInfo, SessionView, StateBackend
from statebackend.replay import replay
from tests.crash.children import hear, say
from tests.crash.samples import MODEL, cost, item

THREADS = 8
_LARGE = 60_000
_TAIL_S = 0.8
_STRETCH = 1_500


def payload_of(event_id: str) -> bytes:
    """Return the payload that the event of this id has: any bytes, mostly short."""
    chance = random.Random(event_id)
    return chance.randbytes(_LARGE if chance.random() < 0.005 else chance.randrange(1_500))


def side_file(folder: Path, writer: int, thread: int) -> Path:
    """Return the file in which a thread of a writer notes what was acknowledged to it."""
    return folder / f"acknowledged-{writer}-{thread}"


def acknowledged(path: Path) -> list[list[str]]:
    """Return what a side file holds: id, hash of the payload, microseconds or "late"."""
    if not path.exists():
        return []
    return [line.split() for line in path.read_text().split("\n")[:-1]]


# ── Writers ──────────────────────────────────────────────────────────────────────────────────


def write(directory: str, session_id: str, writer: str) -> None:
    """Resume a session and append from many threads until told to stop; each goes on by its file.

    Say what goes wrong, at once, and at the end that it is the end.
    """
    stop = Signal()
    try:
        with StateBackend(directory).open(session_id) as session:
            sides = [side_file(Path(directory).parent, int(writer), n) for n in range(THREADS)]
            threads = [Thread(target=_write, args=(session, side, stop)) for side in sides]
            for thread in threads:
                thread.start()
            hear()
            stop.set()
            for thread in threads:
                thread.join()
    except Exception as error:  # noqa: BLE001 - told to the judge
        say(f"writer {writer}: {error!r}")
    say("ended")


def _write(session: Session, side: Path, stop: Signal) -> None:
    try:
        _write_on(session, side, stop)
    except Exception as error:  # noqa: BLE001 - told to the judge
        say(f"{side.name}: {error!r}")


def _write_on(session: Session, side: Path, stop: Signal) -> None:
    number = len(acknowledged(side))
    name = side.name.removeprefix("acknowledged-")
    descriptor = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    while not stop.is_set():
        event_id = f"{name}-{number}"
        payload = payload_of(event_id)
        before = time.perf_counter()
        try:
            _append(session, event_id, payload, number)
            spent_us = f"{(time.perf_counter() - before) * 1e6:.0f}"
        except DuplicateEvent as error:  # written before the kill, acknowledged only now
            if not error.same_content:
                raise
            spent_us = "late"
        digest = hashlib.sha256(payload).hexdigest()
        os.write(descriptor, f"{event_id} {digest} {spent_us}\n".encode())
        os.fsync(descriptor)
        number += 1
    os.close(descriptor)


def _append(session: Session, event_id: str, payload: bytes, number: int) -> None:
    if number % 10:
        session.append_message(producer=MODEL, payload=payload, cost=cost(), event_id=event_id)
    else:
        session.append_plan(producer=MODEL, payload=payload, items=[item()], event_id=event_id)


# ── Readers ──────────────────────────────────────────────────────────────────────────────────


def read(directory: str, sessions: str, number: str) -> None:
    """List, tail, read and replay at random until told to stop; say what was seen, and how fast."""
    reader = _Reader(StateBackend(directory), sessions.split(","), random.Random(number))
    thread = Thread(target=reader.work)
    thread.start()
    hear()
    reader.stop.set()
    thread.join()
    say({"errors": reader.errors, "listed": reader.listed, "seen": reader.seen})


class _Reader:
    def __init__(self, backend: StateBackend, sessions: list[str], chance: random.Random) -> None:
        self.stop = Signal()
        self.errors: list[str] = []
        self.listed: list[float] = []
        self.seen = 0
        self._backend = backend
        self._sessions = sessions
        self._chance = chance

    def work(self) -> None:
        doings = [self._list, self._list, self._tail, self._read_stretch, self._replay]
        while not self.stop.is_set():
            doing = self._chance.choice(doings)
            try:
                doing()
            except Exception as error:  # noqa: BLE001 - told to the judge
                self.errors.append(f"{doing.__name__}: {error!r}")

    def _list(self) -> None:
        before = time.perf_counter()
        found = self._backend.list(limit=20)
        self.listed.append(time.perf_counter() - before)
        assert [one.session_id for one in found] == self._sessions, found
        assert all(isinstance(one, SessionInfo) and one.status == "running" for one in found), found

    @contextmanager
    def _view(self) -> Iterator[SessionView]:
        check = self._chance.random() < 0.1
        with self._backend.read(self._chance.choice(self._sessions), check=check) as view:
            yield view

    def _tail(self) -> None:
        until = time.monotonic() + _TAIL_S
        with self._view() as view:
            after = max(0, view.counts().events - 50)
            for event in view.follow(after, poll_interval_s=0.02):
                after = self._judge(event, after)
                if time.monotonic() > until:
                    break

    def _read_stretch(self) -> None:
        with self._view() as view:
            after = self._chance.randrange(1 + view.counts().events)
            for event in view.events(after, limit=_STRETCH):
                after = self._judge(event, after)

    def _replay(self) -> None:
        with self._view() as view:
            after = self._chance.randrange(1 + view.counts().events)
            for rendered in replay(view, after_sequence=after, limit=_STRETCH):
                assert rendered.error is None, rendered
                after = self._judge(rendered.event, after)

    def _judge(self, event: Event, after: int) -> int:
        assert event.sequence == after + 1, f"sequence {event.sequence} after {after}"
        assert event.payload == payload_of(event.id), f"event {event.id} has another payload"
        self.seen += 1
        return event.sequence
