"""The steps of a recovery: what is in the folder after each, and which programs must wait."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from statebackend import (
    BadSession,
    Recovery,
    SessionDamaged,
    SessionExists,
    SessionInfo,
    SessionLocked,
    SessionUnreadable,
    StateBackend,
    StateBackendError,
    StorageBusy,
    StorageError,
)
from statebackend.files import paths, recovery_reports
from statebackend.opening.write import open_for_writing
from statebackend.recovery import recover as recovery
from statebackend.recovery.salvage.salvage import salvage
from tests.chains import make_chain, program_of
from tests.damaging import NOISE, layout_of, recover, same_rows, spoil, table_report
from tests.session_files import (
    START,
    Found,
    call,
    damage_index,
    fill,
    full,
    killed_writer,
    listing,
    new,
    overwrite,
    path_of,
    process,
    rows_of,
    run_python,
    snapshot,
    sql,
)


def beside(path: Path, ending: str) -> Path:
    """Return a name beside a session file."""
    return path.with_name(path.name + ending)


def damage_with_wal(backend: StateBackend) -> str:
    """Return a killed writer's session, with a WAL and a file without a header."""
    session_id = killed_writer(backend)
    overwrite(path_of(backend, session_id), 1, NOISE[:16])
    return session_id


def kept_files(folder: Path) -> dict[str, Found]:
    """Return all files but the shm, which every reader may change."""
    return {
        name: found
        for name, found in snapshot(folder).items()
        if found.content is not None and not name.endswith("-shm")
    }


def test_the_original_and_its_wal_are_kept_and_the_session_can_be_written(
    backend: StateBackend,
) -> None:
    """Byte for byte, under the names that the report gives."""
    session_id = damage_with_wal(backend)
    path = path_of(backend, session_id)
    main, wal = path.read_bytes(), beside(path, "-wal").read_bytes()
    done = recover(backend, session_id)
    assert done.original == beside(path, ".corrupt")
    assert done.report == beside(path, ".corrupt.json")
    assert done.aside is None
    assert done.complete
    assert beside(path, ".corrupt").read_bytes() == main
    assert beside(path, ".corrupt-wal").read_bytes() == wal
    assert listing(backend.directory) == [
        ".locks",
        path.name,
        *(f"{path.name}.corrupt{ending}" for ending in ("", "-wal", ".json")),
    ]
    with backend.open(session_id) as session:
        assert session.recovery is None
        assert call(session) == 6


def test_an_own_journal_is_kept_with_the_original(backend: StateBackend) -> None:
    """A rollback journal beside a session is damage; it is kept as the file is."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    beside(path, "-journal").write_bytes(b"\1" + NOISE[:3000])
    recover(backend, session_id)
    assert beside(path, ".corrupt-journal").read_bytes() == b"\1" + NOISE[:3000]
    assert not beside(path, "-journal").exists()


def test_names_never_collide(backend: StateBackend) -> None:
    """Each recovery keeps what the ones before kept."""
    session_id = new(backend, events=3)
    path = path_of(backend, session_id)
    kept = []
    for number in range(3):
        call_once(backend, session_id)
        damage_index(path)
        kept.append(path.read_bytes())
        ending = "" if number == 0 else f".{number + 1}"
        assert recover(backend, session_id).original == beside(path, f".corrupt{ending}")
    assert [beside(path, f".corrupt{end}").read_bytes() for end in ("", ".2", ".3")] == kept
    originals = [report.original for report in backend.recoveries()]
    assert originals == [beside(path, f".corrupt{end}") for end in (".3", ".2", "")]


def call_once(backend: StateBackend, session_id: str) -> None:
    """Append one event."""
    with backend.open(session_id) as session:
        call(session)


@pytest.mark.parametrize("ending", ["", ".json", ".aside.jsonl", "-wal", "-journal"])
def test_a_name_of_which_a_part_is_taken_is_left_alone(backend: StateBackend, ending: str) -> None:
    """A recovery replaces no file that it did not write, whichever part of the set it is."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    beside(path, f".corrupt{ending}").write_bytes(b"mine")
    damage_index(path)
    assert recover(backend, session_id).original == beside(path, ".corrupt.2")
    assert beside(path, f".corrupt{ending}").read_bytes() == b"mine"


