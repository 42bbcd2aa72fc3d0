"""The text of any payload, and the extractors of other packages."""

from __future__ import annotations

import json
import logging
import random
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from statebackend import Event, EventKind, Producer
from statebackend.catalogue import extractors
from statebackend.catalogue.extractors import MOST_CHARACTERS, Extractors
from statebackend.catalogue.payload_text import MOST_BYTES, text_of

UUID = "123e4567-e89b-12d3-a456-426614174000"


def event(
    payload: bytes, schema_version: str = "1", kind: EventKind = EventKind.TOOL_RESULT
) -> Event:
    """Return an event with this payload."""
    producer = Producer("tool", "shell", "1")
    return Event(1, "id", datetime(2026, 1, 1, tzinfo=UTC), kind, producer, schema_version, payload)


def field(number: int, value: bytes) -> bytes:
    """Return a field with a length in protobuf's wire format."""
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Return a number in protobuf's wire format."""
    *rest, last = [value >> shift & 127 for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(part | 128 for part in rest), last])


@pytest.mark.parametrize(
    "payload,text",
    [
        (b"", ""),
        (b"ls -la", "ls -la"),
        ("Größe → 日本".encode(), "Größe → 日本"),
        (b'{"key": "value", "n": 1, "l": ["a", {"k": "b"}], "e": ""}', "value\na\nb"),
        (b'"one string"', "one string"),
        (b'"quoted" at first', '"quoted" at first'),
        (b'{"a": "x"}\n{"b": "y"}\n', "x\ny"),
        (b"{ no: json } at all", "{ no: json } at all"),
        (b'{"a": "caf\\u00e9\\nb \\"c\\""}', 'café\nb "c"'),
        (json.dumps({"arguments": json.dumps({"path": "a\nb"})}).encode(), "a\nb"),
        (b'{"a": "[not json]", "b": "{}"}', "[not json]"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07on", "red on"),
        (b"\xef\xbb\xbf" + b'{"a": "behind a mark"}', "behind a mark"),
        (b'{"a": "one", "a": "two"}', "one\ntwo"),
    ],
)
def test_text_and_json(payload: bytes, text: str) -> None:
    """JSON strings without keys, also of JSON within JSON; plain text unchanged."""
    assert text_of(payload) == text


@pytest.mark.parametrize(
    "value",
    [
        UUID,
        "toolu_01Q9bYw4mJ7xK2vR5tN8pL3c",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "2026-01-31T23:59:59.123Z",
        "iVBORw0KGgo" * 40,
    ],
)
def test_ids_digests_times_and_encoded_bytes_are_left_out(value: str) -> None:
    """As whole values; encoded bytes also within text."""
    assert text_of(json.dumps({"id": value, "text": "kept"}).encode()) == "kept"
    if len(value) > 100:
        assert text_of(f"before {value} behind".encode()).split() == ["before", "behind"]
    else:
        assert value in text_of(f"the value {value} in a sentence".encode())


@pytest.mark.parametrize(
    "value",
    [
        "a_very_long_name_of_a_test_function",
        "/usr/lib/python3/dist-packages/module/file.py",
        "internationalization",
        "HTTPConnectionPoolManager",
        "x" * 199,
        "語" * 300,
        "/home/me/" + "projects/application/src/" * 20 + "main",
        "fix-the-cache-" * 30,
    ],
)
def test_words_are_not_ids(value: str) -> None:
    """Names, paths and long words are kept."""
    assert text_of(json.dumps([value]).encode()) == value


@pytest.mark.parametrize(
    "payload,text",
    [
        (b'{"text": "cut in the mid', "cut in the mid"),
        (b'{"a": "one", "b": "two \\', "one\ntwo "),
        (b'[{"a": "caf\\u00e9", "odd": "\\x", "b": "tw', "café\n\\x\ntw"),
        (b"x \xc3", "x "),
        (b'{"a": "x"}\n{"b": "y', "x\ny"),
    ],
)
def test_a_truncated_payload(payload: bytes, text: str) -> None:
    """It gives its text up to the end."""
    assert text_of(payload) == text


def test_protobuf() -> None:
    """Text fields, also in nested messages, but neither numbers nor other bytes."""
    inner = field(1, b"inner text") + b"\x10\x96\x01" + field(3, bytes(range(128, 140)))
    message = field(1, b"hello\tworld") + field(2, inner) + b"\x19" + bytes(8) + b"\x25" + bytes(4)
    message += field(5, b"") + field(6, b'{"key": "json inside"}')
    assert text_of(message).split("\n") == ["hello\tworld", "inner text", "json inside"]


def test_a_truncated_protobuf_message() -> None:
    """A large one is read up to its end, a small one must be complete."""
    large = field(1, b"first \x00\xff") + field(2, b"begins " + b"word " * 300_000)
    assert text_of(large[:MOST_BYTES]).startswith("begins word word")
    assert text_of(field(1, b"\x00\x01" * 8) + field(2, b"x" * 100)[:-1]) == ""


@pytest.mark.parametrize("seed", range(40))
def test_binary_has_no_text(seed: int) -> None:
    """Neither random bytes nor images, and none raises an error."""
    noise = random.Random(seed).randbytes(random.Random(seed).randint(1, 3000))
    assert len(text_of(noise)) < 6
    assert text_of(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + noise * 2) == ""
    for cut in range(0, 60, 7):
        text_of(noise[:cut])


def test_a_few_damaged_bytes_do_not_matter() -> None:
    """Output that another program truncated or wrote in an old encoding is still text."""
    assert "good and long" in text_of("caf\xe9 is good and long, an old encoding".encode("latin-1"))
    assert text_of("café!".encode("latin-1")) == "caf\ufffd!"
    assert text_of("Größe".encode("latin-1")) == "Gr\ufffd\ufffde"
    assert text_of("caf\xe9\0\1".encode("latin-1")) == ""


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 200_000,
        b'{"a":' * 50_000 + b'"deep"' + b"}" * 50_000,
        b'["' + b'["' * 100_000,
        b"\x0a\x02" * 100_000,
        b"1" * 10_000,
        b"[" + b"9" * 10_000 + b"]",
        b'{"a": "\\ud83d"}',
        b"\x1b]" * 100_000,
        b"a" * 199 + b" " + b"b+" * 99 + b" " * 100_000,
    ],
)
def test_no_payload_raises_an_error(payload: bytes) -> None:
    """Deep nesting, repeated keys and lone surrogates included."""
    text = Extractors().text(event(payload))
    text.encode()
    assert len(text) <= MOST_CHARACTERS


