"""What the rows of a session must be, checked by SQL: one statement a check, whatever the size.

The driver must return text as bytes. A statement stops at a broken page; the caller reports that
and continues with the next check.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from itertools import chain

from statebackend.values.ids import is_session_id
from statebackend.values.recorded import EventKind, PlanDecision, ProducerCategory, SessionStatus
from statebackend.values.reports import Finding, FindingCode, Recovery, TableRecovery
from statebackend.values.tables import SEQUENCED

RowCheck = Callable[[sqlite3.Connection], Iterator[Finding]]
_Rule = tuple[str, str]
"""What the row holds when it breaks the rule, and the condition that selects it."""

_NAMED_RANGES = 20
_MAX_COUNTER_LEAD = 10**9
"""A counter that is further ahead of its rows was damaged: no session lost so many rows."""


def list_checks(recoveries: Sequence[Recovery]) -> Iterator[RowCheck]:
    """Return every check of the rows; the reports of earlier *recoveries* explain missing rows."""
    yield _check_meta
    for table, rules in RULES.items():
        yield partial(_check_values, table=table, rules=rules)
    yield partial(_check_foreign_keys, recoveries=recoveries)
    for table in SEQUENCED:
        yield partial(_check_counter, table=table)
        yield partial(_check_gaps, table=table, recoveries=recoveries)
    for code, text, query in _RELATIONS:
        yield partial(_check_relation, code=code, text=text, query=query)
    yield partial(_repeat_uncounted, recoveries=recoveries)


def _of_type(types: tuple[str, ...], what: str, column: str) -> list[_Rule]:
    known = ", ".join(repr(name) for name in ("null", *types))
    return [
        ("NULL", f"{column} IS NULL"),
        (f"a value that is not {what}", f"typeof({column}) NOT IN ({known})"),
    ]


def _text(column: str) -> list[_Rule]:
    # Only text with other characters than ASCII is handed to Python. `length` and GLOB stop at NUL.
    broken = (
        f"typeof({column}) = 'text' AND (length({column}) <> length(CAST({column} AS BLOB)) "
        f"OR {column} GLOB '*[^\x01-\x7f]*') AND not_utf8(CAST({column} AS BLOB))"
    )
    return [*_of_type(("text",), "text", column), ("text that is not UTF-8", broken)]


def _id(column: str) -> list[_Rule]:
    return [*_text(column), ("an empty text", f"{column} = ''")]


def _word(words: type[StrEnum], column: str) -> list[_Rule]:
    known = ", ".join(repr(str(word)) for word in words)
    unknown = f"typeof({column}) = 'text' AND {column} NOT IN ({known})"
    return [*_text(column), ("an unknown word", unknown)]


def _time(column: str) -> list[_Rule]:
    # A time is what SQLite's strftime returns unchanged. The modifier of zero seconds makes it
    # refuse days that the calendar does not have.
    normal = f"strftime('%Y-%m-%dT%H:%M:%fZ', {column}, '+0 seconds')"
    other = f"typeof({column}) = 'text' AND ({column} IS NOT {normal} OR {column} < '0001')"
    return [*_text(column), ("a time of another form than the stored one", other)]


def _number(least: int, column: str) -> list[_Rule]:
    below = f"typeof({column}) = 'integer' AND {column} < {least}"
    return [*_of_type(("integer",), "an integer", column), (f"a number below {least}", below)]


def _amount(column: str) -> list[_Rule]:
    return [
        *_of_type(("real", "integer"), "a number", column),
        ("a negative amount", f"typeof({column}) IN ('real', 'integer') AND {column} < 0"),
        ("an infinite amount", f"typeof({column}) = 'real' AND abs({column}) = 9e999"),
    ]


def _optional(rules: Callable[[str], list[_Rule]], column: str) -> list[_Rule]:
    return rules(column)[1:]


_Rules = Callable[[str], list[_Rule]]
_SEQUENCE = partial(_number, 1)
_COUNT = partial(_number, 0)
RULES: dict[str, dict[str, _Rules]] = {
    "events": {
        "sequence": _SEQUENCE,
        "id": _id,
        "timestamp": _time,
        "kind": partial(_word, EventKind),
        "producer_category": partial(_word, ProducerCategory),
        "producer_name": _text,
        "producer_version": _text,
        "schema_version": _text,
        "payload": partial(_of_type, ("blob",), "a BLOB"),
    },
    "session_meta": {
        "session_id": _text,
        "parent_session_id": partial(_optional, _text),
        "profile": _text,
        "status": partial(_word, SessionStatus),
        "depth": _COUNT,
        "started_at": _time,
        "ended_at": partial(_optional, _time),
    },
    "cost_ledger": {
        "sequence": _SEQUENCE,
        "event_sequence": _SEQUENCE,
        "provider_name": _text,
        "model_id": _text,
        "input_tokens": _COUNT,
        "output_tokens": _COUNT,
        "cache_write_tokens": _COUNT,
        "cache_read_tokens": _COUNT,
        "cost_usd": _amount,
    },
    "plan_items": {
        "sequence": _SEQUENCE,
        "event_sequence": _SEQUENCE,
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
        "first_seen_sequence": _SEQUENCE,
    },
}
"""What each column must hold; a test holds the names equal to those of ``values.tables``."""


def _check_values(
    driver: sqlite3.Connection, *, table: str, rules: dict[str, _Rules]
) -> Iterator[Finding]:
    """Count, in one pass over *table*, the rows that break each rule."""
    driver.create_function("not_utf8", 1, _is_not_utf8, deterministic=True)
    names = driver.execute("SELECT name FROM pragma_table_info(?)", (table,))
    present = {name.decode(errors="replace") for (name,) in names}
    conditions = [
        (column, text, condition)
        for column, rules_of in rules.items()
        if column in present
        for text, condition in rules_of(column)
    ]
    counters = ", ".join(f"count(CASE WHEN {condition} THEN 1 END)" for *_, condition in conditions)
    counts = driver.execute(f"SELECT {counters} FROM {table}").fetchone()
    for (column, text, condition), count in zip(conditions, counts, strict=True):
        if count:
            query = f"SELECT rowid FROM {table} WHERE {condition} LIMIT 1"
            first = driver.execute(query).fetchone()  # None if the table and its index differ
            where = f", first row {first[0]}" if first else ""
            yield problem("value", f"{table}.{column}: {_rows(count)} with {text}{where}", count)


def _is_not_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def problem(code: FindingCode, text: str, count: int = 1) -> Finding:
    """Return a finding of severity ``problem``."""
    return Finding(severity="problem", what=code, text=text, count=count)


def _check_meta(driver: sqlite3.Connection) -> Iterator[Finding]:
    """Compare the values of the one row; every open checks that it is there, with the file's id."""
    rows = driver.execute(
        "SELECT CAST(parent_session_id AS BLOB), parent_session_id = session_id, "
        "ended_at IS NOT NULL, status = ? FROM session_meta LIMIT 2",
        (SessionStatus.RUNNING,),
    ).fetchall()
    for parent, is_own_parent, has_end, is_running in rows if len(rows) == 1 else ():
        if parent is not None:
            parent_id = parent.decode(errors="replace")
            if is_session_id(parent_id) is None:
                yield problem("meta", f"parent_session_id {parent_id!r:.60} is not a session id")
        if is_own_parent:
            yield problem("meta", "parent_session_id is the session's own id")
        if is_running and has_end:
            yield problem("meta", "status is running, but ended_at is set")
        if is_running is not None and not is_running and not has_end:
            yield problem("meta", "status is not running, but ended_at is NULL")


