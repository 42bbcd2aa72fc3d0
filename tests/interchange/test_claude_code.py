"""What a Claude Code transcript becomes: sessions, events, costs, and a report of the rest."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import hypothesis
import pytest
from hypothesis import strategies as st

import statebackend
from statebackend import (
    Event,
    EventKind,
    InvalidValue,
    Producer,
    SessionInfo,
    SessionStatus,
    StateBackend,
)
from statebackend.interchange.claude_code.appender import SCHEMA_VERSION
from statebackend.interchange.claude_code.prices import ModelPrice, load_prices
from statebackend.interchange.jsonl import SourceObject, read_objects
from statebackend.interchange.report import FileOutcome, FileReport
from tests.transcripts import (
    REFUSAL,
    SESSION,
    USAGE,
    Lines,
    rows,
    take,
    text,
    tool_result,
    tool_use,
)

ODD = Path(__file__).parents[1] / "data" / "claude_code" / "interleaved.jsonl"
BUNDLED = Path(statebackend.__file__).parent / "samples" / "claude_code"
TREE = "tree_fa812bfe/fa812bfe-b295-4cca-9c2f-fdf01028cb46"


class Figures(NamedTuple):
    """What a careful reader counts in a file."""

    objects: int
    messages: int
    calls: int
    results: int
    refused: int
    prompts: int
    input: int
    output: int
    cache_read: int
    cache_write: int


# The prompt of a sub-agent's own file is its task.
FIGURES = {
    "single_session_2.1.34": Figures(12, 2, 1, 1, 0, 1, 4, 10, 44519, 8055),
    "summaries_of_other_sessions_2.1.5": Figures(78, 14, 12, 12, 0, 4, 116, 4065, 1898292, 152421),
    "snapshot_early_of_growing_session": Figures(23, 4, 2, 2, 0, 2, 8, 443, 118997, 52959),
    "snapshot_later_of_growing_session": Figures(31, 6, 3, 3, 0, 3, 12, 471, 206288, 53147),
    "two_objects_on_one_line": Figures(171, 42, 41, 41, 1, 6, 346, 7047, 2618979, 168250),
    "four_tool_refusals_2.0.76": Figures(177, 40, 44, 44, 4, 7, 330, 9777, 3161396, 403431),
    "api_errors_and_two_compactions": Figures(
        593, 147, 136, 136, 0, 15, 1204, 75508, 14988341, 1280052
    ),
    TREE: Figures(1881, 157, 197, 197, 0, 3, 1502, 36256, 15373675, 260212),
    f"{TREE}/subagents/agent-aa84377": Figures(98, 9, 21, 21, 0, 1, 52, 17, 306055, 52562),
    f"{TREE}/subagents/agent-acompact-70d8e7": Figures(15, 1, 0, 0, 0, 1, 3, 6, 166873, 2414),
    "inline_sidechain_1.0.108": Figures(53, 20, 21, 21, 0, 1, 129, 3629, 324259, 47747),
}


def events(backend: StateBackend, report: FileReport, *kinds: EventKind) -> list[Event]:
    """Return the session's events of these kinds, or all."""
    assert report.session_id is not None
    with backend.read(report.session_id) as view:
        return list(view.events(kinds=kinds or None))


def figures(backend: StateBackend, report: FileReport) -> Figures:
    """Count in the session what SOURCES counts in the file."""
    assert report.session_id is not None
    with backend.read(report.session_id) as view:
        kinds = view.counts().by_kind
        totals = view.cost_totals()
        prompts = sum(e.producer.category == "kernel" for e in view.events(kinds=["message"]))
        refused = len(list(view.plan_items("deny")))
    return Figures(
        report.records,
        totals.rows,
        kinds.get("tool_call", 0),
        kinds.get("tool_result", 0),
        refused,
        prompts,
        totals.input_tokens,
        totals.output_tokens,
        totals.cache_read_tokens,
        totals.cache_write_tokens,
    )


