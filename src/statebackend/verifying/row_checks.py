"""What the rows of a session must be, checked by SQL: one statement a check, whatever the size.

The driver must give text as bytes. A statement stops at a page that is broken; the caller tells
that and goes on with the next check.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial

from statebackend.values.ids import is_session_id
from statebackend.values.recorded import EventKind, PlanDecision, ProducerCategory, SessionStatus
from statebackend.values.reports import Finding, FindingCode, Recovery

Check = Callable[[sqlite3.Connection], Iterator[Finding]]
_Rule = tuple[str, str]
"""What the row holds when it breaks the rule, and the condition that finds it."""

_NAMED_RANGES = 20
_TOO_HIGH = 10**9
"""No session has so many rows: a counter so far above its rows is not their number."""

SEQUENCED = ("events", "cost_ledger", "plan_items")


def all_of(recoveries: Sequence[Recovery]) -> Iterator[Check]:
    """Return every check of the rows; *recoveries* of the session explain what is missing."""
    yield _meta
    for table, columns in _COLUMNS.items():
        yield partial(_values, table=table, columns=columns)
    yield partial(_references, recoveries=recoveries)
    for table in SEQUENCED:
        yield partial(_counter, table=table)
        yield partial(_gaps, table=table, recoveries=recoveries)
    for what, told, query in _RELATIONS:
        yield partial(_relation, what=what, told=told, query=query)
    yield partial(_uncounted, recoveries=recoveries)


# -- values ----------------------------------------------------------------------------------------


def _class(column: str, *names: str) -> str:
    return f"typeof({column}) NOT IN ({', '.join(repr(name) for name in ('null', *names))})"


def _text(column: str) -> list[_Rule]:
    # What is not ASCII throughout is left to Python; `length` and GLOB stop at a NUL.
    broken = (
        f"typeof({column}) = 'text' AND (length({column}) <> length(CAST({column} AS BLOB)) "
        f"OR {column} GLOB '*[^\x01-\x7f]*') AND not_utf8(CAST({column} AS BLOB))"
    )
    return [
        ("NULL", f"{column} IS NULL"),
        ("no text", _class(column, "text")),
        ("text that is not UTF-8", broken),
    ]


def _id(column: str) -> list[_Rule]:
    return [*_text(column), ("an empty text", f"{column} = ''")]


def _word(words: type[StrEnum], column: str) -> list[_Rule]:
    known = ", ".join(repr(str(word)) for word in words)
    unknown = f"typeof({column}) = 'text' AND {column} NOT IN ({known})"
    return [*_text(column), ("an unknown word", unknown)]


def _time(column: str) -> list[_Rule]:
    # Only what SQLite writes again as it is stored is a time; a modifier, if only of nothing, makes
    # it go by the calendar.
    again = f"strftime('%Y-%m-%dT%H:%M:%fZ', {column}, '+0 seconds')"
    other = f"typeof({column}) = 'text' AND ({column} IS NOT {again} OR {column} < '0001')"
    return [*_text(column), ("no time of the stored form", other)]


def _number(least: int, column: str) -> list[_Rule]:
    return [
        ("NULL", f"{column} IS NULL"),
        ("no integer", _class(column, "integer")),
        (f"a number below {least}", f"typeof({column}) = 'integer' AND {column} < {least}"),
    ]


def _amount(column: str) -> list[_Rule]:
    return [
        ("NULL", f"{column} IS NULL"),
        ("no number", _class(column, "real", "integer")),
        ("a negative amount", f"typeof({column}) IN ('real', 'integer') AND {column} < 0"),
        ("an infinite amount", f"typeof({column}) = 'real' AND abs({column}) = 9e999"),
    ]


def _blob(column: str) -> list[_Rule]:
    return [("NULL", f"{column} IS NULL"), ("no bytes", _class(column, "blob"))]


def _optional(rules: Callable[[str], list[_Rule]], column: str) -> list[_Rule]:
    return rules(column)[1:]


_Column = Callable[[str], list[_Rule]]
_COLUMNS: dict[str, dict[str, _Column]] = {
    "events": {
        "sequence": partial(_number, 1),
        "id": _id,
        "timestamp": _time,
        "kind": partial(_word, EventKind),
        "producer_category": partial(_word, ProducerCategory),
        "producer_name": _text,
        "producer_version": _text,
        "schema_version": _text,
        "payload": _blob,
    },
    "session_meta": {
        "session_id": _text,
        "parent_session_id": partial(_optional, _text),
        "profile": _text,
        "status": partial(_word, SessionStatus),
        "depth": partial(_number, 0),
        "started_at": _time,
        "ended_at": partial(_optional, _time),
    },
    "cost_ledger": {
        "sequence": partial(_number, 1),
        "event_sequence": partial(_number, 1),
        "provider_name": _text,
        "model_id": _text,
        "input_tokens": partial(_number, 0),
        "output_tokens": partial(_number, 0),
        "cache_write_tokens": partial(_number, 0),
        "cache_read_tokens": partial(_number, 0),
        "cost_usd": _amount,
    },
    "plan_items": {
        "sequence": partial(_number, 1),
        "event_sequence": partial(_number, 1),
        "turn_id": _text,
        "tool_call_id": _text,
        "provider_name": _text,
        "tool_name": _text,
        "decision": partial(_word, PlanDecision),
        "decided_by": _text,
    },
    "producers": {
        "category": partial(_word, ProducerCategory),
        "name": _text,
        "version": _text,
        "first_seen_sequence": partial(_number, 1),
    },
}


def _values(
    driver: sqlite3.Connection, *, table: str, columns: dict[str, _Column]
) -> Iterator[Finding]:
    """Count, in one pass over *table*, the rows that break each rule."""
    driver.create_function("not_utf8", 1, _not_utf8, deterministic=True)
    present = {name.decode(errors="replace") for (name,) in driver.execute(_COLUMN_NAMES, (table,))}
    rules = [
        (column, told, condition)
        for column, rules_of in columns.items()
        if column in present
        for told, condition in rules_of(column)
    ]
    counts = ", ".join(f"count(CASE WHEN {condition} THEN 1 END)" for *_, condition in rules)
    broken = driver.execute(f"SELECT {counts} FROM {table}").fetchone()
    for (column, told, condition), count in zip(rules, broken, strict=True):
        if count:
            query = f"SELECT rowid FROM {table} WHERE {condition} LIMIT 1"
            first = driver.execute(query).fetchone()  # None where an index and its table differ
            where = f", first row {first[0]}" if first else ""
            yield Finding(
                severity="problem",
                what="value",
                text=f"{table}.{column}: {rows(count)} with {told}{where}",
                count=count,
            )


_COLUMN_NAMES = "SELECT name FROM pragma_table_info(?)"


def _not_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def rows(count: int) -> str:
    """Return a number of rows in words."""
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


# -- session_meta ----------------------------------------------------------------------------------


def _meta(driver: sqlite3.Connection) -> Iterator[Finding]:
    """Look at the one row; that there is one, of the file's name, is checked at every open."""
    found = driver.execute(
        "SELECT CAST(parent_session_id AS BLOB), parent_session_id = session_id, "
        "ended_at IS NOT NULL, status = ? FROM session_meta LIMIT 2",
        (SessionStatus.RUNNING,),
    ).fetchall()
    for parent, own, ended, running in found if len(found) == 1 else ():
        if parent is not None and is_session_id(parent.decode(errors="replace")) is None:
            shown = parent.decode(errors="replace")
            yield _odd_meta(f"its parent {shown!r:.60} is no session id")
        if own:
            yield _odd_meta("it is its own parent")
        if running and ended:
            yield _odd_meta("it says running, and has an end")
        if running is not None and not running and not ended:
            yield _odd_meta("it does not say running, and has no end")


