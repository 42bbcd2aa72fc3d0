"""A short run of the soak under load; `make soak-load` is the long one."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.loaded import payload_of, side_file
from tests.crash.samples import append, session_file
from tests.soak_load import Outcome, Soak, report


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.conformance("SB-06", "SB-08")
def test_nothing_acknowledged_is_lost_under_load(tmp_path: Path) -> None:
    """Killed writers resume, readers see no gap and no error, and every event is there once."""
    outcome = Soak(tmp_path, seed=1).run(15)
    assert outcome.findings == [], "\n".join(report(outcome))
    assert outcome.kills > 5
    assert len(outcome.append_us) > 100
    assert outcome.seen > 100
    assert outcome.list_us


def _judged(tmp_path: Path, tamper: Callable[[Path, Path], None]) -> Outcome:
    """Let one thread write three events, change what is noted or stored, and return the verdict."""
    soak = Soak(tmp_path, seed=1)
    session_id = soak.sessions[0]
    side = side_file(tmp_path, 0, 0)
    with soak.backend.open(session_id) as session:
        for number in range(3):
            payload = payload_of(f"0-0-{number}")
            append(session, f"0-0-{number}", payload)
            with side.open("a") as file:
                file.write(f"0-0-{number} {hashlib.sha256(payload).hexdigest()} 1\n")
    tamper(side, session_file(soak.backend, session_id))
    soak.judge()
    return soak.outcome


def _note(side: Path, *lines: str) -> None:
    side.write_text("".join(f"{line}\n" for line in lines))


def _lose(_side: Path, path: Path) -> None:
    with closing(sqlite3.connect(path)) as driver, driver:
        driver.execute("DELETE FROM cost_ledger WHERE event_sequence = 2")
        driver.execute("DELETE FROM events WHERE sequence = 2")


def _alter(_side: Path, path: Path) -> None:
    with closing(sqlite3.connect(path)) as driver, driver:
        driver.execute("UPDATE events SET payload = x'00' WHERE sequence = 2")


def _swap(side: Path, _path: Path) -> None:
    one, two, three = side.read_text().splitlines()
    _note(side, one, three, two)


def _forget(side: Path, _path: Path) -> None:
    _note(side, side.read_text().splitlines()[0])


@pytest.mark.parametrize(
    "tamper, kind",
    [
        (lambda *_: None, None),
        (_lose, "lost"),
        (_alter, "altered"),
        (_swap, "out_of_order"),
        (_forget, "errors"),
    ],
)
def test_the_judge_finds_what_is_wrong(
    tmp_path: Path, tamper: Callable[[Path, Path], None], kind: str | None
) -> None:
    """Each kind of harm is told as what it is, and a sound run as sound."""
    outcome = _judged(tmp_path, tamper)
    assert bool(outcome.findings) == bool(kind)
    assert not kind or getattr(outcome, kind)
