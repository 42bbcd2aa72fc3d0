"""A transcript that grows between imports gives what importing the whole at once gives."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import statebackend
from statebackend import EventKind, SessionStatus, StateBackend
from statebackend.interchange.report import FileOutcome
from tests.transcripts import (
    USAGE,
    Lines,
    Measured,
    measure,
    rows,
    take,
    text,
    tool_result,
    tool_use,
)

ODD = Path(__file__).parents[1] / "data" / "claude_code" / "interleaved.jsonl"
BUNDLED = Path(statebackend.__file__).parent / "samples" / "claude_code"
TREE = "tree_fa812bfe/fa812bfe-b295-4cca-9c2f-fdf01028cb46"
SMALL = [
    "single_session_2.1.34",
    "summaries_of_other_sessions_2.1.5",
    "snapshot_early_of_growing_session",
    "snapshot_later_of_growing_session",
    "two_objects_on_one_line",
    "four_tool_refusals_2.0.76",
    "inline_sidechain_1.0.108",
    f"{TREE}/subagents/agent-aa84377",
    f"{TREE}/subagents/agent-acompact-70d8e7",
    "all_record_types_sample",
]
BIG = ["api_errors_and_two_compactions", TREE]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory where the system has one: hundreds of imports, no disk needed."""
    memory = Path("/dev/shm")  # noqa: S108
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(dir=memory))
    yield made
    shutil.rmtree(made)


class Growing:
    """Imports prefixes of one file into backends of their own, and compares with the whole."""

    def __init__(self, source: Path, folder: Path) -> None:
        self._data = source.read_bytes()
        self._folder = folder
        self._name = source.name
        self._count = 0
        self.ends = [index + 1 for index, byte in enumerate(self._data) if byte == ord("\n")]
        self.size = len(self._data)
        self.whole = self.grow([])

    def grow(self, cuts: list[int]) -> Measured:
        """Import the prefixes of these lengths one after the other, then the whole."""
        self._count += 1
        place = self._folder / str(self._count)
        backend = StateBackend(place / "sessions")
        path = place / self._name
        path.parent.mkdir(parents=True)
        for cut in [*cuts, self.size]:
            path.write_bytes(self._data[:cut])
            report = take(backend, path)
        assert report.session_id is not None, report.problem
        assert list(backend.ids()) == [report.session_id]
        measured = measure(backend, report.session_id)
        shutil.rmtree(place)
        return measured

    def random_cuts(self, seed: int, number: int) -> list[int]:
        """Choose lengths: half of them anywhere, half at the end of a line."""
        chosen = random.Random(seed)
        anywhere = [chosen.randrange(self.size) for _ in range(number // 2)]
        return anywhere + [chosen.choice(self.ends) for _ in range(number - len(anywhere))]


def _source(shared_data: Path, name: str) -> Path:
    return shared_data / "claude_code" / f"{name}.jsonl"


# -- any prefix, then the whole --------------------------------------------------------------------


def test_any_line_end_of_the_made_up_file_then_the_whole(folder: Path) -> None:
    """Every prefix of whole lines, also within a message whose lines are between other records."""
    growing = Growing(ODD, folder)
    for cut in growing.ends:
        assert growing.grow([cut]) == growing.whole


def test_any_byte_of_the_made_up_file_then_the_whole(folder: Path) -> None:
    """Prefixes cut in the middle of lines, objects and characters."""
    growing = Growing(ODD, folder)
    for cut in growing.random_cuts(1, 60)[:30]:
        assert growing.grow([cut]) == growing.whole


@pytest.mark.parametrize("seed", range(5))
def test_many_prefixes_in_a_row_of_the_made_up_file(folder: Path, seed: int) -> None:
    """A session that is imported again and again while it grows."""
    growing = Growing(ODD, folder)
    assert growing.grow(sorted(growing.random_cuts(seed, 12))) == growing.whole


@pytest.mark.parametrize("source", sorted(BUNDLED.rglob("*.jsonl")), ids=lambda path: path.stem)
def test_the_bundled_sample_may_come_in_line_by_line(folder: Path, source: Path) -> None:
    """Each line of the sample, imported as it is written."""
    growing = Growing(source, folder)
    assert growing.grow(growing.ends) == growing.whole


@pytest.mark.parametrize("name", SMALL)
def test_prefixes_of_a_real_transcript_then_the_whole(
    folder: Path, shared_data: Path, name: str
) -> None:
    """Prompts, calls, results, refusals, token sums, payload bytes and status are the same."""
    growing = Growing(_source(shared_data, name), folder)
    for cut in growing.random_cuts(2, 8):
        measured = growing.grow([cut])
        assert measured == growing.whole
        assert measured.all_messages == growing.whole.all_messages
    assert growing.grow(sorted(growing.random_cuts(3, 6))) == growing.whole


@pytest.mark.parametrize("name", BIG)
def test_prefixes_of_a_large_transcript_in_a_row(
    folder: Path, shared_data: Path, name: str
) -> None:
    """The two large files, imported in six growing pieces."""
    growing = Growing(_source(shared_data, name), folder)
    assert growing.grow(sorted(growing.random_cuts(4, 6))) == growing.whole


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, *BIG])
def test_100_random_prefixes_of_each_real_transcript(
    folder: Path, shared_data: Path, name: str
) -> None:
    """As above, 100 times for each file: 50 cut anywhere, 50 at line ends."""
    growing = Growing(_source(shared_data, name), folder)
    for cut in growing.random_cuts(5, 100):
        assert growing.grow([cut]) == growing.whole, f"cut at byte {cut}"