def _odd_meta(text: str) -> Finding:
    return Finding(severity="problem", what="meta", text=text)


# -- what refers to what ---------------------------------------------------------------------------


def _references(driver: sqlite3.Connection, *, recoveries: Sequence[Recovery]) -> Iterator[Finding]:
    query = (
        'SELECT "table", count(*), min(rowid) FROM pragma_foreign_key_check GROUP BY 1 ORDER BY 1'
    )
    for name, count, first in driver.execute(query):
        table = name.decode(errors="replace")
        told = sum(one.orphaned for each in recoveries for one in each.tables if one.table == table)
        explained = ", as a recovery reported" if count <= told else ""
        yield Finding(
            severity="note" if explained else "problem",
            what="foreign_key",
            text=f"{table}: {rows(count)} of an event that is not there, first row {first}"
            f"{explained}",
            count=count,
        )


_RELATIONS: tuple[tuple[FindingCode, str, str], ...] = (
    (
        "ledger",
        "cost_ledger: {} of an event that is no message",
        (
            "SELECT count(*) FROM cost_ledger l JOIN events e ON e.sequence = l.event_sequence "
            "WHERE e.kind <> 'message'"
        ),
    ),
    (
        "plan",
        "plan_items: {} of an event that is no plan",
        (
            "SELECT count(*) FROM plan_items p JOIN events e ON e.sequence = p.event_sequence "
            "WHERE e.kind <> 'plan'"
        ),
    ),
    (
        "producer",
        "producers: {} that no event names",
        (
            "SELECT count(*) FROM producers p WHERE NOT EXISTS (SELECT 1 FROM events e WHERE "
            "e.producer_category = p.category AND e.producer_name = p.name "
            "AND e.producer_version = p.version)"
        ),
    ),
    (
        "producer",
        "producers: {} missing for producers of events",
        (
            "SELECT count(*) FROM (SELECT producer_category, producer_name, producer_version "
            "FROM events GROUP BY 1, 2, 3 EXCEPT SELECT category, name, version FROM producers)"
        ),
    ),
    (
        "producer",
        "producers: {} whose first event is another producer's",
        (
            "SELECT count(*) FROM producers p JOIN events e ON e.sequence = p.first_seen_sequence "
            "WHERE (e.producer_category, e.producer_name, e.producer_version) "
            "<> (p.category, p.name, p.version)"
        ),
    ),
)


