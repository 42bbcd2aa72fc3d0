"""WAL and rollback journal: its own, an older one, another session's."""

from __future__ import annotations

import os
import random
import shutil
import uuid
from pathlib import Path

import pytest

from statebackend import SessionDamaged, SessionStatus, StateBackend, TableRecovery
from tests.damage.bases import files_of, put
from tests.damaging import (
    ID,
    NOISE,
    OTHER_ID,
    beside,
    create_large,
    layout_of,
    recover,
    same_rows,
    sequences,
    session_with_wal,
    table_report,
)
from tests.session_files import (
    call,
    killed_writer,
    new,
    overwrite,
    path_of,
    root_page,
    rows_of,
    run_python,
    sql,
)

WAL_IS_GONE = "its own WAL is gone; rows that only the WAL held are lost and cannot be counted"


def test_the_wal_of_another_session_is_not_used(backend: StateBackend, tmp_path: Path) -> None:
    """It is kept beside the damaged file."""
    new(backend, session_id=ID, events=20)
    path = path_of(backend, ID)
    before = rows_of(path)
    other = session_with_wal(backend, tmp_path / "killed", OTHER_ID, 20)
    wal = beside(other, "-wal").read_bytes()
    beside(path, "-wal").write_bytes(wal)
    recovery = recover(backend, ID)
    assert "the WAL belongs to another session; it is kept, but not used" in recovery.notes
    assert recovery.uncounted == (WAL_IS_GONE,)  # the same bytes as in the middle of its life
    assert same_rows(backend, ID, before)
    assert beside(path, ".corrupt-wal").read_bytes() == wal


def test_a_foreign_wal_without_a_common_page_of_events(
    backend: StateBackend, tmp_path: Path
) -> None:
    """The sequences have other ids in it.

    The file is truncated behind the root of its index of ids, a page that the foreign WAL does not
    have. Random ids spread over many pages of the other index.
    """
    path = create_large(backend, *[3000] * 30)
    before = rows_of(path)["events"]
    os.truncate(path, root_page(path, "sqlite_autoindex_producers_1") * 4096 + 1)
    ids = random.Random(1)
    with backend.create("default") as session:
        other_id = session.session_id
        for _ in range(200):
            call(session, event_id=str(uuid.UUID(int=ids.getrandbits(128), version=4)))
    with backend.open(other_id) as session:
        for _ in range(20):
            call(session, event_id=str(uuid.UUID(int=ids.getrandbits(128), version=4)))
        put(files_of(path_of(backend, other_id)), tmp_path / f"{other_id}.sqlite")
    shutil.copy(tmp_path / f"{other_id}.sqlite-wal", beside(path, "-wal"))
    recovery = recover(backend, path.stem)
    assert "the WAL belongs to another session; it is kept, but not used" in recovery.notes
    assert set(rows_of(path)["events"]) <= set(before)
    assert (
        f"events sequence 30 is lost; the indexes have: {before[29][1]}, tool_call, tool"
        in recovery.notes
    )


def test_a_foreign_wal_over_its_own_loses_uncounted_rows(
    backend: StateBackend, tmp_path: Path
) -> None:
    """All events were in the WAL that is gone."""
    path = session_with_wal(backend, tmp_path / "killed", ID, 10)
    other = session_with_wal(backend, tmp_path / "killed", OTHER_ID, 10)
    beside(path, "-wal").write_bytes(beside(other, "-wal").read_bytes())
    there = StateBackend(path.parent)
    recovery = recover(there, ID)
    assert table_report(recovery, "events") == TableRecovery(table="events", kept=0, routes={})
    assert recovery.uncounted == (WAL_IS_GONE,)
    assert (recovery.complete, recovery.partial) == (False, True)
    assert there.recoveries() == [recovery]
    with there.read(ID) as view:
        assert view.info.incomplete


def test_an_older_wal_hides_no_row(backend: StateBackend, tmp_path: Path) -> None:
    """Applied to the file, it would remove the newest events."""
    path = session_with_wal(backend, tmp_path / "killed", ID, 10)
    with backend.open(ID) as session:
        for _number in range(30):
            call(session, b"later" * 100)
    made = path_of(backend, ID)
    before = rows_of(made)
    beside(made, "-wal").write_bytes(beside(path, "-wal").read_bytes())
    recovery = recover(backend, ID)
    assert (
        "the WAL is older than the file; it is used only for rows that the file lost"
        in recovery.notes
    )
    assert recovery.uncounted == (WAL_IS_GONE,)  # the same bytes as in the middle of its life
    assert same_rows(backend, ID, before)


