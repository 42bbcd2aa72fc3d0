"""The sole-writer claim (SB-05): refused while held, free as soon as its holder is gone."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from statebackend import Session, SessionInfo, SessionLocked, SessionUnreadable, StateBackend
from statebackend.files import claim
from statebackend.files.paths import SessionFiles
from tests.crash import children
from tests.crash.processes import run, several, started
from tests.crash.samples import append, litter, new_session, session_file
from tests.session_files import interrupted

pytestmark = pytest.mark.conformance("SB-05")


@pytest.fixture
def session_id(backend: StateBackend) -> str:
    """Return a closed session with one event."""
    return new_session(backend, 1)


@pytest.fixture
def lock(backend: StateBackend, session_id: str) -> Path:
    """Return the path of the session's lock file."""
    return backend.directory / ".locks" / f"{session_id}.lock"


def refused(backend: StateBackend, session_id: str) -> SessionLocked:
    """Return the refusal of a second writer."""
    with pytest.raises(SessionLocked) as caught:
        backend.open(session_id)
    return caught.value


def live(backend: StateBackend) -> bool:
    """Tell what the listing says of the one session."""
    (info,) = backend.list()
    assert isinstance(info, SessionInfo)
    return info.live


def test_second_writer_of_this_process_is_refused(backend: StateBackend, session_id: str) -> None:
    """The error names this process, this host and a time of now."""
    before = datetime.now(UTC).replace(microsecond=0)
    with backend.open(session_id):
        error = refused(backend, session_id)
    assert (error.pid, error.host) == (os.getpid(), socket.gethostname())
    assert error.since is not None
    assert before <= error.since <= datetime.now(UTC)
    assert str(os.getpid()) in str(error)


def test_second_writer_in_another_thread_is_refused(backend: StateBackend, session_id: str) -> None:
    """Record locks do not tell threads apart, so the process keeps a registry."""
    errors: list[SessionLocked] = []
    with backend.open(session_id):
        thread = threading.Thread(target=lambda: errors.append(refused(backend, session_id)))
        thread.start()
        thread.join()
    assert [error.pid for error in errors] == [os.getpid()]


def test_second_writer_in_another_process_is_refused(
    backend: StateBackend, session_id: str
) -> None:
    """The error there names this process, this host and since when."""
    with backend.open(session_id):
        (answer,) = run(children.attempt, backend.directory, session_id)
    assert (answer["pid"], answer["host"]) == (os.getpid(), socket.gethostname())
    assert datetime.fromisoformat(answer["since"]).tzinfo is not None


def test_writer_in_another_process_is_named(backend: StateBackend, session_id: str) -> None:
    """The refusal here names that process, and the session is free once it has closed."""
    with started(children.hold, backend.directory, session_id) as holder:
        holder.hear()
        assert refused(backend, session_id).pid == holder.pid
        holder.ask()
        backend.open(session_id).close()


def test_created_session_is_claimed(backend: StateBackend) -> None:
    """The session that create returned is held as one that open returned."""
    with backend.create("default") as session:
        assert refused(backend, session.session_id).pid == os.getpid()


def test_refusal_does_not_disturb_the_holder(backend: StateBackend, session_id: str) -> None:
    """After refusals and listings here, another process is still refused."""
    with backend.open(session_id) as session:
        for _ in range(3):
            refused(backend, session_id)
            assert live(backend)
        (answer,) = run(children.attempt, backend.directory, session_id)
        append(session)
    assert answer["pid"] == os.getpid()


def test_two_spellings_of_a_folder_are_one_session(
    backend: StateBackend, session_id: str, tmp_path: Path
) -> None:
    """Through a symbolic link to the folder the session is held as well, here and elsewhere."""
    (tmp_path / "link").symlink_to(backend.directory)
    other = StateBackend(tmp_path / "link")
    with backend.open(session_id):
        assert refused(other, session_id).pid == os.getpid()
        (answer,) = run(children.attempt, other.directory, session_id)
    assert answer["pid"] == os.getpid()
    with other.open(session_id):
        assert refused(backend, session_id).pid == os.getpid()


