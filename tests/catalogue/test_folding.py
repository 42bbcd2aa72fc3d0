"""SQLite and this package find the same words, without case, accents and width."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from unicodedata import normalize

import pytest

from statebackend.catalogue import folding, schema


@pytest.fixture(scope="module")
def index() -> Iterator[sqlite3.Connection]:
    """Return an index with this package's tokenizer, and a table of its words."""
    with closing(sqlite3.connect(":memory:")) as driver:
        driver.execute(
            f'CREATE VIRTUAL TABLE texts USING fts5(text, tokenize = "{schema.TOKENIZER}")'
        )
        driver.execute("CREATE VIRTUAL TABLE words USING fts5vocab(texts, instance)")
        yield driver


def by_sqlite(index: sqlite3.Connection, texts: Iterable[str]) -> dict[int, list[str]]:
    """Return the words that SQLite's tokenizer finds in each text."""
    index.execute("DELETE FROM texts")
    index.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(texts))
    found = defaultdict(list)
    for number, term in index.execute("SELECT doc, term FROM words ORDER BY doc, offset"):
        found[number].append(term)
    return found


def characters() -> Iterator[str]:
    """Return every character of the first planes in context, without the large blocks of Han."""
    for code in (*range(0x20, 0x3400), *range(0xA000, 0xAC80), *range(0xF900, 0x1FB00)):
        if not 0xD800 <= code < 0xF900:
            yield f"a{chr(code)}B"


def test_sqlite_finds_the_same_words_in_plain_text(index: sqlite3.Connection) -> None:
    """For every plain character, the tokenizer finds the words of the folded query."""
    texts = [text for text in characters() if folding.is_plain(text)]
    assert len(texts) > 3000
    found = by_sqlite(index, texts)
    differing = [text for number, text in enumerate(texts) if found[number] != folding.tokens(text)]
    assert differing == []


def test_sqlite_finds_the_same_words_in_folded_text(index: sqlite3.Connection) -> None:
    """Every other character is folded so that the tokenizer only has to split words."""
    texts = [text for text in characters() if not folding.is_plain(text)]
    found = by_sqlite(index, map(folding.fold, texts))
    differing = [text for number, text in enumerate(texts) if found[number] != folding.tokens(text)]
    assert differing == []


@pytest.mark.parametrize(
    "text,words",
    [
        ("Café", ["cafe"]),
        ("cafe\u0301", ["cafe"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        ("İstanbul", ["istanbul"]),
        ("Αθήνα ΑΘΗΝΑ", ["αθηνα", "αθηνα"]),
        ("Йод йод и\u0306од", ["йод", "йод", "йод"]),
        ("Ёж ёж е\u0308ж еж", ["еж"] * 4),
        ("ﬁn ＡＢＣ ｶﾞ", ["fin", "abc", "ガ"]),
        ("שָׁלוֹם قَلم", ["שלום", "قلم"]),
        ("हिन्दी", ["हिन्दी"]),
        ("foo_bar C++ file.rs", ["foo", "bar", "c", "file", "rs"]),
        ("日本語abc中", ["日", "本", "語", "abc", "中"]),
        ("葛\U000e0100城", ["葛", "城"]),
        ("한국", ["한", "국"]),
        ("วัด", ["ว", "ั", "ด"]),
        ("co\u00adop می\u200cخواهم", ["coop", "میخواهم"]),
        ("👍🏽 → — \ud83d \0", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    """A word is the same in every encoding and spelling that readers take for the same."""
    assert folding.tokens(text) == words
    assert folding.tokens(normalize("NFD", text)) == words


@pytest.mark.parametrize(
    "text",
    ["Foo_bar: BAZ 12", "Café cafe\u0301", "日本語abc วัด", "co\u00adop 👍🏽", "ｶﾞ は\u3099"],
)
def test_places_of_words(text: str) -> None:
    """The places are those in the original text, and the words those of the query."""
    found = list(folding.words(text))
    assert [token for _start, _end, tokens in found for token in tokens] == folding.tokens(text)
    for start, end, tokens in found:
        assert folding.tokens(text[start:end]) == tokens