def test_of_noise_nothing_is_saved_and_the_original_is_kept(backend: StateBackend) -> None:
    """The id stays taken, a list shows it, and the report has no tables."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    path.write_bytes(NOISE)
    with pytest.raises(SessionUnreadable):
        backend.open(session_id)
    assert beside(path, ".corrupt").read_bytes() == NOISE
    assert listing(backend.directory) == [
        ".locks",
        f"{path.name}.corrupt",
        f"{path.name}.corrupt.json",
    ]
    (done,) = backend.recoveries()
    assert (done.tables, done.derived) == ((), ())
    (bad,) = backend.list()
    assert isinstance(bad, BadSession)
    with pytest.raises(SessionExists):
        backend.create("default", session_id=session_id)
    with pytest.raises(SessionUnreadable):
        backend.open(session_id)


def test_a_partial_view_of_noise_is_refused_and_changes_nothing(backend: StateBackend) -> None:
    """There is nothing to show, and the file stays."""
    session_id = full(backend)
    path_of(backend, session_id).write_bytes(NOISE)
    before = kept_files(backend.directory)
    with (
        pytest.raises(SessionUnreadable),
        backend.read_partial(session_id),
    ):
        pass
    assert kept_files(backend.directory) == before


# -- interrupted recoveries ------------------------------------------------------------------------


def building(path: Path) -> None:
    """Leave what a recovery that was killed while it built left."""
    beside(path, ".recovering").write_bytes(b"half")
    beside(path, ".recovering.aside").write_bytes(b"half")
    beside(path, ".recovering.json").write_bytes(b"half")


def wal_linked(path: Path) -> None:
    """Leave the WAL with its second name."""
    building(path)
    os.link(beside(path, "-wal"), beside(path, ".corrupt-wal"))


def both_linked(path: Path) -> None:
    """Leave the file with its second name as well."""
    wal_linked(path)
    os.link(path, beside(path, ".corrupt"))


def report_named(path: Path) -> None:
    """Leave the report under its name as well."""
    both_linked(path)
    form = Recovery(
        session_id=path.stem,
        path=path,
        original=beside(path, ".corrupt"),
        report=beside(path, ".corrupt.json"),
        aside=None,
        recovered_at=START,
        reasons=("what the first one found",),
        tables=(),
        derived=(),
        notes=(),
    )
    beside(path, ".corrupt.json").write_text(recovery_reports.to_text(form))


def wal_gone(path: Path) -> None:
    """Leave the original without sidecars, as before the replacement takes its name."""
    report_named(path)
    beside(path, "-wal").unlink()
    beside(path, "-shm").unlink()


STEPS = [building, wal_linked, both_linked, report_named, wal_gone]


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_recovery_is_finished(
    backend: StateBackend, step: Callable[[Path], None]
) -> None:
    """After any step: one set is kept, nothing is lost, no other file remains."""
    session_id = damage_with_wal(backend)
    path = path_of(backend, session_id)
    main, wal = path.read_bytes(), beside(path, "-wal").read_bytes()
    step(path)
    done = recover(backend, session_id)
    assert done.complete
    assert table_report(done, "events").kept == 5
    assert listing(backend.directory) == [
        ".locks",
        path.name,
        *(f"{path.name}.corrupt{ending}" for ending in ("", "-wal", ".json")),
    ]
    assert beside(path, ".corrupt").read_bytes() == main
    assert beside(path, ".corrupt-wal").read_bytes() == wal
    assert backend.recoveries() == [done]


@pytest.mark.parametrize(
    ("step", "reasons"),
    [
        (both_linked, ("a recovery was interrupted",)),
        (report_named, ("what the first one found",)),
        (wal_gone, ("what the first one found",)),
    ],
)
def test_readers_refuse_a_session_with_an_unfinished_recovery(
    backend: StateBackend, step: Callable[[Path], None], reasons: tuple[str, ...]
) -> None:
    """Its WAL may be moved already, so a file that passes the check may lack the newest events."""
    session_id = killed_writer(backend)  # sound
    other = full(backend)
    path = path_of(backend, session_id)
    step(path)
    before = kept_files(backend.directory)
    with pytest.raises(SessionDamaged, match="interrupted"):
        backend.read(session_id)
    shown = {info.session_id: info for info in backend.list()}
    assert isinstance(shown[other], SessionInfo)
    bad = shown[session_id]
    assert isinstance(bad, BadSession)
    assert isinstance(bad.error, SessionDamaged)
    with pytest.raises(SessionDamaged, match="interrupted"):
        backend.cost(session_id)
    assert kept_files(backend.directory) == before
    with backend.read_partial(session_id) as view:
        assert len(list(view.events())) == 5
    assert kept_files(backend.directory) == before
    with pytest.raises(SessionDamaged, match="interrupted"):
        open_for_writing(path, may_recover=False)
    done = recover(backend, session_id)
    assert (done.reasons, table_report(done, "events").kept) == (reasons, 5)


@pytest.mark.parametrize("step", [wal_linked, both_linked])
def test_a_recovery_that_is_cut_off_twice_is_finished(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch, step: Callable[[Path], None]
) -> None:
    """The second is cut off as it starts over: the marks of the first must still be there."""
    session_id = damage_with_wal(backend)
    path = path_of(backend, session_id)
    step(path)
    if step is both_linked:
        beside(path, ".corrupt.aside.jsonl").write_text("{}\n")

    def cut_off(*_given: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "salvage", cut_off)
        patch.setattr(recovery._Replacement, "remove", cut_off)  # leaves its files as well
        with pytest.raises(KeyboardInterrupt):
            backend.open(session_id)
    assert recover(backend, session_id).reasons
    names = listing(backend.directory)
    assert f"{path.name}.corrupt" in names
    assert not any("recovering" in name for name in names)


@pytest.mark.parametrize("step", range(1, 4))
def test_a_recovery_whose_names_cannot_be_made_durable_starts_over(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Also after the second name was given, which would be taken for another program's link."""
    session_id = damage_with_wal(backend)
    path = path_of(backend, session_id)
    sync, calls = paths.fsync_directory, []

    def fail(folder: Path) -> None:
        calls.append(folder)
        if len(calls) == step:
            raise OSError(errno.EIO, "no")
        sync(folder)

    with monkeypatch.context() as patch:
        patch.setattr("statebackend.recovery.recover.fsync_directory", fail)
        with pytest.raises(StorageError):
            backend.open(session_id)
    assert recover(backend, session_id).reasons
    assert beside(path, ".corrupt").exists()