# -- the pieces of it ------------------------------------------------------------------------------


def test_a_message_that_grew_goes_on_in_a_second_event(
    backend: StateBackend, tmp_path: Path
) -> None:
    """The second event has the added lines, its ledger row the added counters."""
    path = tmp_path / "a.jsonl"
    lines = Lines().user("go").assistant("m", text("a"))
    first = take(backend, lines.write(path))
    lines.assistant("m", text("b"), usage=USAGE | {"output_tokens": 25})
    second = take(backend, lines.write(path))
    assert second.events_added == {"message": 1}
    assert first.session_id is not None
    with backend.read(first.session_id) as view:
        *_, last = view.events(kinds=[EventKind.MESSAGE])
        outputs = [(e.cost.input_tokens, e.cost.output_tokens) for e in view.costs()]
    assert last.payload == lines.data.splitlines()[-1]
    assert outputs == [(2, 10), (0, 15)]


def test_lines_without_new_tokens_get_no_ledger_row(backend: StateBackend, tmp_path: Path) -> None:
    """A grown message whose counters stayed adds nothing to the ledger."""
    path = tmp_path / "a.jsonl"
    lines = Lines().user("go").assistant("m", text("a"))
    take(backend, lines.write(path))
    report = take(backend, lines.assistant("m", text("b")).write(path))
    assert report.events_added == {"message": 1}
    assert report.session_id is not None
    with backend.read(report.session_id) as view:
        assert view.counts().cost_ledger == 1


def test_a_counter_that_went_down_is_reported(backend: StateBackend, tmp_path: Path) -> None:
    """The ledger cannot take anything back: the lower counter adds 0, and the report says so."""
    path = tmp_path / "a.jsonl"
    lines = Lines().user("go").assistant("m", text("a"))
    take(backend, lines.write(path))
    lines.assistant("m", text("b"), usage=USAGE | {"input_tokens": 1, "output_tokens": 11})
    report = take(backend, lines.write(path))
    assert report.odd_counters == 1
    assert report.session_id is not None
    with backend.read(report.session_id) as view:
        totals = view.cost_totals()
    assert (totals.input_tokens, totals.output_tokens) == (2, 11)


