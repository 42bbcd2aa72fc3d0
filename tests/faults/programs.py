"""Programs that run under the recorder: ``python -m tests.faults.programs NAME ROOT …``.

Everything in them is fixed, so that each run makes the same rows. After each promise they
acknowledge what the session then holds: a digest over every row of the five tables.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import select

from statebackend import (
    EventKind,
    OutcomeUnknown,
    Session,
    SessionStatus,
    SessionView,
    StateBackend,
    StorageError,
)
from statebackend.files import paths
from statebackend.opening import create as creating
from statebackend.recording.appends import Batch
from statebackend.recording.commit_queue import Submission
from statebackend.recording.group_commit import Committer
from statebackend.schema import models
from statebackend.sqlite import engine, settings
from tests.crash.samples import MODEL, TOOL, cost, item
from tests.faults.recording import acknowledge

SESSION_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
FOLDER = "agent/sessions"
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TABLES = ("events", "session_meta", "cost_ledger", "plan_items", "producers")


def backend_of(root: Path) -> StateBackend:
    """Return the backend of a recorded folder; its own folder is made by the first session."""
    return StateBackend(root / FOLDER)


def digest(session: Session | SessionView) -> str:
    """Return a digest over all rows, read through the handle's own connection."""
    driver = engine.driver_of(session._held.connection)
    rows = [driver.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall() for table in TABLES]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def payload(event_id: str, size: int = 0) -> bytes:
    """Return the payload that every event of these programs has."""
    return f"payload of {event_id}".encode().ljust(size, b"\xff")


def append_message(to: Session | Batch, event_id: str, size: int = 0) -> None:
    """Append a message with its cost."""
    to.append_message(
        producer=MODEL,
        payload=payload(event_id, size),
        cost=cost(),
        event_id=event_id,
        timestamp=START,
    )


class Writer:
    """Appends to a session, and acknowledges each return."""

    def __init__(self, root: Path, session: Session) -> None:
        self._root = root
        self.session = session
        self.acknowledge("open")

    def acknowledge(self, what: str) -> None:
        """Say that the session holds what it now holds."""
        acknowledge(self._root, f"{what} {digest(self.session)}")

    def call(self, event_id: str, size: int = 0) -> None:
        """Append a tool call."""
        self.session.append(
            EventKind.TOOL_CALL,
            producer=TOOL,
            payload=payload(event_id, size),
            schema_version="1",
            event_id=event_id,
            timestamp=START,
        )
        self.acknowledge(event_id)

    def message(self, event_id: str, size: int = 0) -> None:
        """Append a message with its cost."""
        append_message(self.session, event_id, size)
        self.acknowledge(event_id)

    def plan(self, event_id: str) -> None:
        """Append a plan with its item."""
        self.session.append_plan(
            producer=MODEL,
            payload=payload(event_id),
            items=[item()],
            event_id=event_id,
            timestamp=START,
        )
        self.acknowledge(event_id)

    def batch(self, *event_ids: str, size: int = 0) -> None:
        """Append messages and a plan in one transaction."""
        *messages, last = event_ids
        with self.session.batch() as batch:
            for event_id in messages:
                append_message(batch, event_id, size)
            batch.append_plan(
                producer=MODEL,
                payload=payload(last),
                items=[item()],
                event_id=last,
                timestamp=START,
            )
        self.acknowledge(",".join(event_ids))

    def status(self, status: SessionStatus) -> None:
        """Change the status."""
        ends = None if status is SessionStatus.RUNNING else START
        self.session.set_status(status, ended_at=ends)
        self.acknowledge(status)


def _created(root: Path) -> Writer:
    session = backend_of(root).create("default", session_id=SESSION_ID, started_at=START)
    return Writer(root, session)


def _opened(root: Path, session_id: str = SESSION_ID) -> Writer:
    return Writer(root, backend_of(root).open(session_id))


# ── Whole lives ──────────────────────────────────────────────────────────────────────────────


def live(root: Path) -> None:
    """Create, append, end and close a session; open it again, go on and close it."""
    writer = _created(root)
    writer.call("a")
    writer.message("b")
    writer.batch("c", "d", "e", size=3000)
    writer.status(SessionStatus.COMPLETED)
    writer.session.close()
    writer = _opened(root)
    writer.status(SessionStatus.RUNNING)
    writer.plan("f")
    writer.message("g", 9000)  # over several pages
    writer.session.close()


def die(root: Path) -> None:
    """Create a session, append, and be killed while it is open."""
    writer = _created(root)
    writer.message("a")
    writer.call("b", 5000)
    os.kill(os.getpid(), signal.SIGKILL)


def go_on(root: Path) -> None:
    """Open a session, append, and close it."""
    writer = _opened(root)
    writer.message("y")
    writer.call("z", 5000)
    writer.session.close()


def read_everything(root: Path) -> None:
    """List, read with a check and without, through the ORM, copy elsewhere, and close it all."""
    backend = backend_of(root)
    backend.list()
    backend.cost_by("model")
    for check in (True, False):
        with backend.read(SESSION_ID, check=check) as view, view.orm() as orm:
            assert len(list(view.events())) == len(orm.scalars(select(models.Event)).all())
    backend.copy(SESSION_ID, root.with_name(f"copy-{os.getpid()}.sqlite"))


