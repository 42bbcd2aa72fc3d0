"""Random histories of a folder: after each step the catalogue gives the answers of a scan."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from statebackend import Producer, Session, SessionStatus, StateBackend, StateBackendError
from statebackend.catalogue import Catalogue
from statebackend.catalogue.schema import transaction
from tests.answers import differences
from tests.session_files import (
    call,
    cost,
    damage_index,
    damage_page,
    fill,
    killed_writer,
    path_of,
    process,
    sql,
)

MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
_STEPS = 15
_WRITER = """
    import sys
    from statebackend import StateBackend
    from tests.session_files import fill
    with StateBackend(sys.argv[1]).create("b") as session:
        fill(session)
        print(session.session_id, flush=True)
        sys.stdin.readline()
        fill(session)
        session.set_status("completed")
        print("done", flush=True)
        sys.stdin.readline()
"""


class History:
    """A folder and its history; every method without an underscore is a step."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.backend = StateBackend(folder / "sessions")
        self._elsewhere = StateBackend(folder / "elsewhere")
        self._rng = rng
        self._open: dict[str, Session] = {}

    def close_all(self) -> None:
        """Close what is open."""
        for session in self._open.values():
            session.close()

    @property
    def stems(self) -> list[str]:
        """Return the session files that there are."""
        return [path.stem for path in sorted(self.backend.directory.glob("*.sqlite"))]

    def _any(self, *, closed: bool = True) -> Path | None:
        stems = [one for one in self.stems if not (closed and one in self._open)]
        return path_of(self.backend, self._rng.choice(stems)) if stems else None

    def _parent(self) -> str | None:
        return self._rng.choice([None, *self.stems])

    def create(self) -> None:
        """Make a session, perhaps below another, and leave it open."""
        session = self.backend.create(self._rng.choice("ab"), parent_session_id=self._parent())
        self._open[session.session_id] = session
        self.append()

    def append(self) -> None:
        """Add events to a session that is open."""
        if self._open:
            session = self._rng.choice(list(self._open.values()))
            with suppress(StateBackendError):  # its status may forbid it, its file may be gone
                (fill if self._rng.random() < 0.5 else call)(session)
                model = self._rng.choice(["m-large", "m-small"])
                session.append_message(
                    producer=_model(self._rng), payload=b"", cost=cost(0.1, model_id=model)
                )

    def set_status(self) -> None:
        """End a session that is open."""
        for session in self._open.values():
            with suppress(StateBackendError):
                session.set_status(self._rng.choice([*SessionStatus]))
            return

    def close(self) -> None:
        """Close a session."""
        if self._open:
            self._open.pop(self._rng.choice(list(self._open))).close()

    def reopen(self) -> None:
        """Open a session, which recovers a damaged one."""
        if (path := self._any()) is not None:
            with suppress(StateBackendError):
                self._open[path.stem] = self.backend.open(path.stem)

    def delete(self) -> None:
        """Remove a file."""
        if (path := self._any()) is not None:
            path.unlink()

    def copy_in(self) -> None:
        """Copy in a session of another folder, or put an older state of one back."""
        with self._elsewhere.create("a", parent_session_id=self._parent()) as session:
            fill(session)
        shutil.copy2(path_of(self._elsewhere, session.session_id), self.backend.directory)

    def touch(self) -> None:
        """Give a file another time, also one in the future."""
        if (path := self._any()) is not None:
            moment = time.time() + self._rng.choice([-1e6, 0, 1e6])
            os.utime(path, (moment, moment))

    def replace(self) -> None:
        """Put a file of the same size and times in the place of another, or of its bytes."""
        if (path := self._any()) is None:
            return
        before = path.stat()
        other = path.with_name("other")
        shutil.copy2(path, other)
        with suppress(sqlite3.Error):
            sql(
                other,
                "UPDATE session_meta SET profile = CASE profile WHEN 'a' THEN 'b' ELSE 'a' END",
            )
        if self._rng.random() < 0.5:
            other.replace(path)
        else:
            path.write_bytes(other.read_bytes())
            other.unlink()
        for ending in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                other.with_name(other.name + ending).unlink()
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def kill_a_writer(self) -> None:
        """Leave a log whose commits are in no file yet."""
        killed_writer(self.backend)

    def damage(self) -> None:
        """Damage a file: where a summary sees it, and where it does not."""
        if (path := self._any()) is None:
            return
        kinds: list[Callable[[Path], object]] = [
            damage_index,
            damage_page,
            lambda path: damage_page(path, "cost_ledger"),
            lambda path: path.write_bytes(path.read_bytes()[:1000]),
            lambda path: sql(path, "PRAGMA user_version = 99"),
            lambda path: path.rename(path.with_name(f"{path.name}.corrupt")),
            lambda path: path.with_name(f"{path.name}-journal").write_bytes(b"x"),
        ]
        with suppress(sqlite3.Error, ValueError, OSError):
            self._rng.choice(kinds)(path)

    def spoil_the_catalogue(self) -> None:
        """Delete it, overwrite it, or change what it says of itself."""
        path = Catalogue(self.backend.directory).path
        kinds: list[Callable[[], object]] = [
            lambda: path.unlink(missing_ok=True),
            lambda: path.write_bytes(bytes(range(256)) * 64),
            lambda: sql(path, "PRAGMA user_version = 7"),
            lambda: sql(path, "UPDATE folder SET directory = x'2f'"),
        ]
        with suppress(sqlite3.Error):
            self._rng.choice(kinds)()
        Catalogue(self.backend.directory).refresh()

    def wait(self) -> None:
        """Let the files become quiet."""
        time.sleep(0.11)


