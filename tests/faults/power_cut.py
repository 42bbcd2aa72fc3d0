"""The power is cut at every step of a recorded program; what is then found must be as promised."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from statebackend import Session, SessionNotFound, SessionStatus, StateBackend
from tests.crash.samples import append, assert_whole, litter, session_file
from tests.faults.disk import Disk, Fate, Image, write_out
from tests.faults.programs import SESSION_ID, backend_of, digest
from tests.faults.recording import Recording

_IN_PART = "rows are lost, or there in part"


@dataclass(frozen=True, slots=True)
class Promise:
    """The digests that a session may have: of what was acknowledged, and of one step more.

    None stands for no session.
    """

    digests: tuple[str | None, ...]

    @classmethod
    def after(cls, acknowledged: int, states: Sequence[str | None]) -> Promise:
        """Return what is promised after so many acknowledgements, which led through *states*."""
        return cls(tuple(states[acknowledged : acknowledged + 2]))


def cut_everywhere(
    recording: Recording,
    fates: Sequence[Fate],
    *,
    session_id: str = SESSION_ID,
    every: int = 1,
    created: bool = True,
) -> Counter[str]:
    """Cut the power after each *every*-th step, with each fate; assert that all promises are kept.

    Returns how often what was found: ``no session``, ``acknowledged`` (exactly what was), ``one
    more`` (what was on its way as well), and ``same`` for images that were there before. With
    *created* there was no session at the beginning.
    """
    digests = [line.rpartition(" ")[2] for line in _acknowledged(recording)]
    states = [None if created else digests[0], *digests]

    def check(place: Path, acknowledged: int) -> str:
        return _check(place, Promise.after(acknowledged, states), session_id)

    return _cut(recording, fates, every, check)


def cut_a_recovery(recording: Recording, fates: Sequence[Fate], every: int = 1) -> Counter[str]:
    """Cut the power while the one session of *recording* is recovered; assert that it comes out.

    Always with the rows that the recording's program found. Returns how often the session was
    ``recovered before`` the cut, or had to be ``recovered now``.
    """
    (line,) = _acknowledged(recording)
    rows = line.rpartition(" ")[2]
    damaged = session_file(backend_of(recording.base), SESSION_ID).read_bytes()

    def check(place: Path, acknowledged: int) -> str:
        backend = backend_of(place)
        with backend.open(SESSION_ID) as session:
            assert digest(session) == rows, "rows are lost, or others"
            recovered = session.recovery is not None
            assert not (recovered and acknowledged), "recovered a second time"
            append(session)
        (report,) = backend.recoveries()
        assert report.original is not None
        assert report.original.read_bytes() == damaged
        assert litter(backend) == {report.original.name, f"{report.original.name}.json"}
        return "recovered now" if recovered else "recovered before"

    return _cut(recording, fates, every, check)


def _cut(
    recording: Recording, fates: Sequence[Fate], every: int, check: Callable[[Path, int], str]
) -> Counter[str]:
    place = recording.root.with_name(recording.root.name + ".found")
    steps = recording.steps()
    disk, found, seen = Disk(recording), Counter[str](), set[bytes]()
    for number in range(len(steps) + 1):
        if number:
            disk.take(steps[number - 1])
        if number % every and number != len(steps):
            continue
        for fate in fates:
            image = fate(disk)
            key = _key(image, len(disk.acknowledged))
            if key in seen:
                found["same"] += 1
                continue
            seen.add(key)
            write_out(image, place)
            try:
                found[check(place, len(disk.acknowledged))] += 1
            except Exception as error:
                last = f"{steps[number - 1]!r:.200}" if number else "nothing"
                where = f"after step {number} ({last}), {fate.__name__}, {disk.acknowledged[-1:]}"
                raise AssertionError(f"{where}: {error!r}") from error
            finally:
                shutil.rmtree(place)
    return found


def _check(place: Path, promise: Promise, session_id: str) -> str:
    backend, outcome = backend_of(place), "no session"
    try:
        opened = _read_then_open(backend, promise, session_id)
    except SessionNotFound:
        assert None in promise.digests, "the session is gone"
        opened = backend.create("default", session_id=session_id)
    else:
        assert digest(opened) in promise.digests, _IN_PART
        outcome = "acknowledged" if digest(opened) == promise.digests[0] else "one more"
    with opened as session:
        assert session.recovery is None, "taken for damage"
        if session.info.status is SessionStatus.RUNNING:
            append(session)
    assert_whole(session_file(backend, session_id))
    assert litter(backend) == set()
    return outcome


def _read_then_open(backend: StateBackend, promise: Promise, session_id: str) -> Session:
    with backend.read(session_id) as view:
        assert digest(view) in promise.digests, _IN_PART
    return backend.open(session_id)


def _acknowledged(recording: Recording) -> list[str]:
    disk = Disk(recording)
    for step in recording.steps():
        disk.take(step)
    return disk.acknowledged


def _key(image: Image, acknowledged: int) -> bytes:
    summed = hashlib.blake2b(b"%d" % acknowledged)
    for name, content in image.items():
        summed.update(f"\0{name}\0{content and content.number}\0".encode())
        summed.update(content.data if content else b"")
    return summed.digest()
