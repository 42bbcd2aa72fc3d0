"""The sole-writer claim under attack: open, fork, exec, kill and close in random order."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from statebackend import StateBackend
from tests.crash import attack
from tests.crash.processes import Child
from tests.crash.samples import append, assert_whole, litter, new_session, session_file

pytestmark = [
    pytest.mark.crash,
    pytest.mark.conformance("SB-05"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc tells who is alive"),
]

PROCESSES = 3
SESSIONS = 4
ANSWERS = {
    "open": {"won", "locked"},
    "append": {"appended"},
    "close": {"closed"},
    "fork": {"forked"},
}
Volley = list[tuple[Child, str, str]]  # who shall do what with which session


@dataclass
class Attack:
    """The processes, and who holds what as far as their answers tell."""

    backend: StateBackend
    sessions: list[str]
    chance: random.Random
    children: list[Child] = field(default_factory=list)
    holders: dict[str, Child] = field(default_factory=dict)
    tally: Counter[str] = field(default_factory=Counter)
    outlived: list[Child] = field(default_factory=list)
    forked: list[int] = field(default_factory=list)

    def start(self) -> Child:
        """Start one more process."""
        child = Child(attack.attack, self.backend.directory, len(self.children))
        self.children.append(child)
        return child

    def round(self) -> None:
        """Let several threads of several processes do something at once, and look at the answers.

        Afterwards one process may be killed, or one may be killed while it is at it.
        """
        victim = self.chance.choice(self.children) if self.chance.random() < 0.15 else None
        volley = self._volley()
        for number, (child, action, session_id) in enumerate(volley):
            thread = self.chance.randrange(attack.THREADS)
            child.say(json.dumps([thread, number, action, session_id]))
        if victim is not None:
            self._pause()
            victim.kill()
            self.tally["killed"] += 1
        answers = self._answers(volley, victim)
        self._judge(volley, answers, victim)
        if victim is not None:
            self._bury(victim)
            victim.close()
        elif self.chance.random() < 0.05:
            self._exec(self.chance.choice(self.children))

    def _volley(self) -> Volley:
        volley: Volley = []
        closing: set[str] = set()
        for _ in range(self.chance.randrange(1, 7)):
            session_id = self.chance.choice(self.sessions)
            holder = self.holders.get(session_id)
            if holder is None or self.chance.random() < 0.4:
                volley.append((self.chance.choice(self.children), "open", session_id))
            elif session_id not in closing:
                action = self.chance.choice(["append", "close", "close", "fork"])
                closing.add(session_id)  # one thing at a time with a handle that may be closed
                volley.append((holder, action, session_id))
        return volley

    def _pause(self) -> None:
        os.sched_yield()
        for _ in range(self.chance.randrange(60_000)):
            pass

    def _answers(self, volley: Volley, victim: Child | None) -> dict[int, Any]:
        answers: dict[int, Any] = {}
        for child in self.children:
            if child is victim:
                answers.update(dict(child.rest()))
            else:
                count = sum(one is child for one, _action, _session in volley)
                answers.update(dict(child.hear() for _ in range(count)))
        return answers

    def _judge(self, volley: Volley, answers: dict[int, Any], victim: Child | None) -> None:
        before = dict(self.holders)
        won: dict[str, list[Child]] = {}
        for number, (child, action, session_id) in enumerate(volley):
            answer = answers.get(number)
            if answer is None:
                assert child is victim
                continue
            if isinstance(answer, int):
                self.forked.append(answer)
                answer = "forked"
            assert answer in ANSWERS[action], answer
            self.tally[answer] += 1
            if answer == "closed":
                del self.holders[session_id]
            elif answer == "won":
                won.setdefault(session_id, []).append(child)
        uncertain = {session_id for child, _action, session_id in volley if child is victim}
        for session_id in {session_id for _child, action, session_id in volley if action == "open"}:
            winners = won.get(session_id, [])
            holder = before.get(session_id)
            if victim is None or (holder is not victim and session_id not in uncertain):
                # Who closes may be before or behind those that open.
                free = holder is None
                least, most = int(free), int(free or session_id not in self.holders)
                assert least <= len(winners) <= most, f"{len(winners)} won, {holder} held"
            for winner in winners:
                self.holders[session_id] = winner

    def _bury(self, child: Child) -> None:
        self.children.remove(child)
        self.holders = {one: held for one, held in self.holders.items() if held is not child}
        self.start()

    def _exec(self, child: Child) -> None:
        child.say(json.dumps([0, 0, "exec", ""]))
        assert child.hear() == [0, "gone"]
        self.tally["execed"] += 1
        self.outlived.append(child)
        self._bury(child)

    def end(self) -> None:
        """End all but the forked children and those that are another program now."""
        while self.children:
            self.children.pop().close()

    def end_rest(self) -> None:
        """End those as well."""
        self.end()
        for child in self.outlived:
            child.close()
        for pid in self.forked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def attacked(backend: StateBackend) -> Iterator[Attack]:
    """Return a few processes and closed sessions."""
    backend.directory.with_name("markers").mkdir(parents=True)
    sessions = [new_session(backend) for _ in range(SESSIONS)]
    attacked = Attack(backend, sessions, random.Random(5))
    try:
        for _ in range(PROCESSES):
            attacked.start()
        yield attacked
    finally:
        attacked.end_rest()


@pytest.mark.parametrize(
    "rounds", [pytest.param(60, id="60"), pytest.param(1000, id="1000", marks=pytest.mark.slow)]
)
def test_never_two_writers_and_never_a_dead_one(attacked: Attack, rounds: int) -> None:
    """Each winner is alone, by the answers, its marker and its events; the dead bind nobody.

    Forked children and a process that became another program live on meanwhile.
    """
    for _ in range(rounds):
        attacked.round()
    attacked.end()
    assert all(attacked.tally[what] for what in ("won", "locked", "closed", "forked", "execed"))
    assert attacked.tally["killed"] > rounds / 20
    backend = attacked.backend
    for session_id in attacked.sessions:
        with backend.open(session_id) as session:
            append(session, payload=b"after all")
            writers = [event.payload for event in session.events()]
        spells = [writer for writer, _ in groupby(writers)]
        assert len(spells) == len(set(spells)), "events of two writers in turn"
        assert_whole(session_file(backend, session_id))
    assert litter(backend) == set()
    assert [*backend.directory.glob("*-*")] == []