def _check_foreign_keys(
    driver: sqlite3.Connection, *, recoveries: Sequence[Recovery]
) -> Iterator[Finding]:
    for name, count, first in driver.execute(
        'SELECT "table", count(*), min(rowid) FROM pragma_foreign_key_check GROUP BY 1 ORDER BY 1'
    ):
        table = name.decode(errors="replace")
        reported = sum(each.orphaned for each in _reports_on(table, recoveries))
        explained = ", as a recovery reported" if count <= reported else ""
        yield Finding(
            severity="note" if explained else "problem",
            what="foreign_key",
            text=f"{table}: {_rows(count)} whose event is missing, first row {first}{explained}",
            count=count,
        )


def _reports_on(table: str, recoveries: Sequence[Recovery]) -> Iterator[TableRecovery]:
    return (each for recovery in recoveries for each in recovery.tables if each.table == table)


_RELATIONS: tuple[tuple[FindingCode, str, str], ...] = (
    (
        "ledger",
        "cost_ledger: {} whose event is not a message",
        """SELECT count(*) FROM cost_ledger l JOIN events e ON e.sequence = l.event_sequence
            WHERE e.kind <> 'message'""",
    ),
    (
        "plan",
        "plan_items: {} whose event is not a plan",
        """SELECT count(*) FROM plan_items p JOIN events e ON e.sequence = p.event_sequence
            WHERE e.kind <> 'plan'""",
    ),
    (
        "producer",
        "producers: {} that no event names",
        """SELECT count(*) FROM producers p WHERE NOT EXISTS
           (SELECT 1 FROM events e WHERE e.producer_category = p.category
               AND e.producer_name = p.name AND e.producer_version = p.version)""",
    ),
    (
        "producer",
        "producers: {} missing that events name",
        """SELECT count(*) FROM
           (SELECT producer_category, producer_name, producer_version FROM events GROUP BY 1, 2, 3
            EXCEPT SELECT category, name, version FROM producers)""",
    ),
    (
        "producer",
        "producers: {} whose first event is another producer's",
        """SELECT count(*) FROM producers p JOIN events e ON e.sequence = p.first_seen_sequence
            WHERE (e.producer_category, e.producer_name, e.producer_version)
               <> (p.category, p.name, p.version)""",
    ),
)
"""What rows of two tables must agree on: code, text, and a query for the number that do not."""