# -- real transcripts ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIGURES)
def test_a_real_transcript_reaches_the_figures_counted_by_hand(
    backend: StateBackend, shared_data: Path, name: str
) -> None:
    """Objects, messages, calls, results, refusals, prompts and token sums are the source's."""
    report = take(backend, shared_data / "claude_code" / f"{name}.jsonl")
    assert figures(backend, report) == FIGURES[name]


def test_every_record_of_the_real_transcripts_is_stored_or_counted(
    backend: StateBackend, shared_data: Path
) -> None:
    """Nothing is dropped in silence, and what is counted as stored is in the payloads."""
    result = backend.import_transcripts([shared_data / "claude_code"])
    assert len(result.files) == 12
    for report in result.files:
        assert report.problem is None
        assert report.records == report.recorded + sum(entry.count for entry in report.skipped)
        if "snapshot_" not in report.path.name:  # two files, one session
            assert report.recorded == _stored_records(backend, report)


def _stored_records(backend: StateBackend, report: FileReport) -> int:
    """Count the source lines that the payloads hold, each once."""
    found = {line for event in events(backend, report) for line in event.payload.split(b"\n")}
    return len(found)


def test_a_second_import_of_everything_adds_no_row(
    backend: StateBackend, shared_data: Path
) -> None:
    """Importing twice leaves every session as it was."""
    backend.import_transcripts([shared_data / "claude_code", BUNDLED, ODD])
    before = rows(backend)
    again = backend.import_transcripts([shared_data / "claude_code", BUNDLED, ODD])
    assert {report.outcome for report in again.files} == {FileOutcome.UNCHANGED}
    assert again.events_added == 0
    assert rows(backend) == before


def test_a_real_tree_becomes_a_tree_of_sessions(backend: StateBackend, shared_data: Path) -> None:
    """Sub-agent files are children of the main file's session, one level below it."""
    result = backend.import_transcripts([shared_data / "claude_code" / "tree_fa812bfe"])
    main, *agents = result.files
    assert [report.parent_session_id for report in agents] == [main.session_id] * 2
    assert main.session_id is not None
    children = backend.children(main.session_id)
    assert [one.depth for one in children if isinstance(one, SessionInfo)] == [1, 1]


@pytest.mark.parametrize("name", ["pi/large_session.jsonl", "codex/cli_0.66.jsonl"])
def test_a_transcript_of_another_program_is_refused(
    backend: StateBackend, shared_data: Path, name: str
) -> None:
    """Nothing is created from a file that is JSON Lines but not Claude Code's."""
    report = take(backend, shared_data / name)
    assert report.outcome is FileOutcome.REFUSED
    assert "Claude Code" in str(report.problem)
    assert list(backend.ids()) == []


def test_a_real_record_written_by_two_versions_of_the_client_is_stored_once(
    backend: StateBackend, shared_data: Path
) -> None:
    """After an update the client repeats a record, with other fields around what it says."""
    report = take(backend, shared_data / "claude_code" / "two_objects_on_one_line.jsonl")
    assert report.shared_lines == 1
    assert [e.count for e in report.skipped if e.reason == "repeated record"] == [1]


# -- the bundled sample ----------------------------------------------------------------------------


def test_the_bundled_sample_shows_everything_the_demo_needs(backend: StateBackend) -> None:
    """A finished main session, a priced sub-agent below it, and one refused call."""
    prices = load_prices(BUNDLED / "prices.json")
    main, agent = backend.import_transcripts([BUNDLED], prices=prices).files
    assert (main.status, agent.status) == (SessionStatus.COMPLETED, SessionStatus.COMPLETED)
    assert agent.parent_session_id == main.session_id
    assert main.events_added["plan"] == 1
    assert main.unpriced_turns == agent.unpriced_turns == 0
    assert main.session_id is not None
    cost = backend.cost(main.session_id, tree=True)
    assert cost.own.cost_usd is not None
    assert cost.inclusive is not None
    assert 0 < cost.own.cost_usd < (cost.inclusive.cost_usd or 0)


