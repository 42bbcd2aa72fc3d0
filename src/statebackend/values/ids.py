"""Session ids: canonical upper-case ULIDs, so that names sort by time (SB-02)."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from statebackend.errors import InvalidValue

if TYPE_CHECKING:
    from ulid import ULIDGenerator

_CANONICAL = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
is_session_id = _CANONICAL.fullmatch
_NOT_RANDOM = 0xF << 76 | 3 << 62
_VERSION_7 = 7 << 76 | 2 << 62
_EPOCH = datetime.fromtimestamp(0, UTC)


def check_session_id(value: str, field: str = "session_id") -> str:
    """Return *value* if it is a canonical ULID, else raise :class:`InvalidValue`."""
    if not isinstance(value, str) or is_session_id(value) is None:
        raise InvalidValue(
            field, f"{value!r} is not a session id (a ULID: 26 upper-case characters)"
        )
    return value


def new_session_id(started_at: datetime) -> str:
    """Make an id whose time is *started_at*; ids made within one millisecond ascend."""
    return str(_generator().generate(_milliseconds(started_at)))


def session_id_from(started_at: datetime, randomness: bytes) -> str:
    """Make the id with the time *started_at* and these 10 bytes in place of random ones."""
    from ulid import ULID

    return str(ULID.from_bytes(_milliseconds(started_at).to_bytes(6, "big") + randomness))


def session_time(session_id: str) -> datetime:
    """Return the time in a session id, aware UTC."""
    from ulid import ULID

    return datetime.fromtimestamp(ULID.from_str(session_id).milliseconds / 1000, UTC)


def time_prefix(moment: datetime) -> str:
    """Return the first ten characters of every id made in the millisecond of *moment*.

    No id is older than 1970, so an earlier moment counts as its beginning.
    """
    return session_id_from(max(moment, _EPOCH), bytes(10))[:10]


def new_event_id() -> str:
    """Make a unique event id: a UUID of version 7 (RFC 9562).

    It begins with the time, so that new ids of a session are neighbours in the index of ids.
    """
    return event_id_from(time.time_ns() // 1_000_000, os.urandom(10))


def event_id_from(milliseconds: int, randomness: bytes) -> str:
    """Make the id of this time since 1970 with these 10 bytes, of which 6 bits are not used."""
    number = milliseconds << 80 | int.from_bytes(randomness, "big")
    digits = f"{number & ~_NOT_RANDOM | _VERSION_7:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _milliseconds(moment: datetime) -> int:
    milliseconds = round(moment.timestamp() * 1000)
    if not 0 <= milliseconds < 1 << 48:
        raise InvalidValue("started_at", "is outside the times that a ULID can hold (from 1970)")
    return milliseconds


@cache
def _generator() -> ULIDGenerator:
    from ulid import ULIDGenerator

    return ULIDGenerator()


# A forked child would otherwise make the same ids as its parent.
os.register_at_fork(after_in_child=_generator.cache_clear)
