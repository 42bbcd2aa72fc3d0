"""Pages of the listing and of the events, put together, are the whole."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statebackend import EventKind, Session, SessionStatus, StateBackend
from tests.crash.samples import MODEL, append, cost, item, new_session

START = datetime(2026, 1, 1, tzinfo=UTC)
STATUSES = [SessionStatus.RUNNING, SessionStatus.COMPLETED, SessionStatus.FAILED]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StateBackend:
    """Return 40 sessions: three a millisecond, three statuses, two profiles, some with parents."""
    backend = StateBackend(tmp_path_factory.mktemp("paging"))
    parent = None
    for number in range(40):
        with backend.create(
            f"p{number % 2}",
            started_at=START + timedelta(milliseconds=number // 3),
            parent_session_id=parent if number % 4 else None,
        ) as session:
            if (status := STATUSES[number % 3]) is not SessionStatus.RUNNING:
                session.set_status(status)
        parent = session.session_id
    return backend


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Return a session of 700 events of three kinds."""
    backend = StateBackend(tmp_path_factory.mktemp("events"))
    session = backend.create("default")
    with session.batch() as batch:
        for number in range(700):
            if number % 7 == 0:
                batch.append_plan(producer=MODEL, payload=b"{}", items=[item()])
            elif number % 3 == 0:
                batch.append(EventKind.TOOL_CALL, producer=MODEL, payload=b"{}", schema_version="1")
            else:
                batch.append_message(producer=MODEL, payload=b"x" * 20, cost=cost())
    yield session
    session.close()


@given(
    st.integers(1, 45),
    st.none() | st.sampled_from(STATUSES),
    st.none() | st.sampled_from(["p0", "p1"]),
    st.booleans(),
)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_pages_of_the_listing_are_the_whole(
    folder: StateBackend, size: int, status: SessionStatus | None, profile: str | None, roots: bool
) -> None:
    """With any size of page and any filter: every session once, newest first."""
    whole = folder.list(limit=None, status=status, profile=profile, roots=roots)
    pages: list[object] = []
    after = None
    while page := folder.list(limit=size, after=after, status=status, profile=profile, roots=roots):
        assert len(page) <= size
        pages += page
        after = page[-1].session_id
    assert pages == whole
    assert [one.session_id for one in whole] == sorted(
        {one.session_id for one in whole}, reverse=True
    )


@given(st.integers(-1, 15), st.integers(-1, 15))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_time_ranges_split_the_whole(folder: StateBackend, one: int, other: int) -> None:
    """Before, within and after two moments are together all, and none twice."""
    first, second = (START + timedelta(milliseconds=n) for n in sorted([one, other]))
    before = folder.list(limit=None, until=first)
    within = folder.list(limit=None, since=first, until=second)
    after = folder.list(limit=None, since=second)
    assert after + within + before == folder.list(limit=None)


def test_pages_stay_apart_while_sessions_are_created(backend: StateBackend) -> None:
    """A session made between two pages is newer than both, so no older one comes twice."""
    made = [new_session(backend) for _ in range(9)]
    seen: list[str] = []
    after = None
    while page := backend.list(limit=2, after=after):
        seen += [one.session_id for one in page]
        after = seen[-1]
        new_session(backend)
    assert sorted(seen) == made


kinds = st.none() | st.sets(
    st.sampled_from([EventKind.MESSAGE, EventKind.PLAN, EventKind.TOOL_CALL, EventKind.APPLY])
)


@given(st.integers(1, 800), kinds, st.integers(0, 710))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_pages_of_events_are_the_whole(
    session: Session, size: int, wanted: set[EventKind] | None, after: int
) -> None:
    """From any start, of any kinds, in pages of any size; with and without payloads."""
    whole = [
        event
        for event in session.events()
        if event.sequence > after and (wanted is None or event.kind in wanted)
    ]
    assert list(session.events(after_sequence=after, kinds=wanted)) == whole
    headers = session.events(after_sequence=after, kinds=wanted, payloads=False)
    assert [one.sequence for one in headers] == [event.sequence for event in whole]
    assert list(session.events(after_sequence=after, kinds=wanted, last=size)) == whole[-size:]
    pages = []
    while page := list(session.events(after_sequence=after, kinds=wanted, limit=size)):
        pages += page
        after = page[-1].sequence
    assert pages == whole


def test_pages_go_on_over_an_append_in_between(backend: StateBackend) -> None:
    """What is appended between two pages comes on a later one, and nothing twice."""
    with backend.open(new_session(backend, 10)) as session:
        numbers: list[int] = []
        for _ in range(15):
            page = session.events(after_sequence=len(numbers), limit=2)
            numbers += [event.sequence for event in page]
            append(session)
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 20