def test_a_finished_folder_can_be_imported_twice(backend: StateBackend) -> None:
    """The bundled sample, a second time, adds nothing and keeps its status."""
    backend.import_transcripts([BUNDLED])
    before = rows(backend)
    again = backend.import_transcripts([BUNDLED])
    assert again.created == ()
    assert rows(backend) == before


# -- what a record becomes -------------------------------------------------------------------------


def test_payloads_are_the_exact_bytes_of_the_source(backend: StateBackend) -> None:
    """Every line of every payload stands in the file as it is, and names its format."""
    report = take(backend, ODD)
    source = ODD.read_bytes()
    for event in events(backend, report):
        assert all(line in source for line in event.payload.split(b"\n"))
        assert event.schema_version == SCHEMA_VERSION == "claude-code-jsonl"


def test_the_lines_of_a_message_are_one_event_where_the_first_stands(
    backend: StateBackend,
) -> None:
    """A message whose lines are scattered is one event; its calls stay where they were."""
    report = take(backend, ODD)
    found = [
        (str(event.kind), json.loads(event.payload.split(b"\n")[0])["timestamp"][17:19])
        for event in events(backend, report)[3:11]
    ]
    assert found == [
        ("message", "03"),
        ("tool_call", "03"),
        ("tool_result", "05"),
        ("tool_call", "04"),
        ("message", "06"),
        ("tool_call", "06"),
        ("tool_result", "08"),
        ("plan", "08"),
    ]
    assert events(backend, report)[3].payload.count(b"\n") == 3


def test_producers_name_who_did_it(backend: StateBackend) -> None:
    """Model, tool, MCP server, hook, context and kernel are different producers."""
    report = take(backend, ODD)
    assert {event.producer for event in events(backend, report)} == {
        Producer("kernel", "user", "1"),
        Producer("kernel", "kernel", "1"),
        Producer("model", "anthropic", "2.1.40"),
        Producer("model", "anthropic", "unknown"),
        Producer("tool", "claude-code", "2.1.40"),
        Producer("tool", "files", "2.1.40"),
        Producer("tool", "Stop", "2.1.40"),
        Producer("tool", "PreToolUse:Write", "2.1.40"),
        Producer("context", "claude-code", "2.1.40"),
    }


def test_the_usage_of_the_last_line_is_the_message_s(backend: StateBackend) -> None:
    """One ledger row a message that was requested, with the counters of its last line."""
    report = take(backend, ODD)
    assert report.session_id is not None
    with backend.read(report.session_id) as view:
        assert [entry.cost.output_tokens for entry in view.costs()] == [44, 5, 6, 11, 4]


def test_a_refusal_is_a_result_and_a_denied_plan_item(backend: StateBackend) -> None:
    """The plan item names the prompt in force, the call, its provider and its tool."""
    report = take(backend, ODD)
    assert report.session_id is not None
    with backend.read(report.session_id) as view:
        (entry,) = view.plan_items()
    item = entry.item
    assert (item.decision, item.decided_by, item.tool_call_id) == ("deny", "user", "t3")
    assert (item.provider_name, item.tool_name) == ("claude-code", "Write")
    assert item.turn_id == "00000002-0000-4000-8000-000000000000"


def test_a_refused_mcp_call_names_server_and_tool(backend: StateBackend, tmp_path: Path) -> None:
    """The two parts of an MCP tool's name go to two columns."""
    lines = Lines().user("go").assistant("m", tool_use("t", "mcp__disk__erase__all"))
    lines.user([tool_result("t", [text(REFUSAL)], is_error=True)])
    report = take(backend, lines.write(tmp_path / "a.jsonl"))
    assert report.session_id is not None
    with backend.read(report.session_id) as view:
        (entry,) = view.plan_items()
    assert (entry.item.provider_name, entry.item.tool_name) == ("disk", "erase__all")


