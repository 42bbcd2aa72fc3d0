"""The row of session_meta."""

from __future__ import annotations

from statebackend import StateBackend
from tests.damaging import ID, recover, spoil, table_report
from tests.session_files import START, call, path_of, root_page, sql


def test_a_lost_row_is_derived(backend: StateBackend) -> None:
    """The id is the file's name, the times are those of the events, the rest is unknown."""
    with backend.create("default", session_id=ID, started_at=START) as session:
        for minute in (3, 1, 2):
            call(session, timestamp=START.replace(minute=minute))
    path = path_of(backend, ID)
    spoil(path, root_page(path, "session_meta"))
    recovery = recover(backend, ID)
    columns = [name for (name,) in sql(path, "SELECT name FROM pragma_table_info('session_meta')")]
    assert list(recovery.derived) == columns
    assert table_report(recovery, "session_meta").routes == {"derived": 1}
    assert sql(path, "SELECT * FROM session_meta") == [
        (ID, None, "unknown", "failed", 0, "2026-03-01T12:03:00.000Z", "2026-03-01T12:02:00.000Z")
    ]


def test_an_id_with_a_damaged_character_is_corrected(backend: StateBackend) -> None:
    """From the file's name."""
    backend.create("default", session_id=ID).close()
    path = path_of(backend, ID)
    content = path.read_bytes()
    leaf = (root_page(path, "session_meta") - 1) * 4096
    at = content.index(ID.encode(), leaf, leaf + 4096)
    path.write_bytes(content[: at + 9] + b"Q" + content[at + 10 :])
    recovery = recover(backend, ID)
    assert recovery.derived == ()
    assert table_report(recovery, "session_meta").repaired == 1
    assert sql(path, "SELECT session_id, profile FROM session_meta") == [(ID, "default")]