def test_the_text_has_a_maximum_length() -> None:
    """65,536 characters."""
    assert len(Extractors().text(event(b"word " * 100_000))) == MOST_CHARACTERS


# -- extractors of others --------------------------------------------------------------------------


def test_an_extractor_is_chosen_by_its_schema_version() -> None:
    """Only for exactly that version; all others use the default."""
    known = Extractors()
    known.register("7", lambda event: f"seven {event.kind} {len(event.payload)}")
    assert known.text(event(b"abc", "7")) == "seven tool_result 3"
    assert known.text(event(b"abc", "07")) == "abc"
    assert known.text(event(b"abc", "8")) == "abc"


def test_a_faulty_extractor_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """The default is used, and one warning is logged, without the payload."""
    known = Extractors()

    def failing(event: Event) -> str:
        raise ValueError(event.payload.decode())

    known.register("raises", failing)
    known.register("no text", lambda event: event.payload)  # type: ignore[arg-type, return-value]
    with caplog.at_level(logging.WARNING, "statebackend"):
        for version in ("raises", "no text", "raises", "no text"):
            assert known.text(event(b"secret words", version)) == "secret words"
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "the text extractor of schema version 'raises' raised ValueError",
        "the text extractor of schema version 'no text' returned bytes, not str",
    ]
    assert all(record.exc_info is None for record in caplog.records)


def test_lone_surrogates_of_an_extractor_are_replaced() -> None:
    """They could not be stored."""
    known = Extractors()
    known.register("half", lambda _event: "a\ud83db")
    assert known.text(event(b"", "half")) == "a\ufffdb"


def test_installed_packages_provide_extractors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By entry points; one that cannot be loaded is logged and does not stop the others."""
    package = tmp_path / "brought-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        f"[{extractors.GROUP}]\nbrought.v1 = brought_text:extract\ngone = brought_text:nothing\n"
    )
    (tmp_path / "brought_text.py").write_text("def extract(event):\n    return 'brought'\n")
    monkeypatch.syspath_prepend(tmp_path)
    extractors.installed.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "statebackend"):
            found = extractors.installed()
    finally:
        extractors.installed.cache_clear()
        sys.modules.pop("brought_text", None)
    assert found.text(event(b"x", "brought.v1")) == "brought"
    assert found.text(event(b"x", "gone")) == "x"
    assert [record.getMessage() for record in caplog.records] == [
        "the text extractor 'gone' cannot be loaded: AttributeError"
    ]


# -- imported transcripts --------------------------------------------------------------------------


def line(content: object, **more: object) -> bytes:
    """Return one line of a transcript."""
    message = {"id": "msg_01AbCdEf", "role": "assistant", "model": "m-1", "content": content}
    record = {"type": "assistant", "uuid": UUID, "sessionId": UUID, "message": message, **more}
    return json.dumps(record).encode()


BLOCKS = [
    {"type": "thinking", "thinking": "let me think", "signature": "c2lnbmF0dXJl" * 30},
    {"type": "text", "text": "I will look"},
    {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "Bash",
        "input": {"command": "git log", "type": "kept", "id": "kept too"},
    },
    {"type": "image", "source": {"type": "base64", "data": "aGVsbG8="}},
    {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "a commit"}],
    },
]


@pytest.mark.parametrize(
    "kind,text",
    [
        (EventKind.MESSAGE, "let me think\nI will look"),
        (EventKind.TOOL_CALL, "Bash\ngit log\nkept\nkept too"),
        (EventKind.TOOL_RESULT, "a commit"),
    ],
)
def test_each_kind_of_an_imported_line_has_its_own_part(kind: EventKind, text: str) -> None:
    """A line makes several events, whose texts have neither ids nor models."""
    payload = line(BLOCKS, toolUseResult={"stdout": "a commit"})
    assert Extractors().text(event(payload, "claude-code-jsonl", kind)) == text


def test_other_imported_lines() -> None:
    """Prompts, several lines, attachments, errors of hooks, and values that are not records."""
    known = Extractors()

    def text(*lines: bytes, kind: EventKind = EventKind.MESSAGE) -> str:
        return known.text(event(b"\n".join(lines), "claude-code-jsonl", kind))

    assert text(line("a prompt")) == "a prompt"
    assert text(line([BLOCKS[1]]), line("two")) == "I will look\ntwo"
    attachment = {"attachment": {"type": "file", "content": {"text": "kept", "id": "gone"}}}
    assert text(json.dumps(attachment).encode()) == "kept"
    assert text(b'{"hookErrors": ["it failed"], "uuid": "x"}') == "it failed"
    assert text(b'["a list"]') == "a list"
    assert text(line(["no block", {"type": "text", "text": "block"}])) == "no block\nblock"
    assert "said before the cut" in text(line("said before the cut")[:-3])
