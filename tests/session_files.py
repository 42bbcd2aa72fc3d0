"""Sessions to test with, looks at their files from outside, and programs in other processes."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from statebackend import (
    Cost,
    EventKind,
    PlanDecision,
    PlanItem,
    Producer,
    Session,
    SessionStatus,
    StateBackend,
    StorageError,
)

MODEL = Producer("model", "anthropic", "2.1.0")
TOOL = Producer("tool", "shell", "1.0.0")
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
UNKNOWN_ID = "01KJMG7C00000000000000000Z"
"""A well-formed id that no test creates by accident."""


def cost(cost_usd: float = 0.25, **changes: Any) -> Cost:
    """Return the spend of a turn."""
    given: dict[str, Any] = {
        "provider_name": "anthropic",
        "model_id": "m-large",
        "input_tokens": 100,
        "output_tokens": 10,
        "cache_write_tokens": 3,
        "cache_read_tokens": 5,
    }
    return Cost(cost_usd=cost_usd, **(given | changes))


def item(decision: str = PlanDecision.ALLOW, **changes: str) -> PlanItem:
    """Return a planned call."""
    given = {
        "turn_id": "t1",
        "tool_call_id": "call-1",
        "provider_name": "shell",
        "tool_name": "run",
        "decided_by": "policy:default",
    }
    return PlanItem(decision=decision, **(given | changes))


def call(session: Session, payload: bytes = b"{}", **given: Any) -> int:
    """Append a tool call and return its sequence."""
    options: dict[str, Any] = {"producer": TOOL, "schema_version": "1"} | given
    return session.append(EventKind.TOOL_CALL, payload=payload, **options).sequence


def fill(session: Session) -> None:
    """Append one turn of everything: a prompt, a message with cost, a plan, a call, a result."""
    session.append_prompt(payload=b"do it", schema_version="1")
    session.append_message(producer=MODEL, payload=b"\x00\xff turn", cost=cost())
    session.append_plan(producer=MODEL, payload=b"[]", items=[item("allow"), item("deny")])
    call(session, b'{"call": 1}')
    session.append(EventKind.TOOL_RESULT, producer=TOOL, payload=b"done", schema_version="1")


def new(backend: StateBackend, *, events: int = 0, size: int = 20, **columns: Any) -> str:
    """Make a session with so many tool calls of so many bytes, close it, and return its id."""
    with backend.create(**{"profile": "default", **columns}) as session:
        if events:
            with session.batch() as batch:
                for number in range(events):
                    payload = f"{number}:".encode().ljust(size, b".")
                    batch.append(
                        EventKind.TOOL_CALL, producer=TOOL, payload=payload, schema_version="1"
                    )
        return session.session_id


def full(backend: StateBackend, **columns: Any) -> str:
    """Make a completed session with one turn of everything and return its id."""
    with backend.create(**{"profile": "default", **columns}) as session:
        fill(session)
        session.set_status(SessionStatus.COMPLETED)
        return session.session_id


def path_of(backend: StateBackend, session_id: str) -> Path:
    """Return the file of a session."""
    return backend.directory / f"{session_id}.sqlite"


def sql(path: Path, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Run one statement on a file as another program would, with ``sqlite3`` alone."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


def rows_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of the five tables as they are stored."""
    tables = ("events", "session_meta", "cost_ledger", "plan_items", "producers")
    return {table: sql(path, f"SELECT * FROM {table} ORDER BY rowid") for table in tables}


# -- a folder, as it is found ----------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What a look at one name sees: kind and mode, time of change, and the bytes."""

    mode: int
    mtime_ns: int
    content: bytes | None


def snapshot(folder: Path) -> dict[str, Found]:
    """Return all that can be seen of a folder, itself included, the lock files' folder too."""
    return {str(path): _found(path) for path in (folder, *sorted(folder.rglob("*")))}


def listing(folder: Path) -> list[str]:
    """Return the names in a folder."""
    return sorted(path.name for path in folder.iterdir())


def _found(path: Path) -> Found:
    seen = path.lstat()
    content = path.read_bytes() if stat.S_ISREG(seen.st_mode) else None
    return Found(seen.st_mode, seen.st_mtime_ns, content)


