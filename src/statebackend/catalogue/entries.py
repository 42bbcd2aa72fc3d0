"""What the catalogue stores of one session file, read in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from statebackend.catalogue.questions import plan_rules, producers, spend
from statebackend.scanning.connections import TOTALS, Reader
from statebackend.values.recorded import SessionInfo

Row = tuple[Any, ...]

TITLE_LENGTH = 200
"""The most characters of a prompt that make a title."""
_PROMPT_BYTES = 1 << 16
_PROMPT = (
    f"SELECT substr(payload, 1, {_PROMPT_BYTES}) FROM events WHERE sequence = (SELECT "
    "min(sequence) FROM events WHERE producer_category = 'kernel' AND producer_name = 'user')"
)
_EVENT_ID = "SELECT id FROM events WHERE sequence = ?"
_LAST = (
    "SELECT count(*), coalesce(max(sequence), 0), "
    "(SELECT id FROM events ORDER BY sequence DESC LIMIT 1) FROM events"
)
_SINCE = "SELECT count(*) FROM events WHERE sequence > ?"


class Last(NamedTuple):
    """How many events a session has, and its newest one: 0 and None without one.

    A session that was read before is recognized by it.
    """

    events: int
    sequence: int
    event_id: object


class SessionEntry(NamedTuple):
    """One session, as its file was read.

    ``is_continued`` tells that it still holds the last event that was known, and as many before it.
    ``costs`` are its sums by each grouping: the grouping, the key, the sums.
    """

    info: SessionInfo
    is_continued: bool
    totals: Row
    title: str | None
    last: Last
    costs: list[Row]
    plan_rules: list[tuple[str, str, int]]
    producers: list[tuple[str, str, str]]


def entry_reader(known: dict[str, Last]) -> Reader[SessionEntry]:
    """Return what reads a session's entry; *known* has the last events of those read earlier."""

    def read(driver: sqlite3.Connection, info: SessionInfo) -> SessionEntry:
        last = Last(*driver.execute(_LAST).fetchone())
        totals = driver.execute(f"SELECT {TOTALS} FROM cost_ledger").fetchone()
        return SessionEntry(
            info,
            _is_continued(driver, known.get(info.session_id), last),
            totals,
            title(driver.execute(_PROMPT).fetchone()),
            last,
            _costs(driver, info) if totals[0] else [],
            plan_rules.read(driver, info)[1],
            producers.read(driver, info)[1],
        )

    return read


def _costs(driver: sqlite3.Connection, info: SessionInfo) -> list[Row]:
    """Return the sums by each grouping, exactly as a scan adds them up."""
    costs = {by: spend.group_rows(driver, by) for by in spend.GROUPINGS if by != "profile"}
    # The same rows in one group, so only the key is another.
    costs["profile"] = [("" if info.profile is None else info.profile, *costs["session"][0][1:])]
    return [(by, *row) for by, groups in costs.items() for row in groups]


def _is_continued(driver: sqlite3.Connection, known: Last | None, last: Last) -> bool:
    """Return whether events were only appended since the *known* last one."""
    if known is None or last == known:
        return known is not None
    (since,) = driver.execute(_SINCE, (known.sequence,)).fetchone()
    row = driver.execute(_EVENT_ID, (known.sequence,)).fetchone()
    event_id: object = row and row[0]
    return bool(last.events - since == known.events and event_id == known.event_id)


def title(prompt: Sequence[object] | None) -> str | None:
    """Return the beginning of a prompt's text in one line, None if its bytes are not text.

    The text is the payload itself, or the ``text`` or ``content`` of a JSON payload.
    """
    if prompt is None:
        return None
    payload = prompt[0]
    if isinstance(payload, bytes):
        payload = payload.decode(errors="ignore" if len(payload) == _PROMPT_BYTES else "replace")
    text = _text(payload) if isinstance(payload, str) else ""
    return None if "\ufffd" in text else " ".join(text.split())[:TITLE_LENGTH].strip() or None


def _text(payload: str) -> str:
    try:
        form = json.loads(payload)
    except (ValueError, RecursionError):
        return payload
    while isinstance(form, dict | list):
        if isinstance(form, dict):
            form = form.get("text") or form.get("content") or ""
        else:
            form = form[0] if form else ""
    return form if isinstance(form, str) else payload
