"""Search finds the text of any session, names files it cannot read, and writes to no session."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from statebackend import (
    AsyncStateBackend,
    EventKind,
    InvalidValue,
    Producer,
    SearchHit,
    Session,
    SessionNotFound,
    StateBackend,
    StorageError,
    StorageUnsupported,
)
from statebackend.catalogue import Catalogue, indexing, schema
from statebackend.catalogue.extractors import Extractors
from tests.answers import index_rows
from tests.session_files import (
    MODEL,
    START,
    TOOL,
    new,
    path_of,
    snapshot,
    sql,
)


def say(session: Session, *texts: str, **given: Any) -> None:
    """Append a prompt with each of these texts."""
    for text in texts:
        session.append_prompt(payload=text.encode(), schema_version="1", **given)


def prompts(backend: StateBackend, *texts: str, **columns: Any) -> str:
    """Create a session of prompts with these texts, and return its id."""
    with backend.create(**{"profile": "default", **columns}) as session:
        say(session, *texts)
        return session.session_id


def hits(backend: StateBackend, words: str, **filters: Any) -> list[int]:
    """Return the sequences of the hits."""
    return [hit.sequence for hit in backend.search(words, **filters).hits]


def test_a_payload_that_is_stored_as_a_number_or_text_is_found(backend: StateBackend) -> None:
    """As a replay returns it; no session is left out because of it."""
    ids = [new(backend, events=1) for _ in range(4)]
    for session_id, payload in zip(ids[1:], ("123456", "1234.5", "'a text'"), strict=True):
        sql(path_of(backend, session_id), f"UPDATE events SET payload = {payload}")
    for words, session_id in {"123456": ids[1], "1234.5": ids[2], "text": ids[3]}.items():
        (hit,) = backend.search(words).hits
        assert hit.session_id == session_id
    only = backend.search("123456", session_ids=[ids[1]])
    assert only.hits == backend.search("123456").hits


def test_a_hit_names_its_event(backend: StateBackend) -> None:
    """Session, sequence, kind, producer and time, with a snippet that marks the words."""
    with backend.create("default") as session:
        say(session, "something else")
        session.append(
            EventKind.TOOL_RESULT,
            producer=TOOL,
            payload=b'{"stdout": "On branch Main"}',
            schema_version="1",
            timestamp=START,
        )
    result = backend.search("main branch")
    assert result.hits == (
        SearchHit(
            session_id=session.session_id,
            sequence=2,
            kind=EventKind.TOOL_RESULT,
            producer=TOOL,
            timestamp=START,
            snippet="On branch Main",
            marks=((3, 9), (10, 14)),
        ),
    )
    assert not result.partial


HARD = (
    "the C++ compiler",
    "a foo-bar thing",
    "edit file.rs now",
    'she said "hello there"',
    "AND and OR",
    "NEAR(the end)",
    "5 * 3",
    "col:x",
)


@pytest.mark.parametrize(
    "words,sequences",
    [
        ("C++", [1]),
        ("foo-bar", [2]),
        ("bar-foo", []),
        ("file.rs", [3]),
        ('"', []),
        ("-", []),
        ("", []),
        ("*", []),
        ("AND", [5]),
        ("NEAR(", [6]),
        ("col:x", [8]),
        ('"hello there"', [4]),
        ('"there hello"', []),
        ("there hello", [4]),
        ('hello "', [4]),
        ("5*", [7]),
        ("^5 OR", []),
        ("' --", []),
        ("{a b} : c", []),
        ("\0\ud83d", []),
    ],
)
def test_words_are_plain_text(backend: StateBackend, words: str, sequences: list[int]) -> None:
    """They have no syntax, and none raises an error."""
    prompts(backend, *HARD)
    assert sorted(hits(backend, words)) == sequences


@pytest.mark.parametrize(
    "text,words",
    [
        ("日本語のテストです", "日本語"),
        ("日本語のテストです", "本"),
        ("日本語のテストです", "テスト"),
        ("修复了一个bug在main.py", "bug"),
        ("修复了一个bug在main.py", "一个bug"),
        ("한국어를 공부", "한국"),
        ("ภาษาไทยไม่มีช่องว่าง", "ไทย"),
        ("ภาษาไทยไม่มีช่องว่าง", "ง"),
        ("Der Straßencafé-Plan", "strassencafe"),
        ("naïve résumé", "NAIVE RESUME"),
        ("cafe\u0301", "café"),
        ("Ｆｕｌｌ width ｶﾅ", "full カナ"),
        ("Привет, Мир", "привет мир"),
        ("Ёж", "еж"),
        ("еж", "ёж"),
        ("emoji 👍🏽done", "done"),
    ],
)
def test_scripts(backend: StateBackend, text: str, words: str) -> None:
    """Scripts without spaces match by any part; case, accents and width are ignored."""
    prompts(backend, "something else", text, "日 本", "ไ ท ย x")
    assert 2 in hits(backend, words)


def test_the_best_come_first_of_equals_the_newest(backend: StateBackend) -> None:
    """By rank, then the newest session, then the latest event."""
    new_one = prompts(backend, "apple pear", started_at=START + timedelta(days=2))
    backend.search("apple")  # so the newer one is indexed first
    old = prompts(backend, "apple pear", "apple pear", "apple apple", started_at=START)
    result = backend.search("apple")
    assert [(hit.session_id, hit.sequence) for hit in result.hits] == [
        (old, 3),
        (new_one, 1),
        (old, 2),
        (old, 1),
    ]
    assert backend.search("apple", limit=2).hits == result.hits[:2]
    assert backend.search("apple", limit=0).hits == ()
    assert len(backend.search("apple", limit=None).hits) == 4


def test_filters(backend: StateBackend) -> None:
    """Only events that match every filter are returned."""
    with backend.create("work", started_at=START) as session:
        say(session, "apple", timestamp=START)
        session.append_message(
            producer=MODEL, payload=b"apple", cost=None, timestamp=START + timedelta(hours=1)
        )
    other = prompts(backend, "apple", profile="play", started_at=START + timedelta(days=1))
    one = {"session_ids": [session.session_id]}
    assert len(hits(backend, "apple")) == 3
    assert hits(backend, "apple", kind="message", **one) == [2, 1]
    assert hits(backend, "apple", kind=EventKind.PLAN) == []
    for producer in (MODEL, "anthropic", "model/anthropic", "model/anthropic@2.1.0"):
        assert hits(backend, "apple", producer=producer) == [2]
    for producer in (Producer("model", "anthropic", "2"), "model", "anthropic@2.1.0", "%"):
        assert hits(backend, "apple", producer=producer) == []
    assert [hit.session_id for hit in backend.search("apple", profile="play").hits] == [other]
    assert hits(backend, "apple", since=START + timedelta(hours=1), **one) == [2]
    assert hits(backend, "apple", until=START + timedelta(hours=1)) == [1]
    assert hits(backend, "apple", session_ids=[]) == []
    assert hits(backend, "apple", session_ids=iter([other]), profile="work") == []


@pytest.mark.parametrize(
    "field,given",
    [
        ("words", {"words": b"bytes"}),
        ("limit", {"limit": -1}),
        ("kind", {"kind": "x' OR 1=1 --"}),
        ("producer", {"producer": 3}),
        ("producer", {"producer": ""}),
        ("profile", {"profile": "\ud83d"}),
        ("session_ids", {"session_ids": "01KJMG7C00000000000000000Z"}),
        ("session_id", {"session_ids": ["../x"]}),
        ("since", {"since": START.replace(tzinfo=None)}),
        ("until", {"until": "today"}),
    ],
)
def test_wrong_values_are_refused(backend: StateBackend, field: str, given: dict[str, Any]) -> None:
    """The error names the argument, and nothing is created."""
    with pytest.raises(InvalidValue) as caught:
        backend.search(**{"words": "x", **given})
    assert caught.value.field == field
    assert not Catalogue(backend.directory).path.exists()


def test_an_unknown_session_is_refused(backend: StateBackend) -> None:
    """A search in a missing session does not return an empty result."""
    prompts(backend, "apple")
    with pytest.raises(SessionNotFound):
        backend.search("apple", session_ids=["01KJMG7C00000000000000000Z"])


# -- the index follows the sessions ----------------------------------------------------------------


def test_a_live_session_is_found_to_its_last_event(backend: StateBackend) -> None:
    """The search covers all events appended before it, by this process or another."""
    with backend.create("default") as session:
        for number in range(1, 4):
            say(session, f"apple number{number}")
            assert hits(backend, f"number{number}") == [number]
        assert len(hits(backend, "apple")) == 3
    assert len(hits(backend, "apple")) == 3


def test_only_what_is_new_is_read(backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexing continues after the last indexed event."""
    session_id = prompts(backend, "apple one", "apple two")
    assert len(hits(backend, "apple")) == 2
    taken: list[int] = []
    extract = Extractors.text_of_row

    def text(self: Any, row: Any) -> str:
        taken.append(row[0])
        return extract(self, row)

    monkeypatch.setattr(Extractors, "text_of_row", text)
    assert len(hits(backend, "apple")) == 2
    with backend.open(session_id) as session:
        say(session, "apple three")
    assert len(hits(backend, "apple")) == 3
    assert taken == [3]