def test_transactions_behind_a_broken_frame_are_used(backend: StateBackend, tmp_path: Path) -> None:
    """SQLite would ignore them; only what the broken frame alone held is lost."""
    path = session_with_wal(backend, tmp_path / "killed", ID, 30)
    with StateBackend(path.parent).read(ID):
        pass
    start, _end = layout_of(path).commits[5]
    with beside(path, "-wal").open("r+b") as file:
        file.seek(start + 200)
        file.write(b"noise")
    recovery = recover(StateBackend(path.parent), ID)
    assert any("transactions behind a broken frame" in note for note in recovery.notes)
    assert table_report(recovery, "events").kept == 30
    assert table_report(recovery, "events").routes.keys() <= {"wal", "page", "older image"}


def test_an_empty_file_beside_a_wal(backend: StateBackend) -> None:
    """Nearly all of a young session is in its WAL."""
    session_id = killed_writer(backend)
    path = path_of(backend, session_id)
    path.write_bytes(b"")
    recovery = recover(backend, session_id)
    assert table_report(recovery, "events").kept == 5
    assert table_report(recovery, "cost_ledger").kept == 1
    assert table_report(recovery, "plan_items").kept == 2
    assert sequences(path) == {1, 2, 3, 4, 5}


_KILLED = """
    import os, signal, sqlite3, sys
    driver = sqlite3.connect(sys.argv[1], isolation_level=None)
    driver.execute("PRAGMA journal_mode = DELETE")
    driver.execute("PRAGMA cache_size = 1")
    driver.execute("BEGIN")
    driver.execute(sys.argv[2])
    os.kill(os.getpid(), signal.SIGKILL)
"""


UPDATE = "UPDATE events SET payload = zeroblob(length(payload)), timestamp = 'wrong'"


INSERT = """
    INSERT INTO events SELECT sequence + 100, 'made up ' || sequence, 'wrong', kind,
    producer_category, producer_name, producer_version, schema_version, payload FROM events
"""


DELETE = "DELETE FROM events WHERE sequence > 50"


def killed_in_a_transaction(backend: StateBackend, session_id: str, statement: str) -> bytes:
    """Leave half a transaction of another program in the file; return the journal it left."""
    path = path_of(backend, session_id)
    before = path.read_bytes()
    run_python(_KILLED, path, statement, check=False)
    assert path.read_bytes() != before
    return beside(path, "-journal").read_bytes()


@pytest.mark.crash
@pytest.mark.parametrize("statement", [INSERT, UPDATE, DELETE])
def test_a_journal_is_rolled_back(backend: StateBackend, statement: str) -> None:
    """As SQLite would have."""
    session_id = new(backend, events=100, size=900)
    before = rows_of(path_of(backend, session_id))
    killed_in_a_transaction(backend, session_id, statement)
    with pytest.raises(SessionDamaged, match="rollback journal"):
        backend.read(session_id)
    recovery = recover(backend, session_id)
    assert "the rollback journal was rolled back" in recovery.notes
    assert recovery.complete
    assert same_rows(backend, session_id, before)


@pytest.mark.crash
def test_the_journal_of_another_session_is_not_used(backend: StateBackend) -> None:
    """SQLite would roll it back into this file."""
    new(backend, session_id=ID, events=100, size=900)
    new(backend, session_id=OTHER_ID, events=100, size=900)
    path = path_of(backend, ID)
    before = rows_of(path)
    journal = killed_in_a_transaction(backend, OTHER_ID, UPDATE)
    beside(path, "-journal").write_bytes(journal)
    recovery = recover(backend, ID)
    assert (
        "the rollback journal belongs to another session; it is kept, but not used"
        in recovery.notes
    )
    assert same_rows(backend, ID, before)
    assert beside(path, ".corrupt-journal").read_bytes() == journal


def wal_of_a_status(backend: StateBackend, folder: Path) -> Path:
    """Return a session without events whose WAL holds only the row of session_meta."""
    with backend.create("default") as session:
        session.set_status(SessionStatus.COMPLETED)
        path = path_of(backend, session.session_id)
        folder.mkdir()
        put(files_of(path), folder / path.name)
    return folder / path.name


def test_a_wal_with_the_sessions_id_is_its_own(backend: StateBackend, tmp_path: Path) -> None:
    """Even without an event."""
    path = wal_of_a_status(backend, tmp_path / "killed")
    overwrite(path, 1, NOISE[:16])
    assert recover(StateBackend(path.parent), path.stem).complete
    assert sql(path, "SELECT status FROM session_meta") == [("completed",)]


def test_a_wal_with_another_sessions_id_is_not_used(backend: StateBackend, tmp_path: Path) -> None:
    """It would turn this session into the other one."""
    other = wal_of_a_status(backend, tmp_path / "killed")
    path = path_of(backend, new(backend))
    Path(f"{path}-wal").write_bytes(Path(f"{other}-wal").read_bytes())
    recovery = recover(backend, path.stem)
    assert recovery.notes == ("the WAL belongs to another session; it is kept, but not used",)
    assert recovery.uncounted
    assert not recovery.complete
    assert sql(path, "SELECT status FROM session_meta") == [("running",)]