def test_a_report_that_cannot_be_read_ends_no_recovery(backend: StateBackend) -> None:
    """Its reasons are lost then."""
    session_id = damage_with_wal(backend)
    path = path_of(backend, session_id)
    both_linked(path)
    beside(path, ".corrupt.json").write_bytes(b"\xff")
    assert recover(backend, session_id).reasons == ("a recovery was interrupted",)


def test_a_link_under_another_name_is_not_a_recovery(backend: StateBackend) -> None:
    """It is refused, also beside a kept original: the file could be written under that name."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    damage_index(path)
    recover(backend, session_id)
    os.link(path, backend.directory / "other")
    with pytest.raises(SessionUnreadable, match="hard link"):
        backend.open(session_id)
    with backend.read(session_id) as view:
        assert len(list(view.events())) == 5
    assert isinstance(next(iter(backend.list())), SessionInfo)


# -- other programs -------------------------------------------------------------------------------


def test_a_session_under_recovery_is_busy_and_others_are_not(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, a thread that recovers a large session makes no other session wait."""
    session_id, other = full(backend), new(backend)
    damage_index(path_of(backend, session_id))
    begun, go_on = Event(), Event()

    def slow(*given: Any, **named: Any) -> object:
        begun.set()
        assert go_on.wait(20)
        return salvage(*given, **named)

    monkeypatch.setattr(recovery, "salvage", slow)
    thread = Thread(target=recover, args=(backend, session_id))
    thread.start()
    try:
        assert begun.wait(20)
        with pytest.raises(StorageBusy):
            backend.read(session_id)
        with pytest.raises(SessionLocked):
            backend.open(session_id)
        with backend.open(other) as session:
            fill(session)
        assert {type(info) for info in backend.list()} == {SessionInfo, BadSession}
    finally:
        go_on.set()
        thread.join()
    with backend.open(session_id) as session:
        assert session.recovery is None


