"""Programs in which each system call fails once: ``python -m tests.faults.every_call NAME ROOT``.

Each fault has a process of its own, forked from one that has everything loaded. What a process
finds is told by its end; afterwards, with nothing failing any more, all must be as promised.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from statebackend import (
    DuplicateEvent,
    OutcomeUnknown,
    Session,
    SessionExists,
    SessionNotFound,
    SessionStatus,
    StateBackend,
    StorageError,
)
from tests.crash.samples import append, assert_whole, litter, session_file
from tests.faults.programs import SESSION_ID, backend_of
from tests.faults.recording import Fault
from tests.session_files import damage_page

# What a disk that breaks, one that is full, rights that are missing and a limit say.
FAULTS = (
    *((call, error) for call in ("write", "open") for error in (errno.EIO, errno.ENOSPC)),
    *((call, errno.EIO) for call in ("fsync", "link", "rename", "unlink")),
    *((call, errno.EACCES) for call in ("open", "link", "rename", "unlink")),
    ("open", errno.EMFILE),
)
IDS = ("a", "b", "c")
_T = TypeVar("_T")


class WrongError(AssertionError):
    """Something else than was promised came of a fault."""


# ── What is done while a call fails ──────────────────────────────────────────────────────────


def live(backend: StateBackend) -> None:
    """Create, append alone and in a batch, end, close, open again; do what fails once more."""
    try:
        session = backend.create("default", session_id=SESSION_ID)
    except StorageError as error:
        check(error, backend)
        if session_file(backend, SESSION_ID).exists():
            raise WrongError("create failed, and yet there is a session") from error
        session = backend.create("default", session_id=SESSION_ID)
    for event_id in IDS[:2]:
        session = surely(backend, session, lambda one, name=event_id: append(one, name))  # type: ignore[misc]
    session = surely(backend, session, _batch)
    session = surely(backend, session, lambda one: one.set_status(SessionStatus.COMPLETED))
    for _ in range(2):
        try:
            session.close()
            break
        except StorageError as error:
            check(error, backend)
    go_on(backend)


def go_on(backend: StateBackend) -> None:
    """Open, read and append, each once more if it fails."""
    session = again(backend, lambda: backend.open(SESSION_ID))
    status = again(backend, lambda: session.info.status)
    if status == SessionStatus.COMPLETED:
        session = surely(backend, session, lambda one: one.set_status(SessionStatus.RUNNING))
    session = surely(backend, session, lambda one: append(one, "later"))
    again(backend, lambda: list(session.events()))
    again(backend, backend.list)
    again(backend, lambda: backend.read(SESSION_ID).close())
    session.close()


def copied(backend: StateBackend) -> None:
    """Copy a session, once more if that fails."""
    target = copies(backend)
    try:
        backend.copy(SESSION_ID, target)
    except StorageError as error:
        check(error, backend)
        if not (target / f"{SESSION_ID}.sqlite").exists():  # else only taking away failed
            backend.copy(SESSION_ID, target)


def copies(backend: StateBackend) -> Path:
    """Return the folder for copies."""
    return backend.directory.with_name("copies")


def recover(backend: StateBackend) -> None:
    """Open a damaged session, once: this must recover it, or say what hindered it."""
    try:
        backend.open(SESSION_ID).close()
    except StorageError as error:
        check(error, backend)


def _batch(session: Session) -> None:
    with session.batch() as batch:
        batch.append_prompt(payload=b"1", schema_version="1", event_id=IDS[2])
        batch.append_prompt(payload=b"2" * 9000, schema_version="1", event_id="d")


def surely(backend: StateBackend, session: Session, write: Callable[[Session], object]) -> Session:
    """Write; after an error do as it says. Return the session that is open then."""
    try:
        write(session)
    except OutcomeUnknown as error:
        check(error, backend)
        session = backend.open(SESSION_ID)
        settle(session, write)
    except StorageError as error:
        check(error, backend)
        write(session)
    return session


def settle(session: Session, write: Callable[[Session], object]) -> None:
    """Write what may be there already."""
    status = session.info.status
    try:
        write(session)
    except DuplicateEvent as error:
        if not error.same_content:
            raise WrongError("a retry is taken for another event") from error
    except Exception:
        if session.info.status == status:  # no change of status that was kept
            raise


def again(backend: StateBackend, read: Callable[[], _T]) -> _T:
    """Do it, once more if the system refuses it."""
    try:
        return read()
    except StorageError as error:
        check(error, backend)
        return read()


def check(error: StorageError, backend: StateBackend) -> None:
    """Check that an error names a file of the folder, or a temporary one."""
    path = str(error.path)
    if not path.startswith(str(backend.directory.parents[1])) and "statebackend-" not in path:
        raise WrongError(f"names {path}") from error


# ── Each call, one after the other ───────────────────────────────────────────────────────────


def fail(root: Path, name: str, every: str, of: str) -> None:
    """Let each *every*-th call of a program fail, from the *of*-th on; print how many did."""
    backend = backend_of(root)
    program: Callable[[StateBackend], None] = {
        "live": live,
        "go_on": go_on,
        "killed": go_on,
        "copied": copied,
        "recover": recover,
        "recover_log": recover,
    }[name]
    with TemporaryDirectory() as folder:
        template = Path(folder) / "template"
        prepare(backend, name)
        shutil.copytree(root, template)
        fired: Counter[str] = Counter()
        for call, error in FAULTS:
            for number in count(int(of), int(every)):
                shutil.rmtree(root)
                shutil.copytree(template, root)
                fault = Fault(call, number, f"{root}/*", error)
                if not in_child(fault, lambda: program(backend)):
                    break
                try:
                    check_afterwards(backend, name, template, fault)
                except BaseException as problem:
                    raise WrongError(f"after {fault}") from problem
                fired[call] += 1
    sys.stdout.write(" ".join(f"{call}:{times}" for call, times in sorted(fired.items())))


def prepare(backend: StateBackend, name: str) -> None:
    """Put into the folder what the program finds there."""
    backend.directory.mkdir(parents=True)
    if name == "live":
        return
    if name == "copied":
        copies(backend).mkdir()
    if name in {"killed", "recover_log"}:
        in_child(None, lambda: _write_some(backend))
    else:
        _write_some(backend).close()
    if name.startswith("recover"):
        damage_page(session_file(backend, SESSION_ID))


def _write_some(backend: StateBackend) -> Session:
    session = backend.create("default", session_id=SESSION_ID)
    for event_id in IDS:
        append(session, event_id)
    return session


def in_child(fault: Fault | None, work: Callable[[], object]) -> bool:
    """Do *work* in a process in which *fault* happens; tell whether it did."""
    pid = os.fork()
    if not pid:
        code = 3
        try:
            recorder = ctypes.CDLL(None).recorder_faults
            recorder(str(fault).encode() if fault else b"")
            _kept = work()  # what it has open stays so: the end is a sudden death
            code = 0 if recorder(b"") else 1
        except BaseException:  # noqa: BLE001 - told by the end of the process
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in {0, 1}:
        raise WrongError(f"with {fault}")
    return code == 0


def check_afterwards(backend: StateBackend, name: str, template: Path, fault: Fault) -> None:
    """Check what is there, and that it can be used, when nothing fails any more."""
    if name.startswith("recover"):
        _check_recovered(backend, template)
        return
    with backend.open(SESSION_ID) as session:
        if session.recovery is not None:
            raise WrongError("taken for damaged")
        wanted = [*IDS, *{"live": ["d", "later"], "copied": []}.get(name, ["later"])]
        if [event.id for event in session.events()] != wanted:
            raise WrongError(f"holds {[event.id for event in session.events()]}")
    if name == "live":
        (info,) = backend.list()
        if getattr(info, "status", None) != SessionStatus.RUNNING:
            raise WrongError(f"is {info}")
    assert_alone(backend)
    if name == "copied":
        assert_whole(copies(backend) / f"{SESSION_ID}.sqlite")
        more = {one.suffix for one in copies(backend).iterdir()} - {".sqlite"}
        if fault.call != "unlink" and more:
            raise WrongError(f"left {more}")
    try:
        backend.create("default", session_id=SESSION_ID)
    except SessionExists:
        return
    raise WrongError("created twice")


def assert_alone(backend: StateBackend) -> None:
    """Assert that nothing but the whole session file is left."""
    assert_whole(session_file(backend, SESSION_ID))
    if left := litter(backend):
        raise WrongError(f"left {left}")


def _check_recovered(backend: StateBackend, template: Path) -> None:
    path = session_file(backend, SESSION_ID)
    old = template / path.relative_to(backend.directory.parents[1])
    kept = [one for one in (path, Path(f"{path}.corrupt")) if one.exists()]
    for ending in ("", "-wal"):
        before = Path(f"{old}{ending}")
        if before.exists() and before.read_bytes() not in [
            Path(f"{one}{ending}").read_bytes() for one in kept if Path(f"{one}{ending}").exists()
        ]:
            raise WrongError(f"the original{ending} is gone")
    backend.open(SESSION_ID).close()
    if Path(f"{path}.corrupt").read_bytes() != old.read_bytes():
        raise WrongError("the original is not kept")
    (report,) = backend.recoveries()
    told = {one.name for one in (report.original, report.report, report.aside) if one}
    left = litter(backend) - told
    if left - {f"{path.name}.corrupt-wal"}:
        raise WrongError(f"left {left}")
    try:
        backend.read(SESSION_ID).close()
    except SessionNotFound as error:
        raise WrongError("the session is gone") from error


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
