"""Kinds and producers of events: the row and the index of them bear witness to each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from statebackend import EventKind, Producer, StateBackend
from tests.damaging import NOISE, layout_of
from tests.session_files import MODEL, cost, path_of

SHELL = Producer("tool", "shell", "2.1.0")


@pytest.fixture
def session_id(backend: StateBackend) -> str:
    """Return a session of 40 events; a row has its texts one behind the other."""
    with backend.create("default") as session:
        for number in range(20):
            session.append_message(producer=MODEL, payload=b"{}", cost=cost())
            session.append(
                EventKind.TOOL_CALL,
                producer=SHELL,
                payload=b"x" * number,
                schema_version="1",
            )
        return session.session_id


def replace(path: Path, old: bytes, new: bytes, nth: int = 3) -> None:
    """Overwrite the *nth* place in the file that holds *old*."""
    content = bytearray(path.read_bytes())
    at = -1
    for _ in range(nth + 1):
        at = content.index(old, at + 1)
    content[at : at + len(new)] = new
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b"Ztool_call", b"Zuool_call", id="a bit of the kind"),
        pytest.param(b"Ztool_call", b"Z" + bytes(9), id="the kind zeroed"),
        pytest.param(b"Ztool_calltool", b"Ztool_calltmol", id="the category"),
        pytest.param(b"Ztool_calltoolshell", b"Ztool_calltoolsheml", id="the name"),
        pytest.param(b"Ztool_calltoolshell2.1.0", b"Ztool_calltoolshell2.1.1", id="the version"),
    ],
)
def test_what_the_index_knows_better_is_put_right(
    backend: StateBackend, session_id: str, old: bytes, new: bytes
) -> None:
    """It is told, and no producer is invented."""
    with backend.read(session_id) as view:
        events, producers = list(view.events()), view.producers()
    replace(path_of(backend, session_id), old, new)
    with backend.open(session_id) as session:
        assert list(session.events()) == events
        assert session.producers() == producers
        report = session.recovery
    assert report is not None
    assert not report.complete
    assert {table.table: table.repaired for table in report.tables}["events"] == 1
    assert any("put right" in note and "from the index" in note for note in report.notes)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b"Zmessage", b"Zmemory_", id="a kind that no session has"),
        pytest.param(b"messag", b"xessag", id="an entry of the index"),
    ],
)
def test_what_no_session_can_have_is_not_believed(
    backend: StateBackend, session_id: str, old: bytes, new: bytes
) -> None:
    """A wrong entry of the index is left alone; a kind that no session has is put right."""
    path = path_of(backend, session_id)
    with backend.read(session_id) as view:
        events = list(view.events())
    replace(path, old, new, 0 if new.startswith(b"x") else 3)
    with backend.open(session_id) as session:
        assert list(session.events()) == events


def test_of_two_producers_that_the_session_has_nobody_can_tell(
    backend: StateBackend, session_id: str
) -> None:
    """The row is kept as it is, and that is told."""
    with backend.open(session_id) as session:
        newer = session.append(
            EventKind.TOOL_CALL,
            producer=Producer("tool", "shell", "2.1.1"),
            payload=b"",
            schema_version="1",
        )
    replace(path_of(backend, session_id), b"Ztool_calltoolshell2.1.0", b"Ztool_calltoolshell2.1.1")
    with backend.open(session_id) as session:
        report = session.recovery
        told = [one.sequence for one in session.events() if one.producer == newer.producer]
    assert report is not None
    assert not report.complete
    assert {table.table: table.doubtful for table in report.tables}["events"] == 1
    assert len(told) == 2
    assert any("as the index has it" in note for note in report.notes)


def test_a_producer_whose_row_is_lost_is_known_by_its_other_events(
    backend: StateBackend, session_id: str
) -> None:
    """An entry of the index that got another event's number does not outdo the row."""
    path = path_of(backend, session_id)
    with backend.read(session_id) as view:
        events = list(view.events())
    replace(path, b"modelanthropic2.1.0\x03", b"modelanthropic2.1.0\x04", 0)
    replace(path, b"toolshell2.1.0\x04", b"toolshell2.1.0\x7f", 0)
    _name, start, _end = layout_of(path).rows["producers"]["tool", "shell", "2.1.0"].own[0]
    content = bytearray(path.read_bytes())
    content[start : start + 8] = NOISE[:8]
    path.write_bytes(content)
    with backend.open(session_id) as session:
        assert list(session.events()) == events
        assert session.recovery is not None
        assert not session.recovery.complete


def test_a_row_that_was_overwritten_with_zeros_is_doubtful(
    backend: StateBackend, session_id: str
) -> None:
    """No text that the package takes holds NUL."""
    path = path_of(backend, session_id)
    replace(path, b"anthropic", bytes(9), -1 + path.read_bytes().count(b"anthropic"))
    replace(path, b"Ztool_call", b"Zuool_call")
    with backend.open(session_id) as session:
        report = session.recovery
    assert report is not None
    assert sum(table.doubtful for table in report.tables) >= 1
    assert any("with NUL" in note for note in report.notes)


def test_a_payload_whose_last_page_was_hit_is_doubtful(backend: StateBackend) -> None:
    """Its pointer shows it, though the length is right."""
    with backend.create("default") as session, session.batch() as batch:
        for _ in range(9):
            batch.append_message(producer=MODEL, payload=b"y" * 7_000, cost=cost())
    path = path_of(backend, session.session_id)
    content = bytearray(path.read_bytes())
    last = max(
        at
        for at in range(0, len(content), 4096)
        if not any(content[at : at + 4]) and content[at + 4 : at + 8] == b"yyyy"
    )
    content[last : last + 512] = b"\x7f" * 512
    path.write_bytes(content)
    with backend.open(session.session_id) as again:
        report = again.recovery
    assert report is not None
    assert not report.complete
    (events,) = (table for table in report.tables if table.table == "events")
    assert (events.doubtful, events.lost) == (1, 0)