def write_beside_a_reader(root: Path) -> None:
    """Append while a reader is there that came first, whose connection made the log."""
    _created(root).session.close()
    with backend_of(root).read(SESSION_ID) as view:
        view.counts()
        go_on(root)


def write_much(root: Path) -> None:
    """Write so much that SQLite folds its log in and begins it anew."""
    writer = _created(root)
    for number in range(4):
        writer.message(f"large-{number}", 2_200_000)
        writer.call(f"small-{number}")
    writer.session.close()


def migrate(root: Path, session_id: str) -> None:
    """Open a file of an older version, which migrates it, append to it, and close it."""
    writer = _opened(root, session_id)
    writer.status(SessionStatus.RUNNING)
    writer.message("after")
    writer.session.close()


def recover(root: Path) -> None:
    """Open a damaged session, which salvages it, and close it."""
    _opened(root).session.close()


# ── Programs with a fault in them, which the tests must notice ───────────────────────────────


def live_unsynced(root: Path) -> None:
    """Live with commits that SQLite does not sync."""

    def not_durable(driver: object) -> None:
        driver.execute("PRAGMA synchronous = OFF")  # type: ignore[attr-defined]

    settings.set_synchronous = not_durable
    live(root)


def live_without_folders(root: Path) -> None:
    """Live without any sync of a folder by this package."""
    for module in (creating, paths):
        setattr(module, "fsync_directory", lambda _path: None)  # noqa: B010 - for the type checker
    live(root)


def live_without_transactions(root: Path) -> None:
    """Live with each row committed by itself."""

    def insert(committer: Committer, submissions: Sequence[Submission]) -> None:
        committer._insert(submissions)
        for submission in submissions:
            submission.finish()

    Committer.commit = insert  # type: ignore[assignment, method-assign]
    live(root)


# ── Failing calls ────────────────────────────────────────────────────────────────────────────


def create(root: Path) -> None:
    """Create a session and close it."""
    _created(root).session.close()


def append_twice(root: Path) -> None:
    """Open a session and append ``a`` and ``b``; say the error of ``b``, if it fails."""
    writer = _opened(root)
    writer.message("a")
    try:
        writer.message("b", 9000)
    except StorageError as error:
        sys.stdout.write(type(error).__name__)
        if isinstance(error, OutcomeUnknown) != writer.session._held.closed:
            raise AssertionError("closed, or not, against what the error says") from error
    with suppress(StorageError):
        writer.session.close()


# ── What tells the recorder itself ───────────────────────────────────────────────────────────


def use_every_call(root: Path) -> None:
    """Change files and names in all the ways that the recorder knows."""
    go_on(root)
    folder = root / "folder"
    folder.mkdir()
    descriptor = os.open(folder / "a", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(descriptor, b"0123456789")
    os.writev(descriptor, [b"ab", b"cd"])
    os.pwritev(descriptor, [b"EF", b"GH"], 2)
    os.posix_fallocate(descriptor, 10, 90)
    os.ftruncate(descriptor, 80)
    copied = os.dup(descriptor)
    os.close(descriptor)
    os.write(copied, b"by another descriptor")
    os.fsync(copied)
    os.close(copied)
    os.truncate(folder / "a", 70)
    shutil.copyfile(folder / "a", folder / "copy")
    os.chdir(folder)
    Path("a").rename("b")
    os.link("b", "c")
    os.link("b", "d")
    Path("b").replace("c")  # two names of one file: nothing happens
    at = os.open(".", os.O_RDONLY)
    os.rename("c", "e", src_dir_fd=at, dst_dir_fd=at)
    os.unlink("d", dir_fd=at)
    os.close(at)
    with Path("e").open("ab") as file:
        file.write(b"appended")
    Path("e").open("wb").close()
    subprocess.run([sys.executable, "-c", "open('f', 'w').write('a child')"], check=True)
    Path("gone").mkdir()
    Path("gone").rmdir()


def write_in_threads(root: Path) -> None:
    """Append to one file from four threads."""
    path = root / "threads"
    path.touch()

    def write(letter: bytes) -> None:
        with path.open("ab", buffering=0) as file:
            for number in range(200):
                file.write(letter * (number % 7 + 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, (b"a", b"b", b"c", b"d")))


def write_lines(root: Path) -> None:
    """Write three times into each of two files; say for the first which writes were done."""
    for name in ("one", "two"):
        with (root / name).open("wb", buffering=0) as file:
            for number in range(3):
                try:
                    file.write(b"%d" % number)
                    done = True
                except OSError:
                    done = False
                if name == "one":
                    sys.stdout.write("1" if done else "0")


def main() -> None:
    """Run the program that the command line names."""
    program: Callable[..., None] = globals()[sys.argv[1]]
    program(Path(sys.argv[2]), *sys.argv[3:])


if __name__ == "__main__":
    main()