@pytest.mark.crash
def test_kill_frees_the_session(backend: StateBackend, session_id: str) -> None:
    """A holder that died by SIGKILL binds nobody."""
    with started(children.hold, backend.directory, session_id) as holder:
        holder.hear()
        holder.kill()
        assert not live(backend)
        with backend.open(session_id) as session:
            append(session)
    assert litter(backend) == set()


@pytest.mark.crash
def test_kill_frees_the_session_although_a_forked_child_lives(
    backend: StateBackend, session_id: str
) -> None:
    """The child has inherited the descriptor of the lock file, but not the lock."""
    with started(children.hold_beside_a_fork, backend.directory, session_id) as holder:
        forked = holder.hear()
        try:
            assert refused(backend, session_id).pid == holder.pid
            holder.kill()
            with backend.open(session_id) as session:
                append(session)
                assert session.counts().events == 3
        finally:
            os.kill(forked, signal.SIGKILL)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe garbage",
        b'{"pid": 1, "host": "elsewhere", "since": "2020-01-01T00:00:00.000Z"}',
        b'{"pid": 1e999, "host": null, "since": 3}',
        b"[" * 4096,
    ],
    ids=["empty", "noise", "of another process", "wrong types", "too deep"],
)
def test_stale_lock_file_binds_nobody(
    backend: StateBackend, session_id: str, lock: Path, content: bytes
) -> None:
    """Only the kernel's lock counts, never the file or what is written in it."""
    lock.write_bytes(content)
    assert not live(backend)
    with backend.open(session_id):
        assert refused(backend, session_id).pid == os.getpid()
        assert live(backend)
    assert litter(backend) == set()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe garbage",
        b'{"pid": 1, "host": "elsewhere"}',
        b'{"pid": 1e999, "host": null, "since": 3}',
        b"[" * 4096,
    ],
    ids=["empty", "noise", "half", "wrong types", "too deep"],
)
def test_holder_is_named_by_the_kernel_when_the_text_is_of_no_use(
    backend: StateBackend, session_id: str, lock: Path, content: bytes
) -> None:
    """Before the holder has written who it is, its pid alone is known."""
    lock.write_bytes(content)
    with started(children.lock_bare, lock) as holder:
        holder.hear()
        error = refused(backend, session_id)
        assert (error.pid, error.host, error.since) == (holder.pid, None, None)
        assert live(backend)


def test_text_of_a_predecessor_is_not_believed(
    backend: StateBackend, session_id: str, lock: Path
) -> None:
    """A new holder that has not written yet is not taken for the process that wrote last."""
    lock.write_text(
        f'{{"pid": 1, "host": "{socket.gethostname()}", "since": "2020-01-01T00:00:00.000Z"}}'
    )
    with started(children.lock_bare, lock) as holder:
        holder.hear()
        assert refused(backend, session_id).pid == holder.pid


def test_close_leaves_no_lock_file(backend: StateBackend, session_id: str, lock: Path) -> None:
    """The lock file is there while the session is open, and only then."""
    with backend.open(session_id):
        assert lock.exists()
        assert lock.stat().st_mode & 0o777 == 0o600
    assert not lock.exists()


def test_failed_open_gives_the_claim_back(backend: StateBackend, session_id: str) -> None:
    """An open that ends in an error leaves the session free."""
    path = session_file(backend, session_id)
    sound = path.read_bytes()
    path.write_bytes(b"\0" * len(sound))
    with pytest.raises(SessionUnreadable):
        backend.open(session_id)
    path.with_name(f"{path.name}.corrupt").unlink()
    path.write_bytes(sound)
    assert run(children.attempt, backend.directory, session_id) == ["opened"]