def test_a_torn_last_line_waits_until_it_is_whole(backend: StateBackend, tmp_path: Path) -> None:
    """It is reported and not stored; the longer copy brings it."""
    path = tmp_path / "a.jsonl"
    lines = Lines().user("one").user("zwei ✓")
    path.write_bytes(lines.data[:-9])
    torn = take(backend, path)
    assert (torn.torn, torn.records, torn.events_added) == (True, 1, {"message": 1})
    whole = take(backend, lines.write(path))
    assert (whole.torn, whole.records, whole.events_added) == (False, 2, {"message": 1})


def test_a_last_line_without_line_end_is_taken_when_it_is_whole(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Many copies end without a newline."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(Lines().user("one").data.rstrip())
    assert take(backend, path).events_added == {"message": 1}


def test_a_whole_object_before_a_torn_one_is_taken(backend: StateBackend, tmp_path: Path) -> None:
    """Two objects on the last line, the second cut in the middle of a character."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(Lines().user("one").data.rstrip() + '{"type":"user","x":"é'.encode()[:-1])
    report = take(backend, path)
    assert (report.torn, report.events_added) == (True, {"message": 1})


def test_a_copy_that_starts_later_goes_into_the_same_session(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Its first time is another one, and still nothing is doubled."""
    lines = Lines().user("one").assistant("m", text("a")).assistant("m", text("b")).user("two")
    whole = take(backend, lines.write(tmp_path / "a.jsonl"))
    lines.data = b"".join(lines.data.splitlines(keepends=True)[2:])
    later = take(backend, lines.user("three").write(tmp_path / "a.jsonl"))
    assert later.session_id == whole.session_id
    assert later.events_added == {"message": 1}


def test_the_beginning_may_come_after_the_end(backend: StateBackend, tmp_path: Path) -> None:
    """A whole copy after one that starts later adds the missing beginning, at the end."""
    lines = Lines().user("one").assistant("m", text("a")).assistant("m", text("b")).user("two")
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(lines.data.splitlines(keepends=True)[2:]))
    later = take(backend, path)
    whole = take(backend, lines.write(path))
    assert whole.session_id == later.session_id
    assert whole.events_added == {"message": 2}
    assert take(backend, path).events_added == {}
    assert whole.session_id is not None
    assert measure(backend, whole.session_id).tokens == (2, 10, 400, 30)


def test_an_older_copy_changes_nothing(backend: StateBackend, tmp_path: Path) -> None:
    """Neither rows nor status, although its own last turn had ended."""
    lines = Lines().user("one").assistant("m", text("a"), stop_reason="end_turn")
    older = lines.write(tmp_path / "old" / "a.jsonl")
    assert take(backend, older).status == SessionStatus.COMPLETED
    take(backend, lines.user("two").write(tmp_path / "new" / "a.jsonl"))
    before = rows(backend)
    report = take(backend, older)
    assert (report.outcome, report.status) == (FileOutcome.UNCHANGED, SessionStatus.CANCELLED)
    assert rows(backend) == before


