"""Queries are plain text, and a snippet shows the matches in a text."""

from __future__ import annotations

import random
import time
import unicodedata

import pytest

from statebackend.catalogue import folding
from statebackend.catalogue.words import MOST_WORDS, Phrase, expression, phrases, snippet


@pytest.mark.parametrize(
    "text,found",
    [
        ("list files", [("list",), ("files",)]),
        ('"list the files" now', [("list", "the", "files"), ("now",)]),
        ('say"a b"c', [("say",), ("a", "b"), ("c",)]),
        ('lonely " quote', [("lonely",), ("quote",)]),
        ("foo-bar foo-bar", [("foo", "bar")]),
        ("C++", [("c",)]),
        ("AND NEAR( col:x *", [("and",), ("near",), ("col", "x")]),
        ("日本 語", [("日", "本"), ("語",)]),
        ("", []),
        ('- " "" * \0 \ud83d 👍', []),
    ],
)
def test_phrases(text: str, found: list[Phrase]) -> None:
    """Words, and parts in double quotes; nothing else has a meaning."""
    assert phrases(text) == found


def test_a_long_query_is_truncated() -> None:
    """SQLite accepts every query."""
    assert len(phrases(" ".join(f"w{n}" for n in range(10_000)))) == MOST_WORDS
    assert list(map(len, phrases("語" * 10_000))) == [MOST_WORDS]


def test_the_expression_quotes_everything() -> None:
    """Each phrase is an FTS5 string."""
    assert expression([("or",), ("a", "b")]) == '"or" "a b"'


def shown(text: str, query: str) -> tuple[str, list[str]]:
    """Return the snippet and its marked parts."""
    found = snippet(text, phrases(query))
    return found.text, [found.text[start:end] for start, end in found.marks]


def test_a_short_text_is_shown_whole() -> None:
    """In one line, with the matches marked as they are written."""
    assert shown("The Café\n\n  is\topen, café!", "cafe") == (
        "The Café is open, café!",
        ["Café", "café"],
    )
    assert shown("git push, not push git", '"git push"') == ("git push, not push git", ["git push"])
    assert shown("日本語のテスト", "本語") == ("日本語のテスト", ["本語"])
    assert shown("é a b c", '"a b" a b c') == ("é a b c", ["a b", "c"])
    assert shown("é a b c", '"a b" "b c"') == ("é a b c", ["a b"])
    assert shown("a b c", '"a b" a b c') == ("a b c", ["a b", "c"])
    assert shown("nothing of it", "else") == ("nothing of it", [])
    assert shown("", "else") == ("", [])


def test_the_part_with_most_words_is_shown() -> None:
    """Not the first match, if more of the words are close together elsewhere."""
    text = f"alpha {'x ' * 300} alpha beta gamma {'y ' * 300}"
    line, marked = shown(text, "alpha beta gamma")
    assert marked == ["alpha", "beta", "gamma"]
    assert line.startswith("…x x")
    assert line.endswith("y y…")
    assert len(line) <= 210


def test_a_very_long_word_is_truncated() -> None:
    """A snippet has a maximum length."""
    line, marked = shown("a" * 50_000, "a" * 50_000)
    assert (len(line), len(marked[0])) == (201, 200)
    assert len(shown("x" * 50_000 + " needle", "needle")[0]) < 210


def test_a_long_text_is_not_read_to_its_end() -> None:
    """After a match, only text near it is searched; a first match may be far behind."""
    text = f"é {'x ' * 10_000}"
    assert shown(f"{text}needle", "needle")[1] == ["needle"]
    assert shown(f"first {text}first second", "first second")[1] == ["first"]


@pytest.mark.parametrize(
    "cluster", ["☂\ufe0f", "👩\u200d🚀", "👍🏽", "วั", "각", "🇩🇪", "葛\U000e0100"]
)
@pytest.mark.parametrize("shift", range(6))
def test_no_character_is_separated_from_its_marks(cluster: str, shift: int) -> None:
    """In texts without a space, both ends are at the start of a character."""
    cluster = unicodedata.normalize("NFD", cluster)
    text = "." * shift + cluster * 300 + "needle" + cluster * 300
    line, marked = shown(text, "needle")
    left, right = line.strip("…").split("needle")
    assert marked == ["needle"]
    assert left == cluster * (len(left) // len(cluster))
    assert right == cluster * (len(right) // len(cluster))


def cpu_seconds(text: str, query: str) -> float:
    """Return the least CPU time of five snippets: eight times the text takes eight times as long.

    Quadratic time would be 64 times as long. The least of five is that of an undisturbed run.
    """
    wanted, times = phrases(query), []
    for _ in range(5):
        start = time.process_time()
        snippet(text, wanted)
        times.append(time.process_time() - start)
    return min(times)


def test_many_matches_take_linear_time() -> None:
    """The first place with most of the words is found in one pass."""
    short, long = ("0 " * count + "zebra" for count in (4000, 32_000))
    assert cpu_seconds(long, "0 zebra") < 20 * cpu_seconds(short, "0 zebra") + 0.01


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("see ⓒⓘⓡⓒⓛⓔ text", "circle", "ⓒⓘⓡⓒⓛⓔ"),
        ("㍿ and more", "株式", "㍿"),
        ("the ㎏ of it", "kg", "㎏"),
        ("x ℃ y", "C", "℃"),
        ("🄰🄱 c", '"ab c"', "🄰🄱 c"),
        ("ⓐ\u0301ⓑ", "ab", "ⓐ\u0301ⓑ"),
        ("ⓩ ｶﾞ ㄱㅏ", "ガ", "ｶﾞ"),
    ],
)
def test_a_symbol_folded_to_letters_is_marked(text: str, query: str, marked: str) -> None:
    """The index holds its letters, so they match; the whole symbol is marked."""
    assert shown(text, query) == (text, [marked])
    far = f"{'é ' * 3000}{text}{' é' * 3000}"
    assert marked in shown(far, query)[1]


def test_every_match_is_marked() -> None:
    """In texts of any characters, for the words in the index."""
    dice = random.Random(7)
    blocks = [(0x21, 0x600), (0x900, 0xE80), (0x1100, 0x2200), (0x2460, 0x2500), (0x3000, 0x3400)]
    blocks += [(0xAC00, 0xAC40), (0xFB00, 0xFB50), (0xFF00, 0xFFE0), (0x1F100, 0x1F300)]
    for _ in range(3000):
        first, stop = dice.choice(blocks)
        start = dice.randrange(first, stop)
        text = "".join(chr(min(start + dice.randrange(30), stop)) for _ in range(12))
        words = folding.tokens(text)
        if words:
            at = dice.randrange(len(words))
            phrase = tuple(words[at : at + 2])
            assert snippet(text, [phrase]).marks, (ascii(text), phrase)


@pytest.mark.parametrize("before", ["", "é ", "x" * 300 + " "])
def test_thousands_of_marks_split_no_word(before: str) -> None:
    """An end is not moved back over them into the word before."""
    text = f"{before}needle" + "\u0301" * 60_000
    line, marked = shown(text, "needle")
    assert marked == ["needle" + "\u0301" * (len(marked[0]) - 6)]
    assert len(line) <= 202


def test_symbols_take_linear_time() -> None:
    """A text of symbols alone is read once."""
    short, long = ("ⓒ\u0301" * count + " ⓩ" for count in (4000, 32_000))
    assert snippet(long, phrases("z")).marks
    assert cpu_seconds(long, "z") < 20 * cpu_seconds(short, "z") + 0.01