def test_prompts_of_an_inline_sidechain_are_not_the_user_s(backend: StateBackend) -> None:
    """They are context of the session that the sub-agent worked in; its calls are there too."""
    report = take(backend, ODD)
    contexts = events(backend, report, EventKind.CONTEXT_CONTRIBUTION)
    assert sum("Größenvergleich".encode() in event.payload for event in contexts) == 1
    assert report.events_added["tool_call"] == 4


def test_events_stand_in_file_order_whatever_their_times_say(backend: StateBackend) -> None:
    """Times that run backwards are kept, and sort nothing."""
    report = take(backend, ODD)
    times = [event.timestamp for event in events(backend, report)]
    assert times != sorted(times, key=str)


def test_what_the_client_wrote_itself_costs_nothing(backend: StateBackend, tmp_path: Path) -> None:
    """A synthetic message and an API error are messages without a ledger row."""
    lines = Lines().user("go").assistant("m", text("No response"), model="<synthetic>")
    lines.add("assistant", isApiErrorMessage=True, message={"id": "n", "content": [text("500")]})
    report = take(backend, lines.write(tmp_path / "a.jsonl"))
    assert report.events_added == {"message": 3}
    assert report.session_id is not None
    with backend.read(report.session_id) as view:
        assert list(view.costs()) == []


def test_two_objects_on_one_line_are_two_records(backend: StateBackend) -> None:
    """Both are stored with their own bytes; the second, repeated on the next line, once."""
    report = take(backend, ODD)
    assert report.shared_lines == 1
    assert [entry.count for entry in report.skipped if entry.reason == "repeated record"] == [1]


def test_skipped_records_are_counted_with_type_subtype_and_reason(backend: StateBackend) -> None:
    """What has no kind is in the report, one entry a sort."""
    report = take(backend, ODD)
    assert {(e.type, e.subtype, e.reason, e.count) for e in report.skipped} == {
        ("summary", "", "no matching event kind", 1),
        ("progress", "agent_progress", "no matching event kind", 1),
        ("system", "turn_duration", "no matching event kind", 1),
        ("assistant", "", "repeated record", 1),
    }


def test_a_file_named_by_a_uuid_is_that_session(backend: StateBackend, tmp_path: Path) -> None:
    """After a resume, records can carry the id of the session before; the name decides."""
    other = "9" + SESSION[1:]
    for name in (SESSION, other):
        Lines(SESSION).user("go").write(tmp_path / f"{name}.jsonl")
    assert len(set(backend.import_transcripts([tmp_path]).created)) == 2