def test_readers_need_no_claim(backend: StateBackend, session_id: str, lock: Path) -> None:
    """Reading makes no lock file and is not refused beside a writer."""
    with backend.read(session_id) as view:
        assert not lock.exists()
        with backend.open(session_id), backend.read(session_id) as second:
            assert view.counts() == second.counts()


def test_lost_session_object_gives_the_claim_back(backend: StateBackend, session_id: str) -> None:
    """A session that is garbage, though nobody closed it, warns and is closed."""

    def forget() -> None:
        session: Session | None = backend.open(session_id)
        del session

    with pytest.warns(ResourceWarning, match="never closed"):
        forget()
    backend.open(session_id).close()


@pytest.mark.crash
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_lock_file_of_another_user_is_an_answer_not_a_loop(session_id: str) -> None:
    """Where the mode of the lock file may not be changed, opening still comes to an end."""
    with tempfile.TemporaryDirectory(prefix="statebackend-test-") as folder:
        Path(folder).chmod(0o755)
        backend = StateBackend(Path(folder) / "sessions")
        session_id = new_session(backend, 1)
        for path in (backend.directory, *backend.directory.iterdir()):
            os.chown(path, 65534, 65534)
        lock = backend.directory / ".locks" / f"{session_id}.lock"
        with started(children.open_as_nobody, backend.directory, session_id) as child:
            child.hear()
            lock.touch()
            lock.chmod(0o666)
            assert child.ask() == "opened"


def test_what_an_interrupt_left_of_a_release_is_done_by_the_next(
    backend: StateBackend, session_id: str
) -> None:
    """At whatever step it came: the lock file is gone then, and its descriptor."""
    path = session_file(backend, session_id)
    descriptors = len(list(Path("/dev/fd").iterdir()))
    step = 0
    while True:
        step += 1
        held = claim.acquire(path)
        cut_off = interrupted(held.release, step)
        held.release()
        held.release()
        assert claim.writer_of(path) is None
        assert not SessionFiles(path).lock.exists()
        assert len(list(Path("/dev/fd").iterdir())) == descriptors, step
        if not cut_off:
            break
    assert step > 5


@pytest.mark.crash
def test_lock_on_a_file_that_lost_its_name_is_no_claim(
    backend: StateBackend, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder leaves between the opening of its lock file and the locking: tried again."""
    lockf, asked = fcntl.lockf, [True]
    with started(children.hold, backend.directory, session_id) as holder:
        holder.hear()

        def leave_first(descriptor: int, flags: int, *range_: int) -> None:
            if asked and asked.pop():
                holder.ask()
            lockf(descriptor, flags, *range_)

        monkeypatch.setattr(fcntl, "lockf", leave_first)
        with backend.open(session_id):
            (answer,) = run(children.attempt, backend.directory, session_id)
    assert answer["pid"] == os.getpid()


@pytest.mark.crash
def test_race_for_one_session_has_one_winner(backend: StateBackend, session_id: str) -> None:
    """Of 8 processes that open at once exactly one wins, 20 times; the others are told so."""
    with several(8, children.race, backend.directory, session_id) as racers:
        for _ in range(20):
            for racer in racers:
                racer.say()
            answers = [racer.hear() for racer in racers]
            assert sorted(answers) == ["locked"] * 7 + ["won"]
            assert racers[answers.index("won")].ask() == "closed"
    assert litter(backend) == set()


@pytest.mark.crash
def test_open_and_close_as_fast_as_can_be_never_have_two_holders(backend: StateBackend) -> None:
    """Between the release of one and the claim of the next no two ever hold the session."""
    session_id = new_session(backend)
    with several(3, children.churn, backend.directory, session_id, 60) as churners:
        held = [churner.hear() for churner in churners]
        assert [churner.wait() for churner in churners] == [0, 0, 0]
    with backend.read(session_id) as view:
        sequences = [event.sequence for event in view.events()]
    assert sequences == list(range(1, sum(held) + 1))
    assert litter(backend) == set()