def _relation(
    driver: sqlite3.Connection, *, what: FindingCode, told: str, query: str
) -> Iterator[Finding]:
    (count,) = driver.execute(query).fetchone()
    if count:
        yield Finding(severity="problem", what=what, text=told.format(rows(count)), count=count)


# -- sequences -------------------------------------------------------------------------------------


def _counter(driver: sqlite3.Connection, *, table: str) -> Iterator[Finding]:
    """Compare the highest number that SQLite remembers with the highest that is there."""
    number, odd, counted, highest = driver.execute(_COUNTER.format(table), (table,)).fetchone()
    problem = None
    if highest is None and not number:
        return
    if number != 1:
        problem = f"has {rows(number)} in sqlite_sequence, must have one"
    elif odd:
        problem = "its highest number in sqlite_sequence is no number"
    elif counted < (highest or 0):
        problem = f"its highest number is remembered as {counted}, but is {highest}"
    elif counted - (highest or 0) > _TOO_HIGH:
        problem = f"its highest number is remembered as {counted}, but is {highest or 0}"
    if problem:
        yield Finding(severity="problem", what="sequence", text=f"{table}: {problem}")


_COUNTER = (
    "SELECT count(*), total(typeof(seq) <> 'integer'), max(seq), (SELECT max(sequence) FROM {0}) "
    "FROM sqlite_sequence WHERE name = ?"
)


def _gaps(
    driver: sqlite3.Connection, *, table: str, recoveries: Sequence[Recovery]
) -> Iterator[Finding]:
    """Tell which sequences were given and are not there; a recovery's report may explain them."""
    told = [
        known
        for recovery in recoveries
        for one in recovery.tables
        if one.table == table
        for known in one.missing
    ]
    missing, explained = _Ranges(), _Ranges()
    for first, last in driver.execute(_GAPS.format(table), (table, _TOO_HIGH)):
        (explained if _covered(first, last, told) else missing).add(first, last)
    if missing.rows:
        text = f"{table}: {missing}"
        yield Finding(severity="problem", what="gap", text=text, count=missing.rows)
    if explained.rows:
        text = f"{table}: {explained}, as a recovery reported"
        yield Finding(severity="note", what="gap", text=text, count=explained.rows)


# A look-up for each row in the table's own order: nothing is sorted, nothing collected.
_GAPS = """
SELECT 1, min(sequence) - 1 FROM {0} WHERE sequence > 0 HAVING min(sequence) > 1
UNION ALL
SELECT a.sequence + 1, (SELECT min(sequence) - 1 FROM {0} WHERE sequence > a.sequence)
  FROM {0} a
 WHERE a.sequence > 0 AND a.sequence < (SELECT max(sequence) FROM {0})
   AND NOT EXISTS (SELECT 1 FROM {0} b WHERE b.sequence = a.sequence + 1)
UNION ALL
SELECT highest + 1, seq
  FROM (SELECT seq, max(0, coalesce((SELECT max(sequence) FROM {0}), 0)) AS highest
          FROM sqlite_sequence WHERE name = ? AND typeof(seq) = 'integer')
 WHERE seq > highest AND seq - highest <= ?
"""


def _uncounted(_driver: sqlite3.Connection, *, recoveries: Sequence[Recovery]) -> Iterator[Finding]:
    """Tell of losses that leave no gap, which only a report knows."""
    for recovery in recoveries:
        for text in recovery.uncounted:
            yield Finding(severity="note", what="loss", text=f"a recovery reported: {text}")


class _Ranges:
    """Ranges of sequences: how many, and the first of them by name."""

    def __init__(self) -> None:
        self.rows = 0
        self._ranges = 0
        self._named: list[str] = []

    def add(self, first: int, last: int) -> None:
        self.rows += last - first + 1
        self._ranges += 1
        if len(self._named) < _NAMED_RANGES:
            self._named.append(str(first) if first == last else f"{first}-{last}")

    def __str__(self) -> str:
        left = self._ranges - len(self._named)
        more = f" and {left:,} more ranges" if left else ""
        are = "sequence is" if self.rows == 1 else "sequences are"
        return f"{self.rows:,} {are} missing: {', '.join(self._named)}{more}"


def _covered(first: int, last: int, told: Sequence[tuple[int, int]]) -> bool:
    """Tell whether ranges that lie side by side explain the whole of *first* … *last*."""
    for start, end in sorted(told):
        if start <= first <= end:
            first = end + 1
    return first > last