def _model(rng: random.Random) -> Producer:
    return Producer("model", "anthropic", rng.choice(["1", "2"]))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory, if there is such a file system."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as name:
        yield Path(name)


def histories(folder: Path, seed: int) -> None:
    """Run one history, and compare after each step."""
    history = History(folder, random.Random(seed))
    steps = [name for name in vars(History) if not name.startswith("_")]
    steps = [name for name in steps if name not in {"stems", "close_all"}]
    weights = [4 if name in {"create", "append", "wait", "set_status"} else 2 for name in steps]
    done = []
    try:
        history.create()
        Catalogue(history.backend.directory).refresh()
        for name in history._rng.choices(steps, weights, k=_STEPS):
            getattr(history, name)()
            done.append(name)
            asked = history._rng.sample(history.stems, min(1, len(history.stems)))
            different = differences(history.backend, asked, some=history._rng)
            assert not different, (seed, done, different)
    finally:
        history.close_all()


@pytest.mark.parametrize("seed", range(3))
def test_the_catalogue_gives_the_answers_of_a_scan(folder: Path, seed: int) -> None:
    """Whatever happens to the files, and to the catalogue itself."""
    histories(folder, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_the_answers_agree_in_many_histories(folder: Path, seed: int) -> None:
    """The same for a hundred more."""
    histories(folder, seed)


def test_a_writer_in_another_process_is_seen_as_it_is(folder: Path) -> None:
    """Live with its committed events, and then as it ended."""
    backend = StateBackend(folder)
    backend.create("a").close()
    Catalogue(folder).refresh()
    with process(_WRITER, folder) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for _ in range(2):
            stems = sorted(backend.ids())
            for _ in range(2):
                assert not differences(backend, stems)
            time.sleep(0.11)
            writer.stdin.write("\n")
            writer.stdin.flush()
            writer.stdout.readline()
    assert not differences(backend, stems)


def test_a_wrong_entry_is_a_difference(folder: Path) -> None:
    """The comparison itself works."""
    backend = StateBackend(folder)
    with backend.create("a") as session:
        fill(session)
    time.sleep(0.11)
    catalogue = Catalogue(folder)
    catalogue.refresh()
    with (
        closing(sqlite3.connect(catalogue.path, isolation_level=None)) as driver,
        transaction(driver, "BEGIN IMMEDIATE"),
    ):
        driver.execute("UPDATE sessions SET profile = 'wrong'")
    assert differences(backend, [session.session_id])
