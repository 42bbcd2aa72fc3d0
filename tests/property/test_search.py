"""The index finds what reading every text finds, for any texts."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from statebackend.catalogue import folding, indexing, schema, words
from statebackend.catalogue.extractors import Extractors
from statebackend.catalogue.indexing import Pending, Place
from statebackend.catalogue.search import Query, hits

_WORDS = (
    "apple",
    "Pear",
    "café",
    "CAFE",
    "日本",
    "本",
    "Ünïcödé",
    "foo_bar",
    "v1.2",
    "ไทย",
    "Αθήνα",
)
_texts = st.one_of(
    st.lists(st.sampled_from(_WORDS), max_size=8).map(" ".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.text("ab-日本 \u0301é", max_size=12),
)


def stem(number: int) -> str:
    """Return the id of the *number*-th session."""
    return f"01KJMG7C0000000000000000{number:02}"


def found(texts: list[str], queries: list[str]) -> list[set[int]]:
    """Put *texts* in an index, as events of two sessions, and return the hits of each query."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as driver:
        schema.create(driver, Path("folder"))
        schema.create_index(driver, Path("memory"))
        for number in (1, 2):
            columns = "number, stem, inode, read_at_ns, live, incomplete, events, last_sequence"
            driver.execute(
                f"INSERT INTO sessions ({columns}) VALUES (?, ?, 0, 0, 0, 0, 0, 0)",
                (number, stem(number)),
            )
            events = [
                (place, "id", "2026-01-01", "message", "tool", "x", "1", "1", text.encode())
                for place, text in enumerate(texts)
                if place % 2 + 1 == number
            ]
            pending = Pending(number, stem(number), Place(), 1, 0)
            read = indexing._EventsRead(stem(number), events, whole=True)
            part = indexing._part(pending, read, Extractors())
            driver.executemany(indexing._INSERT, part.rows)
        return [
            {hit.sequence for hit in hits(driver, Query(words.phrases(query), None))}
            for query in queries
        ]


def holds(text: str, query: str) -> bool:
    """Tell whether each phrase of the query is among the words of the text, one after another."""
    parts = folding.tokens(Extractors().text_of_row(("",) * 7 + ("1", text.encode())))
    return all(
        any(tuple(parts[at : at + len(phrase)]) == phrase for at in range(len(parts)))
        for phrase in words.phrases(query)
    )


@settings(deadline=None)
@given(
    st.lists(_texts, max_size=6), st.lists(st.sampled_from([*_WORDS, '"apple pear"', "本 CAFÉ"]))
)
def test_the_hits_are_those_of_reading_every_text(texts: list[str], queries: list[str]) -> None:
    """For words, phrases, and several of them."""
    for query, sequences in zip(queries, found(texts, queries), strict=True):
        assert sequences == {place for place, text in enumerate(texts) if holds(text, query)}


@settings(deadline=None)
@given(st.lists(_texts, min_size=1, max_size=6))
def test_every_word_of_every_text_is_found(texts: list[str]) -> None:
    """Also half of a text, as it is written, with all its symbols."""
    queries, expected = [], []
    for place, text in enumerate(texts):
        for query in (*text.split(), text[: len(text) // 2]):
            if words.phrases(query) and holds(text, query):
                queries.append(query)
                expected.append(place)
    for place, sequences in zip(expected, found(texts, queries), strict=True):
        assert place in sequences
