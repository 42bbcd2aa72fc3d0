"""Damage sessions in seeded cases, open them, and judge the result."""

from __future__ import annotations

import logging
import random
import re
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statebackend import (
    BadSession,
    SchemaTooNew,
    Session,
    SessionExists,
    SessionStatus,
    SessionUnreadable,
    StateBackend,
    StateBackendError,
)
from tests.damage import bases, kinds, oddities, plain
from tests.damage.bases import Base
from tests.damage.checks import Judge, renamed
from tests.damage.layout import TABLES, Files
from tests.damage.plain import Rows
from tests.session_files import call

_ODD = "sound: "
_OWN_WAL_IS_GONE = {"wal foreign", "wal older"}


@dataclass(slots=True)
class Case:
    """One case and its result.

    ``ending`` is recovered, sound (opened without a recovery), refused or unreadable; the counts
    are rows of the five tables. ``left_out`` names missing rows whose bytes are undamaged.
    """

    number: int
    kind: str
    base: int
    ending: str = ""
    there: int = 0
    saved: int = 0
    altered: int = 0
    seconds: float = 0.0
    left_out: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


class Soak:
    """A pool of sessions, and cases of damage to them; the files of findings are kept."""

    def __init__(
        self, folder: Path, keep: Path, seed: int, plans: tuple[bases.Plan, ...] = bases.PLANS
    ) -> None:
        self._folder, self._keep, self._seed = folder, keep, seed
        self._pool = bases.pool(folder / "pool", plans, seed)
        self._names = [*kinds.KINDS, *(_ODD + name for name in oddities.ODDITIES)]

    def cases(self, count: int) -> Iterator[Case]:
        """Run *count* cases, the kinds in turns."""
        for number in range(count):
            yield self.case(number)

    def case(self, number: int) -> Case:
        """Run one case; its number and the seed give the same again."""
        kind, base, foreign, files = self.draw(number)
        case = Case(number, kind, self._pool.index(base))
        case.there = sum(len(rows) for rows in base.rows.values())
        folder = self._folder / f"case-{number}"
        (folder / "sessions").mkdir(mode=0o700, parents=True)
        path = folder / "sessions" / f"{base.session_id}.sqlite"
        bases.put(files, path)
        (folder / "plain").mkdir()
        copy = folder / "plain" / path.name
        bases.put(files, copy)
        if kind.startswith(_ODD):
            _run_odd(case, path, plain.stored(copy), files)
        else:
            _run(case, path, copy, Judge(base, foreign, files))
        if case.findings:
            self._keep_files(case, folder, files)
        shutil.rmtree(folder)
        return case

    def draw(self, number: int) -> tuple[str, Base, Base, Files]:
        """Return the kind of a case, its session, another one, and the damaged files."""
        order = random.Random(f"{self._seed}:{number // len(self._names)}")
        kind = order.sample(self._names, len(self._names))[number % len(self._names)]
        dice = random.Random(f"{self._seed}:{number}:{kind}")
        for _attempt in range(200):
            base, foreign = dice.sample(self._pool, 2)
            try:
                if kind.startswith(_ODD):
                    files = oddities.ODDITIES[kind.removeprefix(_ODD)](base, dice)
                else:
                    files = kinds.damage(kind, base, foreign, dice)
            except kinds.Unfit:
                continue
            return kind, base, foreign, files
        raise AssertionError(f"no session of the pool suits {kind!r}")

    def _keep_files(self, case: Case, folder: Path, files: Files) -> None:
        name = re.sub(r"\W+", "-", case.kind)
        target = self._keep / f"seed-{self._seed}-case-{case.number}-{name}"
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(folder, target, ignore=shutil.ignore_patterns("plain"))
        (target / "damaged").mkdir()
        base = self._pool[case.base]
        bases.put(files, target / "damaged" / f"{base.session_id}.sqlite")
        (target / "healthy").mkdir()
        bases.put(base.files, target / "healthy" / f"{base.session_id}.sqlite")
        (target / "findings.txt").write_text("\n".join(case.findings) + "\n")


# -- a damaged session -----------------------------------------------------------------------------


def _run(case: Case, path: Path, copy: Path, judge: Judge) -> None:
    wanted = {
        table: {key: row.values for key, row in rows.items()}
        for table, rows in judge.base.rows.items()
    }
    readable = plain.readable(copy, wanted)
    for table, rows in judge.foreign.rows.items():
        readable[table] -= rows.keys()  # it may come from the other session's WAL
    backend = StateBackend(path.parent)
    with _warnings() as messages:
        started = time.perf_counter()
        try:
            session = backend.open(path.stem)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is judged
            case.seconds = time.perf_counter() - started
            return _judge_refusal(case, path, judge, error, readable)
        case.seconds = time.perf_counter() - started
    recovery = session.recovery
    case.ending = "sound" if recovery is None else "recovered"
    try:
        _judge_opened(case, session, judge, readable)
    except (StateBackendError, OSError, AssertionError, ValueError) as error:
        case.findings.append(f"after the open: {error!r}")
    finally:
        session.close()
    if recovery is not None and not any(path.name in line for line in messages):
        case.findings.append(f"the recovery was not logged: {messages}")
    return None