def test_a_note_of_the_client_never_joins_a_model_s_message(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Although both may carry one message id; only the model's has a ledger row."""
    lines = Lines().assistant("m", text("a")).assistant("m", text("b"), model="<synthetic>")
    report = take(backend, lines.write(tmp_path / "a.jsonl"))
    assert report.events_added == {"message": 2}
    assert figures(backend, report).messages == 1


# -- prices ----------------------------------------------------------------------------------------


def test_a_price_table_makes_costs_and_missing_prices_are_counted(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Each counter has its price per million; a model without one costs 0.0 and is counted."""
    lines = Lines().assistant("m", text("a")).assistant("n", text("b"), model="other")
    price = ModelPrice(input=1.0, output=2.0, cache_write=3.0, cache_read=4.0)
    result = backend.import_transcripts(
        [lines.write(tmp_path / "a.jsonl")], prices={"sample-1": price}
    )
    (report,) = result.files
    assert result.unpriced_turns == report.unpriced_turns == 1
    assert report.session_id is not None
    with backend.read(report.session_id) as view:
        costs = [entry.cost.cost_usd for entry in view.costs()]
    assert costs == [pytest.approx((2 * 1 + 10 * 2 + 30 * 3 + 400 * 4) / 1e6), 0.0]


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ("[]", ""),
        ("{", ""),
        ('{"m": 3}', "m"),
        ('{"m": {"input": 1, "output": 1, "cache_write": 1}}', "m.cache_read"),
        ('{"m": {"input": 1, "output": 1, "cache_write": 1, "cache_read": -1}}', "m.cache_read"),
        ('{"m": {"input": "1", "output": 1, "cache_write": 1, "cache_read": 1}}', "m.input"),
        ('{"m": {"input": NaN, "output": 1, "cache_write": 1, "cache_read": 1}}', "m.input"),
        ('{"m": {"input": 1, "output": 1, "cache_write": 1, "cache_read": 1, "x": 1}}', "m.x"),
    ],
)
def test_a_bad_price_table_is_refused_naming_file_and_key(
    tmp_path: Path, content: str, key: str
) -> None:
    """The error says where to look."""
    path = tmp_path / "prices.json"
    path.write_text(content)
    with pytest.raises(InvalidValue) as caught:
        load_prices(path)
    assert str(path) in caught.value.field
    assert caught.value.field.endswith(key)


def test_a_price_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A missing file is an invalid value too, naming the file."""
    with pytest.raises(InvalidValue, match="absent"):
        load_prices(tmp_path / "absent.json")


# -- sub-agents ------------------------------------------------------------------------------------


def _tree(folder: Path) -> tuple[Path, Path]:
    main = Lines().user("go").assistant("m", tool_use("t", "Task"))
    agent = Lines(isSidechain=True, agentId="a1").user("the task").assistant("n", text("done"))
    return (
        main.write(folder / f"{SESSION}.jsonl"),
        agent.write(folder / SESSION / "subagents" / "agent-a1.jsonl"),
    )


def test_a_sub_agent_file_has_its_task_as_prompt(backend: StateBackend, tmp_path: Path) -> None:
    """Its first user line is the prompt of the child session."""
    _, agent = backend.import_transcripts([tmp_path / "none", *_tree(tmp_path)]).files[-2:]
    (prompt, _) = events(backend, agent, EventKind.MESSAGE)
    assert prompt.producer.category == "kernel"
    assert b"the task" in prompt.payload


def test_a_child_imported_first_is_linked_to_its_parent_to_come(
    backend: StateBackend, tmp_path: Path
) -> None:
    """The parent's id follows from its file on disk, and the later import makes just that one."""
    main, agent = _tree(tmp_path)
    child = take(backend, agent)
    assert "not imported yet" in child.notes[0]
    assert take(backend, main).session_id == child.parent_session_id


def test_a_child_alone_finds_its_parent_in_the_backend(
    backend: StateBackend, tmp_path: Path
) -> None:
    """A sub-agent's file that was moved away is linked to the session imported earlier."""
    main, agent = _tree(tmp_path / "project")
    parent = take(backend, main)
    child = take(backend, agent.rename(tmp_path / "agent-a1.jsonl"))
    assert child.parent_session_id == parent.session_id
    assert child.notes == ()


@pytest.mark.parametrize("inside", ["subagents", ".", ".."])
def test_a_relative_path_finds_the_parent_too(
    backend: StateBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    """Whatever the working directory is."""
    _, agent = _tree(tmp_path)
    monkeypatch.chdir(tmp_path / SESSION / inside)
    child = take(backend, Path(os.path.relpath(agent)))
    assert child.parent_session_id is not None


def test_a_child_without_any_parent_is_a_root_and_says_so(
    backend: StateBackend, tmp_path: Path
) -> None:
    """A sub-agent's session is imported even if its parent is unknown."""
    _, agent = _tree(tmp_path / "project")
    child = take(backend, agent.rename(tmp_path / "agent-a1.jsonl"))
    assert child.parent_session_id is None
    assert "became a root session" in child.notes[0]


def test_a_main_file_may_be_named_like_a_sub_agent_s(backend: StateBackend, tmp_path: Path) -> None:
    """The name alone makes no sub-agent: its records must say so too."""
    report = take(backend, Lines("main").user("go").write(tmp_path / "agent-x.jsonl"))
    assert (report.parent_session_id, report.notes) == (None, ())


def test_a_free_text_parent_never_makes_a_path(backend: StateBackend, tmp_path: Path) -> None:
    """A file that such a name would lead to is not looked at."""
    lines = Lines("../other", isSidechain=True, agentId="a1").user("go")
    Lines("../other").user("go").write(tmp_path / "a" / "other.jsonl")
    child = take(backend, lines.write(tmp_path / "a" / "b" / "agent-a1.jsonl"))
    assert "was not found" in child.notes[0]


def test_two_sub_agents_of_one_parent_are_two_sessions(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Although both files carry the parent's session id."""
    for name in ("a1", "a2"):
        lines = Lines(isSidechain=True, agentId=name).user("go")
        lines.write(tmp_path / f"agent-{name}.jsonl")
    assert len(set(backend.import_transcripts([tmp_path]).created)) == 2


# -- hostile input ---------------------------------------------------------------------------------


def test_bad_lines_are_counted_and_the_rest_is_imported(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Text that is not a record is counted with its reason, and never raises."""
    deep = b'{"type":"user","message":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    lines = Lines().user("one").raw(b'{"type":"user","x":"\xff"}\n').raw(deep)
    lines.raw(b'{"type": oops}\n').raw(b"[1]\n").raw(b"\n").raw(b'{"n":' + b"9" * 5000 + b"}\n")
    report = take(backend, lines.user("two").write(tmp_path / "a.jsonl"))
    assert report.events_added == {"message": 2}
    assert {entry.reason: entry.count for entry in report.skipped} == {
        "not UTF-8": 1,
        "nested too deeply": 1,
        "not JSON": 2,
        "not an object": 1,
    }
    assert report.records == 7


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [None, 7, "x", {}], {"content": 3}])
@pytest.mark.parametrize("kind", ["user", "assistant", "attachment", "system", "progress"])
def test_odd_types_anywhere_never_raise(
    backend: StateBackend, tmp_path: Path, kind: str, odd: object
) -> None:
    """Each field of a record may hold anything; the record is stored or counted."""
    lines = Lines().user("start")
    for field in ("uuid", "timestamp", "version", "message", "attachment", "data", "subtype"):
        lines.add(kind, **{field: odd})
    for field in ("id", "model", "content", "usage", "stop_reason"):
        lines.add(kind, message={"content": "x", field: odd})
        lines.add(kind, message={"content": [{"type": "tool_use", field: odd}]})
        lines.add(kind, message={"content": [{"type": "tool_result", field: odd}]})
        lines.add(kind, attachment={"type": "hook_blocking_error", "hookName": odd})
    report = take(backend, lines.write(tmp_path / "a.jsonl"))
    assert report.problem is None
    assert report.records == report.recorded + sum(entry.count for entry in report.skipped)


def test_text_that_no_column_can_hold_is_replaced_outside_the_payload(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Lone surrogates and NUL in names and ids do not stop the import; payloads keep them."""
    name = "mcp__\ud800srv\0__to\udfffol"
    lines = Lines(version="\ud8001").user("go", uuid="\udc00")
    lines.assistant("m\udc01", tool_use("t\0", name), model="\ud83d")
    lines.user([tool_result("t\0", REFUSAL, is_error=True)])
    report = take(backend, lines.write(tmp_path / "a.jsonl"))
    assert report.problem is None
    (call,) = events(backend, report, EventKind.TOOL_CALL)
    assert call.producer == Producer("tool", "\ufffdsrv\ufffd", "\ufffd1")
    assert b"\\ud800srv\\u0000" in call.payload


def test_counters_that_are_no_numbers_are_taken_as_0_and_reported(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Text, fractions, negatives and numbers beyond 2^63-1 cannot be stored."""
    odd = {"input_tokens": "[trimmed]", "output_tokens": 2**63, "cache_read_input_tokens": -1}
    lines = Lines().assistant("m", text("a"), usage=USAGE | odd)
    report = take(backend, lines.write(tmp_path / "a.jsonl"))
    assert report.odd_counters == 3
    assert figures(backend, report)[6:] == (0, 0, 0, 30)


def test_records_without_uuid_are_told_apart_by_content(
    backend: StateBackend, tmp_path: Path
) -> None:
    """Equal prompts without any id are two prompts, and stay two."""
    record = b'{"type":"user","sessionId":"s","message":{"content":"again"}}\n'
    lines = Lines().user("one").raw(record * 2)
    path = lines.write(tmp_path / "a.jsonl")
    assert take(backend, path).events_added == {"message": 3}
    assert take(backend, path).events_added == {}


def test_a_record_written_again_by_a_newer_client_is_one_record(
    backend: StateBackend, tmp_path: Path
) -> None:
    """The same uuid with the same message is not stored twice, whatever stands around it."""
    lines = Lines().assistant("m", tool_use("t"))
    again = json.loads(lines.data) | {"version": "2.1.99", "cwd": "/elsewhere"}
    again["message"]["context_management"] = None
    path = lines.raw(json.dumps(again).encode()).write(tmp_path / "a.jsonl")
    report = take(backend, path)
    assert report.events_added == {"message": 1, "tool_call": 1}
    assert [entry.reason for entry in report.skipped] == ["repeated record"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"content": []}, "no text, image or tool result"),
        ({"content": None}, "no text, image or tool result"),
        ("text", "no message"),
    ],
)
def test_a_user_record_that_says_nothing_is_no_prompt(
    backend: StateBackend, tmp_path: Path, message: object, reason: str
) -> None:
    """It is counted with its reason."""
    lines = Lines().user("go").add("user", message=message)
    report = take(backend, lines.write(tmp_path / "a.jsonl"))
    assert report.events_added == {"message": 1}
    assert [entry.reason for entry in report.skipped] == [reason]


def test_any_record_written_twice_is_stored_once(backend: StateBackend, tmp_path: Path) -> None:
    """Prompts, results, attachments and hook errors too."""
    lines = Lines().user("go").user([tool_result("t")]).add("system", hookErrors=["no"])
    lines.add("attachment", attachment={"type": "file"})
    report = take(backend, lines.raw(lines.data).write(tmp_path / "a.jsonl"))
    assert report.recorded == sum(report.events_added.values()) == 4
    assert sum(entry.count for entry in report.skipped) == 4


def test_different_records_with_one_uuid_are_all_stored(
    backend: StateBackend, tmp_path: Path
) -> None:
    """A uuid that repeats with other content loses nothing."""
    path = Lines().user("one", uuid="u").user("two", uuid="u").write(tmp_path / "a.jsonl")
    assert take(backend, path).events_added == {"message": 2}
    assert take(backend, path).events_added == {}


def test_a_byte_order_mark_is_no_part_of_the_first_record(
    backend: StateBackend, tmp_path: Path
) -> None:
    """The first payload starts with the object itself."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf  " + Lines().user("one").user("two").data)
    first, second = events(backend, take(backend, path))
    assert (first.payload[:1], second.payload[-1:]) == (b"{", b"}")


def test_ids_that_look_alike_when_joined_stay_apart(backend: StateBackend, tmp_path: Path) -> None:
    """A message id and a uuid with the other's separators make two keys, not one."""
    lines = Lines().user("go")
    lines.raw(_assistant("a", "b', 'c")).raw(_assistant("a uuid b", "c"))
    report = take(backend, lines.write(tmp_path / "a.jsonl"))
    assert report.events_added == {"message": 3}


def _assistant(message_id: str, uuid: str) -> bytes:
    record = {"type": "assistant", "uuid": uuid, "message": {"id": message_id, "content": "x"}}
    return json.dumps(record).encode() + b"\n"


# -- refused files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no user or assistant record"),
        (b"\x00\xff\x00" * 100, "no user or assistant record"),
        (b'{"type":"user","message":{"content":"no ids"}}\n', "no user or assistant record"),
        (b'{"type":"user","sessionId":"s","message":{"content":"x"}}\n', "timestamp"),
    ],
)
def test_a_file_without_a_conversation_creates_nothing(
    backend: StateBackend, tmp_path: Path, content: bytes, problem: str
) -> None:
    """It is refused with a reason."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    report = take(backend, path)
    assert report.outcome is FileOutcome.REFUSED
    assert problem in str(report.problem)
    assert list(backend.ids()) == []


def test_a_refused_file_does_not_stop_the_others(backend: StateBackend, tmp_path: Path) -> None:
    """Missing files, folders without transcripts and live sessions are reported one by one."""
    live = Lines("live").user("a").write(tmp_path / "live.jsonl")
    good = Lines("good").user("b").write(tmp_path / "good.jsonl")
    (tmp_path / "empty").mkdir()
    held = take(backend, live).session_id
    assert held is not None
    with backend.open(held):
        result = backend.import_transcripts(
            [tmp_path / "missing", tmp_path / "empty", live, good, good]
        )
    assert [report.outcome for report in result.files] == ["refused"] * 3 + ["created"]
    problems = [str(report.problem) for report in result.refused]
    assert problems[0] == "is not a file"
    assert problems[1] == "contains no *.jsonl file"
    assert "open for writing" in problems[2]


def test_names_that_lead_to_no_file_are_refused(backend: StateBackend, tmp_path: Path) -> None:
    """A link to itself and a pipe in a folder are reported, and nothing waits for them."""
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    result = backend.import_transcripts([tmp_path])
    assert [report.problem for report in result.files] == ["is not a file"] * 2


def test_one_file_named_twice_is_taken_once(backend: StateBackend, tmp_path: Path) -> None:
    """Also through a link to it."""
    path = Lines().user("one").write(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").symlink_to(path)
    assert len(backend.import_transcripts([path, tmp_path, path]).files) == 1


@pytest.mark.parametrize(("given", "stored"), [(None, "claude-code"), ("work", "work")])
def test_sessions_get_the_profile_asked_for(
    backend: StateBackend, tmp_path: Path, given: str | None, stored: str
) -> None:
    """The source knows no profile."""
    path = Lines().user("one").write(tmp_path / "a.jsonl")
    backend.import_transcripts([path], profile=given)
    assert [info.profile for info in backend.scan() if isinstance(info, SessionInfo)] == [stored]


def test_reading_a_module_of_the_importer_loads_no_database_library(
    child_environment: dict[str, str],
) -> None:
    """SQLAlchemy comes with the first session, not with the importer."""
    program = (
        "import sys, statebackend.interchange.claude_code\nsys.exit('sqlalchemy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], env=child_environment, check=True)


# -- JSON Lines ------------------------------------------------------------------------------------

JSON_TEXTS = st.one_of(
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=3).map(
        lambda value: json.dumps(value, ensure_ascii=False)
    ),
    st.sampled_from(["7", "[]", "null", "{", "}", '"', " ", "\t", "\r", "\n", "é", "\ufeff"]),
)


@hypothesis.given(st.lists(JSON_TEXTS.map(str.encode) | st.binary(max_size=3), max_size=8))
def test_objects_are_found_with_their_exact_bytes(pieces: list[bytes]) -> None:
    """Whatever stands in a file, an object's bytes are those at its offset, and nothing raises."""
    content = b"".join(pieces)
    for found in read_objects(io.BytesIO(content)):
        if isinstance(found, SourceObject):
            assert content[found.start : found.start + len(found.data)] == found.data
            assert json.loads(found.data) == found.value