def test_a_file_cut_short_while_it_is_read_is_refused(
    backend: StateBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event gets half a record."""
    monkeypatch.setattr(os, "pread", lambda *_: b"{")
    report = take(backend, Lines().user("one").write(tmp_path / "a.jsonl"))
    assert report.outcome is FileOutcome.REFUSED
    assert "became shorter" in str(report.problem)


# -- status ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (Lines().user("a"), "cancelled"),
        (Lines().user("a").assistant("m", text("b")), "cancelled"),
        (Lines().user("a").assistant("m", text("b"), stop_reason="end_turn"), "completed"),
        (Lines().user("a").assistant("m", text("b")).add("system", subtype="turn_duration"),
         "completed"),
        (Lines().user("a").assistant("m", text("b"))
         .add("system", subtype="stop_hook_summary", hookErrors=["no"]), "cancelled"),
        (Lines().user("a").assistant("m", tool_use("t"), stop_reason="tool_use"), "cancelled"),
        (Lines().user("a").assistant("m", tool_use("t")).add("system", subtype="turn_duration"),
         "cancelled"),
        (Lines().user("a").assistant("m", tool_use("t")).user([tool_result("t")]), "cancelled"),
        (Lines().user("a").assistant("m", text("b"), stop_reason="end_turn")
         .user([text("[Request interrupted by user]")]).add("system", subtype="turn_duration"),
         "cancelled"),
        (Lines().user("a").add("assistant", isApiErrorMessage=True, message={"content": "500"})
         .add("system", subtype="turn_duration"), "cancelled"),
        (Lines().user("a").assistant("m", text("b"), stop_reason="end_turn")
         .user("<command-name>/exit</command-name>")
         .user("<local-command-stdout>Bye</local-command-stdout>"), "completed"),
        (Lines().user("a").assistant("m", text("b"), stop_reason="end_turn")
         .user("task", isSidechain=True), "completed"),
        (Lines().user("a").assistant("m", tool_use("t")).user([tool_result("t")])
         .assistant("n", text("b"), stop_reason="end_turn"), "completed"),
        (Lines().user("a").assistant("m", tool_use("t")).user("never mind")
         .assistant("n", text("b"), stop_reason="end_turn"), "completed"),
    ],
)  # fmt: skip
def test_the_status_says_whether_the_last_turn_ended(
    backend: StateBackend, tmp_path: Path, lines: Lines, status: str
) -> None:
    """Completed only if the source says so; everything else is cancelled, which can go on."""
    assert take(backend, lines.write(tmp_path / "a.jsonl")).status == status


def test_a_session_has_the_first_and_the_latest_time(backend: StateBackend, tmp_path: Path) -> None:
    """Also when the last record is older than one before it."""
    lines = Lines().user("a").user("b", timestamp="2026-05-06T10:00:00Z").user("c")
    report = take(backend, lines.write(tmp_path / "a.jsonl"))
    assert report.session_id is not None
    with backend.read(report.session_id) as view:
        assert str(view.info.started_at) == "2026-05-04 10:00:01.500000+00:00"
        assert str(view.info.ended_at) == "2026-05-06 10:00:00+00:00"


def test_an_end_that_makes_no_event_still_completes(backend: StateBackend, tmp_path: Path) -> None:
    """A longer copy with nothing new but the record of the turn's end."""
    lines = Lines().user("a").assistant("m", text("b"))
    path = lines.write(tmp_path / "a.jsonl")
    assert take(backend, path).status == SessionStatus.CANCELLED
    report = take(backend, lines.add("system", subtype="turn_duration").write(path))
    assert (report.outcome, report.status) == (FileOutcome.EXTENDED, SessionStatus.COMPLETED)


def test_a_session_that_went_on_elsewhere_keeps_its_status(
    backend: StateBackend, tmp_path: Path
) -> None:
    """The transcript's end is not the session's any more, but its new records go in."""
    lines = Lines().user("a").assistant("m", text("b"), stop_reason="end_turn")
    path = lines.write(tmp_path / "a.jsonl")
    session_id = take(backend, path).session_id
    assert session_id is not None
    with backend.open(session_id) as session:
        session.set_status(SessionStatus.RUNNING)
        session.append_prompt(payload=b"here", schema_version="x")
        session.set_status(SessionStatus.CANCELLED, ended_at=datetime(2030, 1, 1, tzinfo=UTC))
    assert take(backend, path).outcome is FileOutcome.UNCHANGED
    report = take(backend, lines.user("c").write(path))
    assert (report.events_added, report.status) == ({"message": 1}, SessionStatus.CANCELLED)
    with backend.read(session_id) as view:
        assert view.info.ended_at == datetime(2030, 1, 1, tzinfo=UTC)


def test_a_failed_session_is_refused_by_name(backend: StateBackend, tmp_path: Path) -> None:
    """A final status cannot be re-opened; the file is refused, the session untouched."""
    lines = Lines().user("a")
    path = lines.write(tmp_path / "a.jsonl")
    session_id = take(backend, path).session_id
    assert session_id is not None
    with backend.open(session_id) as session:
        session.set_status(SessionStatus.RUNNING)
        session.set_status(SessionStatus.FAILED)
    before = rows(backend)
    assert take(backend, path).outcome is FileOutcome.UNCHANGED
    report = take(backend, lines.user("b").write(path))
    assert report.outcome is FileOutcome.REFUSED
    assert session_id in str(report.problem)
    assert rows(backend) == before


# -- an interrupted import -------------------------------------------------------------------------

_IMPORT = """
import sys, time
from pathlib import Path
from statebackend import StateBackend
from statebackend.interchange.claude_code import appender
append = appender.Appender._append
def slowly(self, events):
    append(self, events)
    time.sleep(0.05)
appender.Appender._append = slowly
appender._BATCH_EVENTS = 5
StateBackend(sys.argv[1]).import_transcripts([Path(sys.argv[2])])
"""


@pytest.mark.crash
def test_an_import_that_was_killed_is_completed_by_the_next(folder: Path) -> None:
    """Killed with part of the batches written, then imported again: as if done at once."""
    source = Lines().user("go")
    for number in range(500):
        source.assistant(f"m{number}", text("working"))
    source.add("system", subtype="turn_duration")
    path = source.write(folder / "a.jsonl")
    whole = StateBackend(folder / "whole")
    expected = take(whole, path).session_id
    assert expected is not None
    broken = StateBackend(folder / "broken")
    command = [sys.executable, "-c", _IMPORT, str(broken.directory), str(path)]
    child = subprocess.Popen(command)
    _wait_for_events(broken, child)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    with broken.read(expected) as view:
        assert 0 < view.counts().events < 501
        assert view.info.status == SessionStatus.RUNNING
    take(broken, path)
    assert measure(broken, expected) == measure(whole, expected)
    with broken.read(expected) as one, whole.read(expected) as other:
        assert list(one.events()) == list(other.events())


def _wait_for_events(backend: StateBackend, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and child.poll() is None:
        for session_id in backend.ids() if backend.directory.is_dir() else ():
            with backend.read(session_id) as view:
                if view.counts().events:
                    return
        time.sleep(0.005)
    pytest.fail("the child wrote nothing, or was done before it could be killed")


@pytest.mark.parametrize("written", [0, 1, 3, 7])
def test_whatever_part_of_an_import_was_written_the_next_completes_it(
    backend: StateBackend, tmp_path: Path, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that stops after any batch leaves a session that the next one finishes."""
    whole = StateBackend(tmp_path / "whole")
    expected = take(whole, ODD).session_id
    assert expected is not None
    from statebackend.interchange.claude_code import appender

    done = 0
    append = appender.Appender._append

    def stop(self: appender.Appender, events: list[object]) -> None:
        nonlocal done
        if done == written:
            raise OSError("stopped")
        done += 1
        append(self, events)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(appender, "_BATCH_EVENTS", 2)
        patch.setattr(appender.Appender, "_append", stop)
        assert take(backend, ODD).outcome is FileOutcome.REFUSED
    assert take(backend, ODD).outcome is FileOutcome.EXTENDED
    with backend.read(expected) as one, whole.read(expected) as other:
        assert list(one.events()) == list(other.events())
        assert one.info == other.info


def test_a_live_import_of_a_growing_file_can_be_repeated_forever(folder: Path) -> None:
    """Every tenth line of a transcript with one long message, then all of it."""
    lines = Lines().user("go")
    for number in range(40):
        lines.assistant("m", text(str(number)), usage=USAGE | {"output_tokens": number})
    growing = Growing(lines.write(folder / "a.jsonl"), folder)
    assert growing.grow(growing.ends[::10]) == growing.whole
    assert growing.whole.tokens == (2, 39, 400, 30)
    assert json.loads(growing.whole.messages["m"].split(b"\n")[-1])["message"]["id"] == "m"