def test_a_deleted_session_leaves_the_index(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a session with more events than one portion deletes."""
    monkeypatch.setattr(indexing, "_PORTION_EVENTS", 3)
    gone = prompts(backend, *["apple"] * 10)
    prompts(backend, "apple")
    assert len(hits(backend, "apple")) == 11
    path_of(backend, gone).unlink()
    assert len(hits(backend, "apple")) == 1
    assert index_rows(backend) == 1


def test_a_replaced_session_is_indexed_again(backend: StateBackend) -> None:
    """The text of the earlier file is not found any more."""
    session_id = prompts(backend, "apple", "apple", "apple")
    assert len(hits(backend, "apple")) == 3
    path = path_of(backend, session_id)
    path.unlink()
    prompts(backend, "pear", session_id=session_id)
    assert hits(backend, "apple") == []
    assert hits(backend, "pear") == [1]
    assert index_rows(backend) == 1


EDITS: dict[str, tuple[str, ...]] = {
    "redacted": ("UPDATE events SET payload = CAST('a pear' AS BLOB) WHERE sequence = 1",),
    "of the same length": ("UPDATE events SET payload = CAST('pears' AS BLOB) WHERE sequence = 1",),
    "taken out": ("DELETE FROM events WHERE sequence = 1",),
    "of another kind": ("UPDATE events SET kind = 'tool_call' WHERE sequence = 1",),
    "the last": ("UPDATE events SET payload = CAST('pear' AS BLOB) WHERE sequence = 3",),
    "renumbered": ("UPDATE events SET sequence = sequence + 10",),
}


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("name", EDITS)
def test_an_edit_in_place_is_found(backend: StateBackend, name: str, quiet: bool) -> None:
    """By another program, in the middle or at the end: the session is indexed again."""
    session_id = prompts(backend, "apple", "cherry", "apple")
    other = prompts(backend, "apple")
    for _ in range(2):
        assert len(hits(backend, "apple")) == 3
        time.sleep(0.15 if quiet else 0)
    for statement in EDITS[name]:
        sql(path_of(backend, session_id), statement)
    compare_with_new(backend)
    with backend.open(session_id) as session:
        say(session, "pear apple")
        compare_with_new(backend)
    compare_with_new(backend)
    path_of(backend, other).unlink()
    compare_with_new(backend)


def compare_with_new(backend: StateBackend) -> None:
    """Assert that the index gives the answers of a new one."""
    asked = ("apple", "cherry", "pear", "pears")
    kept = [backend.search(words, limit=None).hits for words in asked]
    rows = index_rows(backend)
    Catalogue(backend.directory).rebuild()
    assert kept == [backend.search(words, limit=None).hits for words in asked]
    assert rows == index_rows(backend)


def test_an_edit_before_more_is_appended_is_found(backend: StateBackend) -> None:
    """Both between two searches, with bytes changed by hand; also through a compacted copy."""
    session_id = prompts(backend, "apple one", "cherry")
    path = path_of(backend, session_id)
    assert len(hits(backend, "apple")) == 1
    time.sleep(0.15)
    path.write_bytes(path.read_bytes().replace(b"apple", b"grape"))
    with backend.open(session_id) as session:
        say(session, "pear")
        assert (hits(backend, "apple"), hits(backend, "grape")) == ([], [1])
    time.sleep(0.15)
    sql(path, "UPDATE events SET payload = CAST('plum' AS BLOB) WHERE sequence = 1")
    sql(path, f"VACUUM INTO '{path}.new'")
    path.with_name(f"{path.name}.new").replace(path)
    assert (hits(backend, "grape"), hits(backend, "plum")) == ([], [1])
    assert index_rows(backend) == 3


def test_a_session_that_cannot_be_read_again_is_named(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks between the check of its file and the reading; the others are searched."""
    bad, _good = prompts(backend, "apple"), prompts(backend, "apple")
    time.sleep(0.15)
    assert len(hits(backend, "apple")) == 2
    sql(path_of(backend, bad), "UPDATE events SET payload = CAST('pear' AS BLOB)")
    compare_indexed = indexing.compare_indexed

    def late(*given: Any) -> Any:
        path_of(backend, bad).write_bytes(b"noise" * 1000)
        return compare_indexed(*given)

    monkeypatch.setattr(indexing, "compare_indexed", late)
    result = backend.search("pear")
    assert [one.session_id for one in result.unreadable] == [bad]
    assert len(hits(backend, "apple")) == 1


def test_a_session_with_appended_events_is_compared_once(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its file has changed and is quiet. A large one is indexed without a comparison."""
    session_id = prompts(backend, "apple")
    checked: list[int] = []
    compare_indexed = indexing.compare_indexed

    def count(directory: Any, sessions: Any, listed: Any) -> Any:
        checked.append(len(sessions))
        return compare_indexed(directory, sessions, listed)

    monkeypatch.setattr(indexing, "compare_indexed", count)
    time.sleep(0.15)
    hits(backend, "apple")
    with backend.open(session_id) as session:
        say(session, "apple")
    time.sleep(0.15)
    for _ in range(3):
        assert len(hits(backend, "apple")) == 2
    assert checked == [1]
    sql(Catalogue(backend.directory).path, "UPDATE text_progress SET events_bytes = 1 << 40")
    with backend.open(session_id) as session:
        say(session, "apple")
    assert len(hits(backend, "apple")) == 3
    assert checked == [1]


def test_many_portions(backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions larger and smaller than a portion, in events and bytes, are indexed completely."""
    monkeypatch.setattr(indexing, "_PORTION_EVENTS", 3)
    monkeypatch.setattr(indexing, "_PORTION_BYTES", 200)
    prompts(backend, *[f"apple n{number} " + "x" * 60 for number in range(10)])
    for number in range(5):
        prompts(backend, f"apple m{number}")
    seen: list[tuple[int, int]] = []
    result = backend.search("apple", limit=None, progress=lambda *step: seen.append(step))
    assert len(result.hits) == 15
    assert (15, 15) in seen
    assert all(done <= total for done, total in seen)
    assert index_rows(backend) == 15


def test_a_large_payload_is_truncated(backend: StateBackend) -> None:
    """Text before the limits is found, text after them is not."""
    with backend.create("default") as session:
        say(session, "apple " + "filler " * 400_000 + "pear", "cherry")
    assert hits(backend, "apple") == [1]
    assert hits(backend, "pear") == []
    assert hits(backend, "cherry") == [2]


def test_events_without_text_are_skipped(backend: StateBackend) -> None:
    """The last indexed event is still the last one."""
    with backend.create("default") as session:
        session.append_prompt(payload=b"\xff\xd8\x00\x01" * 20, schema_version="1")
        session.append_prompt(payload=b" \n", schema_version="1")
        say(session, "apple")
    assert hits(backend, "apple") == [3]
    assert index_rows(backend) == 1
    assert hits(backend, "apple") == [3]


def test_a_session_of_another_program(backend: StateBackend) -> None:
    """Foreign kinds, times and text payloads are found and shown unchanged."""
    session_id = prompts(backend, "x")
    values = "'e2', 'yesterday', 'odd', 'tool', 'shell', '1', '1', 'apple as text'"
    sql(path_of(backend, session_id), f"INSERT INTO events VALUES (9000000000, {values})")
    (hit,) = backend.search("apple").hits
    assert (hit.sequence, hit.kind, hit.timestamp) == (9_000_000_000, "odd", "yesterday")


def test_an_imported_transcript_is_found(backend: StateBackend, tmp_path: Path) -> None:
    """Messages, tool calls and results, each in its own kind of event, without ids."""
    record = {"sessionId": "s-1", "version": "2.0.0", "timestamp": "2026-01-01T00:00:00.000Z"}
    prompt = {"role": "user", "content": "fix the apple"}
    call = {
        "type": "tool_use",
        "id": "toolu_01X",
        "name": "Bash",
        "input": {"command": "eat apple"},
    }
    answer = {"id": "msg_01X", "role": "assistant", "model": "m-1", "content": [call]}
    lines = [
        {**record, "type": "user", "uuid": "u-1", "message": prompt},
        {**record, "type": "assistant", "uuid": "u-2", "message": answer},
    ]
    path = tmp_path / "transcript.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    backend.import_transcripts([path])
    found = {(str(hit.kind), hit.snippet) for hit in backend.search("apple").hits}
    assert found == {("message", "fix the apple"), ("tool_call", "Bash eat apple")}
    assert backend.search("toolu_01X").hits == ()


def test_searching_writes_nothing_to_the_sessions(backend: StateBackend) -> None:
    """The folder is unchanged, including times; only the owner can read the index."""
    prompts(backend, "apple")
    time.sleep(0.2)  # a file this new is read through SQLite's own locks, as by every scan
    before = snapshot(backend.directory)
    assert hits(backend, "apple") == [1]
    assert snapshot(backend.directory) == before
    path = Catalogue(backend.directory).path
    assert path.stat().st_mode & 0o777 == 0o600


# -- what is not whole -----------------------------------------------------------------------------


def test_an_unreadable_session_is_named(backend: StateBackend) -> None:
    """A file of random bytes is in the result; the others are searched."""
    prompts(backend, "apple")
    bad = prompts(backend, "apple")
    path_of(backend, bad).write_bytes(b"noise" * 1000)
    result = backend.search("apple")
    assert len(result.hits) == 1
    assert [one.session_id for one in result.unreadable] == [bad]
    assert result.partial
    (one,) = backend.search("apple", session_ids=[bad]).unreadable
    assert one.session_id == bad


def spoil(path: Path) -> None:
    """Overwrite some pages in the middle of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 40_000)


def test_a_partly_readable_session_is_named(backend: StateBackend) -> None:
    """Its events before the damage may be found; each result says that the others were not."""
    bad = new(backend, events=2000, size=2000)
    prompts(backend, "apple")
    spoil(path_of(backend, bad))
    for _ in range(2):
        result = backend.search("apple")
        assert len(result.hits) == 1
        assert [one.session_id for one in result.unreadable] == [bad]


def test_a_session_that_lost_rows_is_incomplete(backend: StateBackend) -> None:
    """After its recovery it is searched, and named as incomplete."""
    session_id = prompts(backend, *[f"apple {'x' * 3000}"] * 50)
    spoil(path_of(backend, session_id))
    with backend.open(session_id) as session:
        assert session.recovery is not None
        lost = session.recovery.partial
    result = backend.search("apple", profile="default")
    assert lost
    assert result.incomplete == (session_id,)
    assert result.partial
    assert backend.search("apple", profile="other").incomplete == ()


def test_a_file_deleted_or_repaired_meanwhile_is_not_named(backend: StateBackend) -> None:
    """A file that could not be read is checked once more."""
    from statebackend.catalogue import search as module

    prompts(backend, "apple")
    bad = prompts(backend, "apple")
    path = path_of(backend, bad)
    path.write_bytes(b"noise" * 1000)
    look = module._Search._unreadable

    def unreadable(self: Any, answer: Any) -> Any:
        path.unlink(missing_ok=True)
        return look(self, answer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module._Search, "_unreadable", unreadable)
        assert not backend.search("apple").partial


# -- where there can be no index -------------------------------------------------------------------


def test_without_fts5_a_typed_error_says_so(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of modules is SQLite's; here a view without FTS5 hides it."""
    with closing(sqlite3.connect(":memory:")) as driver:
        schema.create_index(driver, Path("x"))
        driver.execute("CREATE TEMP VIEW pragma_module_list AS SELECT 'rtree' AS name")
        with pytest.raises(StorageUnsupported, match="FTS5"):
            schema.create_index(driver, Path("x"))


def test_a_cache_that_cannot_be_written(
    backend: StateBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the path; a listing works without the catalogue."""
    prompts(backend, "apple")
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(StorageError):
        backend.search("apple")
    assert len(backend.list()) == 1


def test_a_damaged_index_is_rebuilt(
    backend: StateBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """The next search has the same hits."""
    prompts(backend, *[f"apple {number}" for number in range(200)])
    assert len(hits(backend, "apple", limit=None)) == 200
    with closing(sqlite3.connect(Catalogue(backend.directory).path)) as driver, driver:
        driver.execute("DELETE FROM texts_data WHERE id > 10")
    assert len(hits(backend, "apple", limit=None)) == 200
    assert index_rows(backend) == 200
    assert "apple" not in caplog.text


def test_the_size_of_the_text_is_known(backend: StateBackend) -> None:
    """In bytes, in the state of the catalogue."""
    prompts(backend, "apple", "日本")
    hits(backend, "apple")
    with closing(sqlite3.connect(Catalogue(backend.directory).path)) as driver:
        assert schema.text_bytes(driver) == 11


def test_an_empty_folder(backend: StateBackend) -> None:
    """The result is empty, and the folder is not created."""
    assert backend.search("apple").hits == ()
    assert not backend.directory.exists()


def test_search_for_asyncio(backend: StateBackend) -> None:
    """The result is the same."""
    prompts(backend, "apple")

    async def search() -> int:
        return len((await AsyncStateBackend(backend.directory).search("apple")).hits)

    assert asyncio.run(search()) == 1
