"""Hazards of SQLite, SQLAlchemy and Alembic themselves, measured once and kept out."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from statebackend import Session, SessionDamaged, StateBackend
from statebackend.schema import models
from statebackend.sqlite import engine
from tests.session_files import call, fill, full, listing, new, path_of, run_python


@pytest.mark.parametrize(
    "name", ["100%", "%41", "a?b", "a#b", "a b", "a?mode=memory", "ü", "a&b;c"]
)
def test_a_path_is_never_read_as_a_url(tmp_path: Path, name: str) -> None:
    """Folders with characters that mean something in a URL hold their own sessions."""
    backend = StateBackend(tmp_path / name)
    session_id = full(backend)
    assert [one.session_id for one in backend.list()] == [session_id]
    with backend.open(session_id) as session:
        assert session.counts().events == 5
    assert listing(tmp_path) == [name]


def test_every_connection_is_set_up_as_said(backend: StateBackend) -> None:
    """The pragmas of the writer and of a view, read back."""
    wanted = {"journal_mode": "wal", "busy_timeout": 5000}
    with backend.create("default") as session:
        fill(session)
        with backend.read(session.session_id) as view:
            for connection in (session._held.connection, view._held.connection):
                driver = engine.driver_of(connection)
                assert {
                    name: driver.execute(f"PRAGMA {name}").fetchone()[0] for name in wanted
                } == wanted
            writer = engine.driver_of(session._held.connection)
            reader = engine.driver_of(view._held.connection)
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
        assert writer.execute("PRAGMA foreign_keys").fetchone() == (1,)
        assert writer.execute("PRAGMA recursive_triggers").fetchone() == (1,)
        with pytest.raises(Exception, match="closed"):
            reader.execute("SELECT 1")


def test_nothing_but_the_writer_folds_the_log_in(root: Path) -> None:
    """One function asks for a checkpoint, which a second connection must not run beside a writer.

    It has one caller, on the writer's connection; a reader's would be refused.
    """
    asking, calling = (
        [
            path.name
            for path in sorted((root / "src" / "statebackend").rglob("*.py"))
            for _ in re.findall(pattern, path.read_text())
        ]
        for pattern in (r"PRAGMA\s+\w*\.?wal_checkpoint", r"checkpoint\.restart_wal\(")
    )
    assert (asking, calling) == (["checkpoint.py"], ["guard.py"])


def test_a_reader_cannot_fold_the_log_in(backend: StateBackend) -> None:
    """Its connection is refused the pragma, and a fold through it says no."""
    with backend.create("default") as session, backend.read(session.session_id) as view:
        call(session)
        reader = engine.driver_of(view._held.connection)
        with pytest.raises(sqlite3.DatabaseError):
            reader.execute("PRAGMA wal_checkpoint(RESTART)")


def test_a_reader_ahead_of_the_writer_leaves_no_sidecars(backend: StateBackend) -> None:
    """When writer and reader are both closed, in either order, one file is left."""
    session_id = new(backend)
    for reader_last in (True, False):
        session, view = backend.open(session_id), backend.read(session_id)
        call(session)
        for handle in (session, view) if reader_last else (view, session):
            handle.close()
        assert listing(backend.directory) == [".locks", f"{session_id}.sqlite"]


def test_a_broken_text_does_not_hide_the_damage(backend: StateBackend) -> None:
    """A name in the schema that is not UTF-8 is damage, not a decoding error."""
    path = path_of(backend, full(backend))
    content = path.read_bytes()
    path.write_bytes(
        content.replace(b"CREATE INDEX idx_events_kind", b"CREATE INDEX \xff\xfe\xff_events_kind")
    )
    with pytest.raises(SessionDamaged):
        backend.read(path.stem)
    with backend.open(path.stem) as session:
        assert session.recovery is not None


def test_an_unclosed_session_warns(backend: StateBackend) -> None:
    """A handle that is forgotten open says so, and gives its claim back."""
    session_id = new(backend)
    leaked = [backend.open(session_id)]
    with pytest.warns(ResourceWarning, match=session_id):
        leaked.clear()
    with backend.open(session_id):
        pass


def test_a_process_that_ends_with_an_open_session_is_quiet(backend: StateBackend) -> None:
    """The end of the program closes what it forgot, with no traceback."""
    code = """
        import sys
        from statebackend import StateBackend
        session = StateBackend(sys.argv[1]).create("default")
        view = StateBackend(sys.argv[1]).read(session.session_id)
        print("end")
    """
    assert run_python(code, backend.directory, PYTHONWARNINGS="ignore") == "end"
    (session_id,) = backend.ids()
    with backend.open(session_id):
        pass


def test_creating_and_opening_leave_logging_alone(
    backend: StateBackend, capfd: pytest.CaptureFixture[str]
) -> None:
    """No handler, no level and no output comes from the migrations that make a file."""
    code = """
        import logging, sys
        host = logging.getLogger("host")
        before = list(logging.root.handlers), logging.root.level, host.disabled
        from statebackend import StateBackend
        backend = StateBackend(sys.argv[1])
        with backend.create("default") as session:
            pass
        with backend.open(session.session_id):
            pass
        assert (list(logging.root.handlers), logging.root.level, host.disabled) == before
    """
    assert run_python(code, backend.directory) == ""
    assert logging.root.level >= logging.WARNING or logging.root.handlers
    assert capfd.readouterr().out == ""


def test_orm_rows_are_read_in_a_snapshot(backend: StateBackend) -> None:
    """An ORM session maps the five tables, and its objects are those of one moment."""
    with backend.read(full(backend)) as view, view.orm() as orm:
        event = orm.scalars(select(models.Event).order_by(models.Event.sequence)).first()
        meta = orm.scalars(select(models.SessionMeta)).one()
        assert event is not None
        assert (event.producer_category, meta.status) == ("kernel", "completed")
        assert len(orm.scalars(select(models.PlanItem)).all()) == 2


def test_a_closed_handle_says_so(backend: StateBackend) -> None:
    """Every use after close is an error of its own kind; closing twice is none."""
    from statebackend import SessionClosed

    session: Session = backend.create("default")
    session.close()
    session.close()
    uses: list[Callable[[], object]] = [
        lambda: call(session),
        lambda: session.set_status("failed"),
        lambda: session.info,
        lambda: list(session.events()),
        lambda: session.orm().__enter__(),
        lambda: session.batch().__enter__(),
    ]
    for use in uses:
        with pytest.raises(SessionClosed) as caught:
            use()
        assert caught.value.session_id == session.session_id


def test_a_folder_without_rights_is_a_storage_error(tmp_path: Path) -> None:
    """Permission is told as such, never as damage or as an empty folder."""
    from statebackend import StorageError

    if os.geteuid() == 0:
        pytest.skip("root passes every permission check")
    folder = tmp_path / "sessions"
    backend = StateBackend(folder)
    session_id = full(backend)
    path_of(backend, session_id).chmod(0)
    for method in (backend.open, backend.read):
        with pytest.raises(StorageError):
            method(session_id)
    folder.chmod(0o500)
    with pytest.raises(StorageError):
        backend.create("default")
    folder.chmod(0o700)


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    """The error names what is in the way."""
    from statebackend import StorageError

    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        StateBackend(tmp_path / "file" / "sessions").create("default")
