"""Session ids and event ids."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

import pytest

from statebackend import InvalidValue
from statebackend.values import ids
from tests.session_files import START


def test_a_new_id_carries_its_time() -> None:
    """The time in an id is the one it was made for, to the millisecond."""
    session_id = ids.new_session_id(START)
    assert ids.check_session_id(session_id) == session_id
    assert ids.session_time(session_id) == START


def test_ids_of_one_millisecond_ascend() -> None:
    """A thousand ids of one moment are in order and distinct."""
    made = [ids.new_session_id(START) for _ in range(1000)]
    assert made == sorted(set(made))


def test_an_earlier_time_makes_a_smaller_id() -> None:
    """Importing old sessions after new ones does not upset the order."""
    now, then = ids.new_session_id(START), ids.new_session_id(START - timedelta(days=1))
    assert then < now


def test_given_randomness_makes_the_same_id() -> None:
    """An id can be derived from what it stands for."""
    made = ids.session_id_from(START, bytes(range(10)))
    assert made == ids.session_id_from(START, bytes(range(10)))
    assert made != ids.session_id_from(START, bytes(10))


def test_a_prefix_bounds_the_ids_of_its_moment() -> None:
    """The lowest and the highest id of a millisecond begin with it."""
    prefix = ids.time_prefix(START)
    for randomness in (bytes(10), b"\xff" * 10):
        assert ids.session_id_from(START, randomness).startswith(prefix)
    assert ids.time_prefix(START + timedelta(milliseconds=1)) > prefix


def test_a_prefix_of_a_time_before_all_ids_is_the_lowest() -> None:
    """Nothing was made before 1970."""
    assert ids.time_prefix(datetime(1, 1, 1, tzinfo=UTC)) == "0" * 10


@pytest.mark.parametrize(
    "moment", [datetime(1969, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]
)
def test_no_id_for_a_time_before_1970(moment: datetime) -> None:
    """An id cannot hold it."""
    with pytest.raises(InvalidValue) as caught:
        ids.new_session_id(moment)
    assert caught.value.field == "started_at"


def test_the_field_of_a_bad_id_is_the_callers() -> None:
    """The error names the argument that was wrong."""
    with pytest.raises(InvalidValue) as caught:
        ids.check_session_id("nope", "parent_session_id")
    assert caught.value.field == "parent_session_id"


def test_event_ids_are_distinct() -> None:
    """Each is new, and a UUID of version 7."""
    made = {ids.new_event_id() for _ in range(1000)}
    assert len(made) == 1000
    for one in made:
        parsed = UUID(one)
        assert (str(parsed), parsed.version, parsed.variant) == (one, 7, RFC_4122)


def test_an_event_id_begins_with_the_time() -> None:
    """Of the 80 random bits, 74 are left; those made later sort later."""
    before = time.time_ns() // 1_000_000
    made = UUID(ids.new_event_id()).int >> 80
    assert before <= made <= time.time_ns() // 1_000_000
    assert ids.event_id_from(0, b"\xff" * 10) == "00000000-0000-7fff-bfff-ffffffffffff"
    assert ids.event_id_from(1, bytes(10)) == "00000000-0001-7000-8000-000000000000"


def test_a_forked_child_makes_other_ids() -> None:
    """Parent and child do not go on from the same last id."""
    ids.new_session_id(START)
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        os.write(sending, ids.new_session_id(START).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(receiving, 26).decode()
    os.close(receiving)
    os.close(sending)
    mine = ids.new_session_id(START)
    assert theirs != mine
    assert len(theirs) == 26