def test_a_view_in_this_process_stops_a_recovery(backend: StateBackend) -> None:
    """Closing a descriptor of the file would drop the locks of the view's connection."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    with backend.read(session_id):
        with pytest.raises(StorageError):
            recovery.recover(path)
        with pytest.raises(StorageError):
            recovery.salvage_into(path, backend.directory, ())
    assert listing(backend.directory) == [".locks", path.name]


_READER = """
    import sqlite3, sys
    driver = sqlite3.connect(sys.argv[1])
    driver.execute("BEGIN")
    driver.execute("SELECT count(*) FROM events").fetchone()
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_reader_elsewhere_stops_a_recovery(backend: StateBackend) -> None:
    """It would go on reading the replaced file. After it has closed, the recovery succeeds."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    with process(_READER, path):
        damage_index(path)
        with pytest.raises(StorageError):
            backend.open(session_id)
        assert not beside(path, ".corrupt").exists()
    assert recover(backend, session_id).complete


_OPEN_EIGHT_TIMES = """
    import os, sys
    from statebackend import SessionLocked, StateBackend, replay
    gate, opener = os.pipe()
    children = []
    for _number in range(8):
        child = os.fork()
        if child:
            children.append(child)
            continue
        os.close(opener)
        os.read(gate, 1)
        try:
            with StateBackend(sys.argv[1]).open(sys.argv[2]) as session:
                word = "recovered" if session.recovery else "opened"
                printed = f"{word} {len(list(session.events()))}"
        except SessionLocked:
            printed = "locked"
        os.write(1, f"{printed}\\n".encode())
        os._exit(0)
    os.close(opener)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.crash
def test_of_eight_that_open_at_once_one_recovers(backend: StateBackend) -> None:
    """The others are locked out or find it recovered; one original is kept."""
    session_id = new(backend, events=500, size=300)
    path = path_of(backend, session_id)
    damage_index(path)
    printed = run_python(_OPEN_EIGHT_TIMES, backend.directory, session_id).splitlines()
    assert len(printed) == 8
    assert printed.count("recovered 500") == 1
    assert set(printed) <= {"recovered 500", "opened 500", "locked"}
    assert listing(backend.directory) == [
        ".locks",
        path.name,
        f"{path.name}.corrupt",
        f"{path.name}.corrupt.json",
    ]


# -- what fails ------------------------------------------------------------------------------------


_LIMITED = """
    import resource, sys
    from statebackend import StateBackend, StorageError
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), limits[1]))
    try:
        StateBackend(sys.argv[1]).open(sys.argv[2])
    except StorageError as error:
        print(type(error).__name__)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
"""


@pytest.mark.parametrize("most", [8_000, 100_000])
def test_if_the_new_file_cannot_be_written_everything_stays_as_it_was(
    backend: StateBackend, most: int
) -> None:
    """A full disk is not damage; no unfinished file remains, and a later open recovers."""
    session_id = new(backend, events=400, size=900)
    damage_index(path_of(backend, session_id))
    before = kept_files(backend.directory)
    assert run_python(_LIMITED, backend.directory, session_id, most).startswith("Storage")
    after = kept_files(backend.directory)
    # SQLite leaves an empty WAL if it could not make the shm; readers treat that as none.
    wal = after.pop(f"{path_of(backend, session_id)}-wal", None)
    assert wal is None or wal.content == b""
    assert after == before
    assert recover(backend, session_id).complete