def _judge_refusal(
    case: Case, path: Path, judge: Judge, error: Exception, readable: dict[str, Any]
) -> None:
    case.ending = "refused"
    case.findings += judge.evidence(path)
    whole = sum(map(len, judge.untouched.values())) + sum(map(len, readable.values()))
    if isinstance(error, SchemaTooNew):
        at = int.from_bytes(judge.damaged[""][60:64], "big", signed=True)
        if at <= 1 or not judge.damaged[""].startswith(b"SQLite format 3\0"):
            case.findings.append(f"nothing says that it is newer: {error}")
    elif isinstance(error, SessionUnreadable):
        case.ending = "unreadable"
        if whole:
            case.findings.append(f"{whole} rows could be saved: {error}")
        case.findings += _check_unreadable(path)
    else:
        shown = "".join(traceback.format_exception(error)[-3:])
        case.findings.append(f"open raised {error!r}\n{shown}")


def _check_unreadable(path: Path) -> Iterator[str]:
    """Report an unreadable session that can be opened or created, or is not listed as bad."""
    backend = StateBackend(path.parent)
    shown = [info for info in backend.scan() if info.session_id == path.stem]
    if not (len(shown) == 1 and isinstance(shown[0], BadSession)):
        yield f"it is listed as {shown}"
    if not _raises(SessionUnreadable, lambda: backend.open(path.stem)):
        yield "the unreadable session was opened after all"
    if not _raises(SessionExists, lambda: backend.create("x", session_id=path.stem)):
        yield "the unreadable session was created again"


def _raises(error: type[StateBackendError], action: Callable[[], Session]) -> bool:
    try:
        action().close()
    except error:
        return True
    return False


def _judge_opened(case: Case, session: Session, judge: Judge, readable: dict[str, Any]) -> None:
    path, recovery = session.path, session.recovery
    found, counters = plain.stored(path), plain.counters(path)
    case.findings += judge.rows(found, recovery)
    case.saved, case.altered = judge.saved, judge.altered
    case.findings += judge.less_than_plain(found, readable)
    case.left_out = judge.lost(found)
    if recovery is not None and recovery.complete:
        case.findings += judge.called_complete(found, wal=case.kind in _OWN_WAL_IS_GONE)
    if recovery is None and case.left_out:
        lost = f"{len(case.left_out)} rows, first {case.left_out[0]}"
        case.findings.append(f"lost without a recovery: {lost}")
        return  # so their numbers are reused
    case.findings += judge.counted(found, counters, recovery)
    if recovery is not None:
        case.findings += judge.report(found, recovery)
        case.findings += judge.evidence(path)
    elif renamed(path):
        case.findings.append("kept as damaged, but there is no report of a recovery")
    _go_on(case, session, judge, found, counters)


def _go_on(
    case: Case, session: Session, judge: Judge, found: Rows, counters: dict[str, int]
) -> None:
    """Append one event, close, and open again: that must need no recovery."""
    added = 0
    if session.info.status in {SessionStatus.COMPLETED, SessionStatus.CANCELLED}:
        session.set_status(SessionStatus.RUNNING)
        found = {**found, "session_meta": plain.stored(session.path)["session_meta"]}
    if session.info.status == SessionStatus.RUNNING:
        sequence, added = call(session), 1
        floor = judge.floor("events", found)
        if sequence <= max(floor, counters["events"]):
            case.findings.append(f"number {sequence} was reused, {floor} was given before")
    session.close()
    again = StateBackend(session.path.parent).open(session.session_id)
    with again:
        if (second := again.recovery) is not None:
            case.findings.append(f"the second open recovers as well: {second}")
        now = plain.stored(session.path)
        for table in TABLES:
            if any(now[table].get(key) != values for key, values in found[table].items()):
                case.findings.append(f"{table}: rows differ at the second open")
        if len(now["events"]) != len(found["events"]) + added:
            case.findings.append("events: their number differs at the second open")


@contextmanager
def _warnings() -> Iterator[list[str]]:
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("statebackend")
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


# -- a healthy one that looks odd ------------------------------------------------------------------


def _run_odd(case: Case, path: Path, expected: Rows, files: Files) -> None:
    started = time.perf_counter()
    case.there = sum(map(len, expected.values()))
    try:
        session = StateBackend(path.parent).open(path.stem)
    except StateBackendError as error:
        case.ending = "refused"
        case.findings.append(f"a sound file was refused: {error!r}")
        if bases.files_of(path).get("") != files[""]:
            case.findings.append("a refused file was changed")
    else:
        with session:
            case.ending = "sound"
            if session.recovery is not None:
                case.findings.append("a sound file was recovered")
            found = plain.stored(path)
            case.saved = sum(map(len, found.values()))
            if found != expected:
                case.findings.append("a sound file holds other rows once it is opened")
    case.seconds = time.perf_counter() - started
    if renamed(path):
        case.findings.append("a sound file was set aside")
