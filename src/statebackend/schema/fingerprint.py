"""The structure of a database as a set of facts, to compare with that of another.

Two schemas are the same when their facts are: columns in their order, keys, references with their
actions, indexes with the order and collation of their keys, and clauses that only the statement's
text shows. Wording, comments and the order of objects do not count.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Any

Fact = tuple[Any, ...]
"""An object's name, what the fact is about, and what it says."""
Fingerprint = frozenset[Fact]

_OF_SQLITE = "name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"


def of_connection(driver: sqlite3.Connection) -> Fingerprint:
    """Return the facts about the main database of *driver*."""
    objects = driver.execute(
        f"SELECT type, name, tbl_name, sql FROM main.sqlite_schema WHERE {_OF_SQLITE}"
    ).fetchall()
    facts: set[Fact] = set()
    for kind, name, table, sql in objects:
        facts.add((name, "is", kind, table))
        if kind == "table":
            facts |= set(_of_table(driver, name, sql))
        elif kind != "index" or _needs_text(driver, name):
            facts.add((name, "text", *(text for _kind, text in _tokens(sql))))
    return frozenset(facts)


def differences(expected: Fingerprint, actual: Fingerprint) -> list[str]:
    """Return, sorted, a line for each fact that only one of the two has."""
    facts = [(fact, "missing") for fact in expected - actual]
    facts += [(fact, "unexpected") for fact in actual - expected]
    return sorted(f"{fact[0]}: {word} {' '.join(map(str, fact[1:]))}" for fact, word in facts)


def _of_table(driver: sqlite3.Connection, name: str, sql: str) -> Iterator[Fact]:
    options = "SELECT type, ncol, wr, strict FROM pragma_table_list WHERE schema='main' AND name=?"
    yield (name, "table", *driver.execute(options, (name,)).fetchone())
    for column in driver.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)):
        yield (name, "column", *column)
    yield from _references(driver, name)
    yield from _indexes(driver, name)
    yield from _clauses(name, sql)


def _references(driver: sqlite3.Connection, table: str) -> Iterator[Fact]:
    references: dict[int, list[Any]] = {}
    rows = driver.execute(
        'SELECT id, "table", on_update, on_delete, "match", "from", "to" '
        "FROM pragma_foreign_key_list(?) ORDER BY id, seq",
        (table,),
    )
    for number, *target, from_column, to_column in rows:
        references.setdefault(number, [*target]).append((from_column, to_column))
    for reference in references.values():  # without its number, which the wording decides
        yield (table, "references", *reference)


def _indexes(driver: sqlite3.Connection, table: str) -> Iterator[Fact]:
    rows = driver.execute(
        'SELECT name, "unique", origin, partial FROM pragma_index_list(?)', (table,)
    ).fetchall()
    for name, *properties in rows:
        keys = driver.execute(
            'SELECT cid, name, "desc", coll, key FROM pragma_index_xinfo(?) ORDER BY seqno', (name,)
        ).fetchall()
        # SQLite numbers the indexes of constraints by their place in the text.
        yield (table, "index", name if properties[1] == "c" else "", *properties, *keys)


def _needs_text(driver: sqlite3.Connection, index: str) -> bool:
    """Return whether an index has an expression or a condition, which only its text shows."""
    query = (
        "SELECT partial FROM pragma_index_list((SELECT tbl_name FROM main.sqlite_schema "
        "WHERE name = :index)) WHERE name = :index "
        "UNION ALL SELECT cid = -2 FROM pragma_index_xinfo(:index)"
    )
    return any(flag for (flag,) in driver.execute(query, {"index": index}))


_TOKEN = re.compile(
    r"""\s+ | --[^\n]* | /\*.*?\*/                           # nothing
    | (?P<literal>'(?:[^']|'')*')
    | "(?P<double>(?:[^"]|"")*)" | `(?P<back>[^`]*)` | \[(?P<bracket>[^\]]*)\]
    | (?P<word>[\w$]+) | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)


def _tokens(sql: str) -> Iterator[tuple[str, str]]:
    """Return the tokens of a statement in order: ``literal``, ``name``, ``word`` or ``sign``.

    Comments are left out, and quotes around a name removed.
    """
    for matched in _TOKEN.finditer(sql):
        kind = matched.lastgroup
        if kind is not None:
            yield kind if kind in {"literal", "word", "sign"} else "name", matched[kind]


def _clauses(table: str, sql: str) -> Iterator[Fact]:
    """Return the clauses that only the text of a table shows: AUTOINCREMENT, CHECK, COLLATE, …."""
    for definition in _definitions(list(_tokens(sql))):
        words = [text.upper() if kind == "word" else "" for kind, text in definition]
        subject = definition[0][1] if definition else ""
        texts = [text for _kind, text in definition]
        for at, word in enumerate(words):
            if word in {"AUTOINCREMENT", "COLLATE"}:
                yield (table, subject, word, *texts[at + 1 : at + 2][: word == "COLLATE"])
            elif word in {"DEFERRABLE", "INITIALLY"}:
                negated = at > 0 and words[at - 1] == "NOT"
                yield (table, "reference", "NOT" if negated else "", word, *words[at + 1 : at + 2])
            elif word == "CONFLICT":
                yield (table, subject, "ON CONFLICT", *words[at + 1 : at + 2])
            elif word in {"CHECK", "AS"}:
                yield (table, word, *_in_brackets(texts[at + 1 :]))
            elif word in {"STORED", "VIRTUAL", "USING"}:
                yield (table, subject, word, *texts[at + 1 : at + 2][: word == "USING"])


def _definitions(tokens: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Split the tokens of a CREATE TABLE at the commas between its columns and constraints."""
    depth = 0
    definition: list[tuple[str, str]] = []
    for kind, text in tokens:
        depth += {"(": 1, ")": -1}.get(text, 0) if kind == "sign" else 0
        opens = kind == "sign" and text == "(" and depth == 1
        if opens or (kind == "sign" and text == "," and depth == 1):
            yield definition
            definition = []
        else:
            definition.append((kind, text))
    yield definition


def _in_brackets(texts: list[str]) -> list[str]:
    depth = 0
    for at, text in enumerate(texts):
        depth += {"(": 1, ")": -1}.get(text, 0)
        if depth == 0:
            return texts[: at + 1]
    return texts
