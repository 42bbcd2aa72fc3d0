"""SB-20 to SB-22: the one row of session_meta, its statuses, and the summary."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from statebackend import InvalidTransition, InvalidValue, SessionStatus, StateBackend
from tests.session_files import (
    MODEL,
    START,
    UNKNOWN_ID,
    call,
    cost,
    fill,
    full,
    new,
    path_of,
    sql,
)

RUNNING, *TERMINAL = SessionStatus
REOPENABLE = {SessionStatus.COMPLETED, SessionStatus.CANCELLED}


def row(backend: StateBackend, session_id: str) -> tuple[Any, ...]:
    """Return the one row of session_meta as stored."""
    (found,) = sql(path_of(backend, session_id), "SELECT * FROM session_meta")
    return found


@pytest.mark.conformance("SB-20")
def test_sb20_the_statuses_are_exactly_these() -> None:
    """The words are the specification's."""
    assert [status.value for status in SessionStatus] == [
        "running",
        "completed",
        "error_max_turns",
        "error_max_budget_usd",
        "error_max_wall_clock",
        "cancelled",
        "failed",
    ]


@pytest.mark.conformance("SB-20")
def test_sb20_one_row_updated_in_place(backend: StateBackend) -> None:
    """Whatever happens to the status, there is one row, and nothing else in it changes."""
    session_id = new(backend, started_at=START, profile="p", depth=2, parent_session_id=UNKNOWN_ID)
    with backend.open(session_id) as session:
        for status in ("completed", "running", "failed"):
            session.set_status(status, ended_at=None if status == "running" else START)
    stored = (UNKNOWN_ID, "p", "failed", 2, "2026-03-01T12:00:00.000Z", "2026-03-01T12:00:00.000Z")
    assert row(backend, session_id) == (session_id, *stored)


@pytest.mark.conformance("SB-20")
@pytest.mark.parametrize("status", ["", "RUNNING", "done", "x' OR 1=1 --", None])
def test_sb20_any_other_word_is_refused(backend: StateBackend, status: str) -> None:
    """A status outside the closed set changes nothing."""
    with backend.create("default") as session:
        with pytest.raises(InvalidValue):
            session.set_status(status)
        assert session.info.status == "running"


@pytest.mark.conformance("SB-21")
@pytest.mark.parametrize("status", TERMINAL)
def test_sb21_a_terminal_status_sets_the_end(backend: StateBackend, status: SessionStatus) -> None:
    """A running session can end in each terminal status, at the time given."""
    with backend.create("default") as session:
        session.set_status(status, ended_at=START)
        assert (session.info.status, session.info.ended_at) == (status, START)


@pytest.mark.conformance("SB-21")
@pytest.mark.parametrize("status", TERMINAL)
def test_sb21_only_completed_and_cancelled_reopen(
    backend: StateBackend, status: SessionStatus
) -> None:
    """Re-opening clears the end and makes appends possible; the other statuses are final."""
    with backend.create("default") as session:
        session.set_status(status)
        if status in REOPENABLE:
            session.set_status(RUNNING)
            assert (session.info.status, session.info.ended_at) == (RUNNING, None)
            call(session)
        else:
            with pytest.raises(InvalidTransition) as caught:
                session.set_status(RUNNING)
            assert caught.value.status == status
            assert session.info.ended_at is not None


@pytest.mark.conformance("SB-21")
@pytest.mark.parametrize("before", TERMINAL)
@pytest.mark.parametrize("after", TERMINAL)
def test_sb21_no_terminal_status_becomes_another(
    backend: StateBackend, before: SessionStatus, after: SessionStatus
) -> None:
    """An ended session keeps its status and its end, also against the same status again."""
    with backend.create("default") as session:
        session.set_status(before, ended_at=START)
        with pytest.raises(InvalidTransition):
            session.set_status(after, ended_at=START + timedelta(days=1))
        assert (session.info.status, session.info.ended_at) == (before, START)


@pytest.mark.conformance("SB-21")
def test_sb21_running_does_not_become_running(backend: StateBackend) -> None:
    """A running session cannot be re-opened, and a running one has no end."""
    with backend.create("default") as session:
        with pytest.raises(InvalidTransition):
            session.set_status(RUNNING)
        session.set_status("completed")
        with pytest.raises(InvalidValue):
            session.set_status(RUNNING, ended_at=START)


@pytest.mark.conformance("SB-21")
def test_sb21_nothing_is_appended_to_an_ended_session(backend: StateBackend) -> None:
    """Every append, a batch too, is refused until it is re-opened, also by a new handle."""
    session_id = full(backend)
    with backend.open(session_id) as session:
        with pytest.raises(InvalidTransition):
            call(session)
        with pytest.raises(InvalidTransition), session.batch():
            pass
        session.set_status("running")
        assert call(session) == 6


@pytest.mark.conformance("SB-22")
def test_sb22_the_summary_mirrors_the_row(backend: StateBackend) -> None:
    """The seven columns come back as values, in the listing, a view and the writer alike."""
    session_id = new(backend, started_at=START, profile="p", depth=2, parent_session_id=UNKNOWN_ID)
    with backend.read(session_id) as view:
        info = view.info
    (listed,) = backend.list()
    assert listed == info
    assert (info.session_id, info.parent_session_id, info.profile) == (session_id, UNKNOWN_ID, "p")
    assert (info.status, info.depth, info.started_at) == ("running", 2, START)
    assert (info.ended_at, info.cost_usd, info.live) == (None, None, False)


@pytest.mark.conformance("SB-22")
def test_sb22_the_cost_is_summed_at_read_time(backend: StateBackend) -> None:
    """The sum is None without a row, 0.0 for free turns, and follows the ledger."""
    with backend.create("default") as session:
        seen = [session.info.cost_usd]
        for cost_usd in (0.0, 0.25, 0.5):
            session.append_message(producer=MODEL, payload=b"", cost=cost(cost_usd))
            seen.append(session.info.cost_usd)
        assert seen == [None, 0.0, 0.25, 0.75]
        assert session.info.unpriced_rows == 1


@pytest.mark.conformance("SB-22")
def test_sb22_no_column_holds_the_sum(backend: StateBackend) -> None:
    """A row that another program adds to the ledger shows at once, in every way to read it."""
    session_id = full(backend)
    sql(
        path_of(backend, session_id),
        "INSERT INTO cost_ledger SELECT 99, 2, 'p', 'm', 1, 1, 0, 0, 4.0",
    )
    (listed,) = backend.scan()
    with backend.read(session_id) as view:
        assert view.info.cost_usd == view.cost_totals().cost_usd == 4.25
    assert getattr(listed, "cost_usd", None) == 4.25


@pytest.mark.conformance("SB-22")
def test_sb22_a_live_session_is_marked(backend: StateBackend) -> None:
    """While a writer has the session open, every summary of it says so."""
    with backend.create("default") as session:
        fill(session)
        (listed,) = backend.list()
        with backend.read(session.session_id) as view:
            assert (view.info.live, session.info.live) == (True, True)
        assert getattr(listed, "live", None) is True
