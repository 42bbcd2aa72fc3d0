"""Kinds and producers of events that differ in the row and in an index."""

from __future__ import annotations

import pytest

from statebackend import EventKind, Producer, StateBackend
from tests.damaging import NOISE, layout_of, recover, replace_bytes, table_report
from tests.session_files import MODEL, cost, damage_index, full, path_of, root_page, sql


def test_a_producer_that_is_not_utf8_is_corrected(backend: StateBackend) -> None:
    """No other producer is added."""
    session_id = full(backend)
    path = path_of(backend, session_id)
    leaf = (root_page(path, "events") - 1) * 4096
    content = path.read_bytes()
    at = content.index(b"shell", leaf, leaf + 4096)
    path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    damage_index(path)
    recovery = recover(backend, session_id)
    assert table_report(recovery, "events").repaired == 1
    assert sql(path, "SELECT sequence FROM events WHERE producer_name = '\ufffdhell'") == []
    assert not any("U+FFFD" in note for note in recovery.notes)
    assert "derived" not in table_report(recovery, "producers").routes


SHELL = Producer("tool", "shell", "2.1.0")


@pytest.fixture
def session_id(backend: StateBackend) -> str:
    """Return a session of 40 events; the texts of a row follow each other."""
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
def test_a_damaged_column_is_corrected(
    backend: StateBackend, session_id: str, old: bytes, new: bytes
) -> None:
    """The repair is noted, and no producer is added."""
    with backend.read(session_id) as view:
        events, producers = list(view.events()), view.producers()
    replace_bytes(path_of(backend, session_id), old, new)
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
def test_an_unknown_kind_is_the_wrong_one(
    backend: StateBackend, session_id: str, old: bytes, new: bytes
) -> None:
    """A damaged entry of the index changes no row; a damaged kind in a row is corrected."""
    path = path_of(backend, session_id)
    with backend.read(session_id) as view:
        events = list(view.events())
    replace_bytes(path, old, new, 0 if new.startswith(b"x") else 3)
    with backend.open(session_id) as session:
        assert list(session.events()) == events


def test_two_known_producers_are_doubtful(backend: StateBackend, session_id: str) -> None:
    """The row's producer is kept, and the event counts as doubtful."""
    with backend.open(session_id) as session:
        newer = session.append(
            EventKind.TOOL_CALL,
            producer=Producer("tool", "shell", "2.1.1"),
            payload=b"",
            schema_version="1",
        )
    replace_bytes(
        path_of(backend, session_id), b"Ztool_calltoolshell2.1.0", b"Ztool_calltoolshell2.1.1"
    )
    with backend.open(session_id) as session:
        report = session.recovery
        same = [event for event in session.events() if event.producer == newer.producer]
    assert report is not None
    assert not report.complete
    assert {table.table: table.doubtful for table in report.tables}["events"] == 1
    assert len(same) == 2
    assert any("as the index has it" in note for note in report.notes)


def test_a_producer_whose_row_is_lost_is_known(backend: StateBackend, session_id: str) -> None:
    """By its other events. A damaged sequence in the index changes no row."""
    path = path_of(backend, session_id)
    with backend.read(session_id) as view:
        events = list(view.events())
    replace_bytes(path, b"modelanthropic2.1.0\x03", b"modelanthropic2.1.0\x04", 0)
    replace_bytes(path, b"toolshell2.1.0\x04", b"toolshell2.1.0\x7f", 0)
    _name, start, _end = layout_of(path).rows["producers"]["tool", "shell", "2.1.0"].own[0]
    content = bytearray(path.read_bytes())
    content[start : start + 8] = NOISE[:8]
    path.write_bytes(content)
    with backend.open(session_id) as session:
        assert list(session.events()) == events
        assert session.recovery is not None
        assert not session.recovery.complete


def test_a_text_with_nul_is_doubtful(backend: StateBackend, session_id: str) -> None:
    """No text that the package stores holds NUL."""
    path = path_of(backend, session_id)
    replace_bytes(path, b"anthropic", bytes(9), -1 + path.read_bytes().count(b"anthropic"))
    replace_bytes(path, b"Ztool_call", b"Zuool_call")
    with backend.open(session_id) as session:
        report = session.recovery
    assert report is not None
    assert sum(table.doubtful for table in report.tables) >= 1
    assert any("with NUL" in note for note in report.notes)