def _check_relation(
    driver: sqlite3.Connection, *, code: FindingCode, text: str, query: str
) -> Iterator[Finding]:
    (count,) = driver.execute(query).fetchone()
    if count:
        yield problem(code, text.format(_rows(count)), count)


def _check_counter(driver: sqlite3.Connection, *, table: str) -> Iterator[Finding]:
    """Compare the counter in ``sqlite_sequence`` with the highest sequence in *table*."""
    number, malformed, counter, highest = driver.execute(
        "SELECT count(*), total(typeof(seq) <> 'integer'), max(seq), "
        f"(SELECT max(sequence) FROM {table}) FROM sqlite_sequence WHERE name = ?",
        (table,),
    ).fetchone()
    if highest is None and not number:
        return
    if number != 1:
        yield problem("sequence", f"{table}: {_rows(number)} in sqlite_sequence instead of one")
    elif malformed:
        yield problem("sequence", f"{table}: the counter in sqlite_sequence is not an integer")
    elif not 0 <= counter - (highest or 0) <= _MAX_COUNTER_LEAD:
        yield problem(
            "sequence",
            f"{table}: the counter in sqlite_sequence is {counter}, but the highest sequence is "
            f"{highest or 0}",
        )


def _check_gaps(
    driver: sqlite3.Connection, *, table: str, recoveries: Sequence[Recovery]
) -> Iterator[Finding]:
    """Find sequences that were given and are not there; a recovery's report may explain them."""
    reported = sorted(chain(*(each.missing for each in _reports_on(table, recoveries))))
    missing, explained = _Ranges(), _Ranges()
    for first, last in driver.execute(_GAPS.format(table), (table, _MAX_COUNTER_LEAD)):
        (explained if _is_covered(first, last, reported) else missing).add(first, last)
    if missing.rows:
        yield problem("gap", f"{table}: {missing}", missing.rows)
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
        unnamed = self._ranges - len(self._named)
        more = f" and {unnamed:,} more ranges" if unnamed else ""
        are = "sequence is" if self.rows == 1 else "sequences are"
        return f"{self.rows:,} {are} missing: {', '.join(self._named)}{more}"


def _is_covered(first: int, last: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Return whether sorted *ranges*, which may adjoin or overlap, hold all of *first* … *last*."""
    for start, end in ranges:
        if start <= first <= end:
            first = end + 1
    return first > last


def _repeat_uncounted(
    _driver: sqlite3.Connection, *, recoveries: Sequence[Recovery]
) -> Iterator[Finding]:
    """Repeat losses that leave no gap, which only the report of a recovery knows."""
    for recovery in recoveries:
        for text in recovery.uncounted:
            yield Finding(severity="note", what="loss", text=f"a recovery reported: {text}")