def modes(folder: Path) -> dict[str, int]:
    """Return the permission bits of everything below *folder*, itself included."""
    return {path.name: stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}


# -- damage ----------------------------------------------------------------------------------------


def root_page(path: Path, name: str) -> int:
    """Return the number of the first page of a table or an index."""
    ((page,),) = sql(path, "SELECT rootpage FROM sqlite_schema WHERE name = ?", name)
    return int(page)


def overwrite(path: Path, page: int, content: bytes, offset: int = 0) -> None:
    """Overwrite bytes in one page (the first is 1) of a database file, without SQLite."""
    with path.open("r+b") as file:
        page_size = int.from_bytes(file.read(100)[16:18], "big")
        file.seek((page - 1) * page_size + offset)
        file.write(content)


def damage_index(path: Path) -> None:
    """Empty the index of kinds: every table still reads well, only a check can tell."""
    overwrite(path, root_page(path, "idx_events_kind"), b"\x0a\0\0\0\0\0\0\0")


def damage_page(path: Path, name: str = "events") -> None:
    """Overwrite the first page of a table with noise."""
    overwrite(path, root_page(path, name), bytes(range(256)) * 16)


# -- other processes -------------------------------------------------------------------------------


def run_python(code: str, *arguments: object, check: bool = True, **environment: str) -> str:
    """Run a program in a new process and return what it printed.

    With ``check=False`` it may be killed, so its coverage is not measured: half of a data file
    would be left.
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env=_environment(measured=check) | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


_KILLED = """
    import os, signal, sys
    from statebackend import StateBackend
    from tests.session_files import fill
    session = StateBackend(sys.argv[1]).create("default")
    fill(session)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_writer(backend: StateBackend) -> str:
    """Put in the folder what a writer leaves that is killed after one turn: file, log, lock file.

    Returns the session's id. It is the same for every test: one process was killed for all.
    """
    left = _left_by_a_killed_writer()
    for name, content in left.items():
        path = backend.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return next(name for name in left if name.endswith(".sqlite")).removesuffix(".sqlite")


@cache
def _left_by_a_killed_writer() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        run_python(_KILLED, folder, check=False)
        left = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }
    assert sorted(Path(name).suffix for name in left) == [
        ".lock",
        ".sqlite",
        ".sqlite-shm",
        ".sqlite-wal",
    ]
    return left


def _environment(*, measured: bool) -> dict[str, str]:
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    kept = {
        name: value
        for name, value in os.environ.items()
        if measured or not name.startswith("COVERAGE_")
    }
    return kept | {"PYTHONPATH": path}


@contextmanager
def process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program beside the test: it prints a line when it is ready, and ends with the test."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env=_environment(measured=False),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline(), "the program ended before it was ready"
            yield running
        finally:
            running.kill()


# -- what this process opens -----------------------------------------------------------------------

_watching: list[list[str]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in ("open", "sqlite3.connect"):
        for seen in _watching:
            seen.append(str(arguments[0]))


sys.addaudithook(_audit)


@contextmanager
def files_opened() -> Iterator[list[str]]:
    """Collect the names of all files that this process opens inside the block."""
    seen: list[str] = []
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.remove(seen)


def session_files(seen: list[str]) -> list[str]:
    """Return the session ids among names of opened files, each opened file once."""
    names = (name.partition("?")[0].rpartition("/")[2] for name in seen if ".sqlite" in name)
    return sorted({name.removesuffix(".sqlite") for name in names if name.endswith(".sqlite")})


# -- interrupts ------------------------------------------------------------------------------------


def interrupted(action: Callable[[], object], step: int) -> bool:
    """Run *action*, and interrupt it at the *step*-th place where Ctrl-C could.

    The interpreter looks for signals when a Python function begins and when a C function has
    returned. Returns whether it was interrupted: false when it has fewer steps. Inside SQLite's
    callback that authorizes a statement, the driver turns an interrupt into a refusal of the
    statement; inside a finalizer, Python only prints it.
    """
    left = step

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal left
        if left > 0 and event in ("call", "c_return"):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    except KeyboardInterrupt:
        return True
    except StorageError as error:
        if left or "SQLITE_AUTH" not in str(error):
            raise
        return True
    finally:
        unused, left = left, 0  # from here on it is too late to interrupt
        sys.setprofile(before)
    return not unused