def test_what_was_saved_is_checked_before_it_takes_the_name(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that damages the new file as well must not cost the original."""
    session_id = full(backend)
    damage_index(path_of(backend, session_id))
    before = kept_files(backend.directory)

    def on_a_bad_disk(source: Path, target: Path, *given: Any, **named: Any) -> object:
        saved = salvage(source, target, *given, **named)
        damage_index(target)
        return saved

    monkeypatch.setattr(recovery, "salvage", on_a_bad_disk)
    with pytest.raises(SessionDamaged):
        backend.open(session_id)
    assert kept_files(backend.directory) == before


# -- partial views ---------------------------------------------------------------------------------


def test_a_partial_view_changes_nothing(
    backend: StateBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder stays as it was, and the temporary one is removed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    session_id = new(backend, events=300, size=200)
    path = path_of(backend, session_id)
    spoil(path, layout_of(path).with_role("leaf events")[2])
    before = kept_files(backend.directory)
    with backend.read_partial(session_id) as view:
        assert view.recovery is not None
        assert (view.recovery.original, view.recovery.report) == (None, None)
        lost = table_report(view.recovery, "events").lost
        assert 0 < lost < 30
        assert len(list(view.events())) == 300 - lost
        assert listing(temporary)
    assert listing(temporary) == []
    assert kept_files(backend.directory) == before


def test_a_partial_view_of_a_sound_session_is_whole(backend: StateBackend) -> None:
    """Its ``recovery`` is None."""
    session_id = full(backend)
    with backend.read_partial(session_id) as view:
        assert view.recovery is None
        assert len(list(view.events())) == 5


# -- programs --------------------------------------------------------------------------------------


def test_a_session_of_an_older_version_is_saved_at_its_version_then_migrated(
    backend: StateBackend, tmp_path: Path
) -> None:
    """By a program three versions on, to the same rows as without the damage."""
    session_id = new(backend, events=120, size=200)
    path = path_of(backend, session_id)
    before = rows_of(path)["events"]
    damage_index(path)
    with program_of(make_chain(tmp_path / "chain", 4)):
        assert recover(backend, session_id).complete
    assert sql(path, "PRAGMA user_version") == [(4,)]
    assert sql(beside(path, ".corrupt"), "PRAGMA user_version") == [(1,)]
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]
    columns = sql(
        beside(path, ".corrupt"), "SELECT group_concat(name) FROM pragma_table_info('events')"
    )
    assert sql(path, f"SELECT {columns[0][0]} FROM events ORDER BY sequence") == before


def test_a_damaged_session_of_a_newer_version_is_left_alone(
    backend: StateBackend, tmp_path: Path
) -> None:
    """This program does not know what it may hold."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    with program_of(make_chain(tmp_path / "chain", 3)):
        backend.open(session_id).close()
    damage_index(path)
    before = path.read_bytes()
    with pytest.raises(StateBackendError):
        backend.open(session_id)
    assert path.read_bytes() == before
    assert listing(backend.directory) == [".locks", path.name]


def test_a_recovery_needs_no_other_program(backend: StateBackend) -> None:
    """Not even ``sqlite3`` on the PATH."""
    session_id = full(backend)
    before = rows_of(path_of(backend, session_id))
    damage_index(path_of(backend, session_id))
    printed = run_python(
        """
        import sys
        from statebackend import StateBackend
        with StateBackend(sys.argv[1]).open(sys.argv[2]) as session:
            print(session.recovery.complete)
        """,
        backend.directory,
        session_id,
        PATH="",
    )
    assert printed == "True"
    assert same_rows(backend, session_id, before)
