"""Turns the records of a Claude Code transcript into drafts of events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from statebackend.interchange.claude_code.fields import (
    Counters,
    Json,
    blocks_of,
    clean_text,
    is_refusal,
    is_requested,
    message_of,
    says_something,
    time_of,
    tool_of,
    usage_of,
    version_of,
)
from statebackend.interchange.claude_code.identity import RecordKeys, message_group
from statebackend.interchange.claude_code.turns import TurnState
from statebackend.interchange.jsonl import BadText, SourceObject
from statebackend.values.recorded import EventKind, PlanDecision, PlanItem, Producer, kernel_user

_NO_KIND = "no event kind for it"
_NO_MESSAGE = "no message in it"
_NOTHING_SAID = "no text, image or tool result in it"
_REPEATED = "repeated record"
_KERNEL = Producer("kernel", "kernel", "1")
_CONTEXT_ATTACHMENTS = frozenset(
    {
        "directory",
        "edited_text_file",
        "file",
        "hook_additional_context",
        "invoked_skills",
        "mcp_instructions_delta",
        "mcp_resource",
        "nested_memory",
        "plan_file_reference",
        "queued_command",
        "relevant_memories",
        "selected_lines_in_ide",
        "skill_listing",
    }
)
_HOOK_FAILURES = frozenset(
    {"hook_blocking_error", "hook_error_during_execution", "hook_non_blocking_error"}
)


@dataclass(frozen=True, slots=True)
class Line:
    """One record that goes into events.

    ``key`` is its identity, ``start`` and ``size`` say where its bytes are in the file.
    ``timestamp`` is None before the file's first usable one.
    """

    key: str
    start: int
    size: int
    timestamp: datetime | None
    version: str


@dataclass(frozen=True, slots=True)
class Draft:
    """An event to come that holds one record; ``part`` tells apart the events of one record."""

    kind: EventKind
    producer: Producer
    line: Line
    part: str
    item: PlanItem | None = None


@dataclass(slots=True)
class MessageDraft:
    """A model's message to come: every line with one message id, at the place of the first.

    ``usage`` is that of the last line which has one; None if no request was made or none is told.
    """

    group: str
    requested: bool
    model: str = "unknown"
    lines: list[Line] = field(default_factory=list)
    usage: Counters | None = None
    odd_counters: int = 0

    def add(self, line: Line, message: Json) -> None:
        """Add the next line of the message."""
        self.lines.append(line)
        self.model = clean_text(message.get("model"))
        usage = usage_of(message) if self.requested else None
        if usage is not None:
            self.usage, self.odd_counters = usage


class Transcript:
    """What one file holds: drafts in file order, what was skipped and why, how it ended.

    ``inline_sidechains`` says that records marked as a side chain belong to sub-agents that worked
    inside this file's session, and whose prompts come from the main agent, not from the user.
    """

    def __init__(self, *, inline_sidechains: bool) -> None:
        self.drafts: list[Draft | MessageDraft] = []
        self.skipped: Counter[tuple[str, str, str]] = Counter()
        self.records = 0
        self.recorded = 0
        self.shared_lines = 0
        self.torn = False
        self.latest: datetime | None = None
        self.turns = TurnState()
        self._inline_sidechains = inline_sidechains
        self._keys = RecordKeys()
        self._messages: dict[str, MessageDraft] = {}
        self._calls: dict[str, tuple[str, str]] = {}
        self._now: datetime | None = None
        self._turn_id = ""

    def take(self, found: SourceObject | BadText) -> None:
        """Take the next piece of the file: into drafts, or counted as skipped."""
        if isinstance(found, SourceObject):
            self._take_record(found)
        elif found.torn:
            self.torn = True
        else:
            self.records += 1
            self.skipped["", "", found.reason] += 1

    def _take_record(self, source: SourceObject) -> None:
        self.records += 1
        self.shared_lines += source.place == 1
        moment = time_of(source.value)
        if moment is not None:
            self._now = moment
            self.latest = max(moment, self.latest or moment)
        reason = self._draft(source)
        if reason is None:
            self.recorded += 1
        else:
            self.skipped[*_sort_of(source.value), reason] += 1

    def _draft(self, source: SourceObject) -> str | None:
        """Draft the record's events, or return why there are none."""
        match source.value.get("type"):
            case "user":
                return self._user(source)
            case "assistant":
                return self._assistant(source)
            case "attachment":
                return self._attachment(source)
            case "system":
                return self._system(source)
        return _NO_KIND

    def _line(self, source: SourceObject, group: str) -> Line | None:
        record = source.value
        key = self._keys.key(record, source.data, group)
        if key is None:
            return None
        return Line(key, source.start, len(source.data), self._now, version_of(record))

    def _is_inline(self, record: Json) -> bool:
        return self._inline_sidechains and record.get("isSidechain") is True

    def _user(self, source: SourceObject) -> str | None:
        record = source.value
        message = message_of(record)
        if message is None:
            return _NO_MESSAGE
        results = blocks_of(message, "tool_result")
        if not results and not says_something(message):
            return _NOTHING_SAID
        line = self._line(source, "user")
        if line is None:
            return _REPEATED
        if results:
            self._results(record, results, line)
            if not self._is_inline(record):
                self.turns.got_results(message)
        elif _is_context(record) or self._is_inline(record):
            self._context(line)
        else:
            self._turn_id = clean_text(record.get("uuid"), "")
            self._add(EventKind.MESSAGE, kernel_user(), line, "prompt")
            self.turns.prompted(message)
        return None

    def _results(self, record: Json, results: list[Json], line: Line) -> None:
        for index, result in enumerate(results):
            call_id = clean_text(result.get("tool_use_id") or record.get("sourceToolUseID"), "")
            provider, tool = self._calls.get(call_id, ("claude-code", "unknown"))
            producer = Producer("tool", provider, line.version)
            self._add(EventKind.TOOL_RESULT, producer, line, f"tool_result {index}")
            if is_refusal(result):
                item = PlanItem(
                    turn_id=self._turn_id,
                    tool_call_id=call_id,
                    provider_name=provider,
                    tool_name=tool,
                    decision=PlanDecision.DENY,
                    decided_by="user",
                )
                self._add(EventKind.PLAN, _KERNEL, line, f"plan {index}", item)

    def _assistant(self, source: SourceObject) -> str | None:
        record = source.value
        message = message_of(record)
        if message is None:
            return _NO_MESSAGE
        group = message_group(record, source.data)
        line = self._line(source, group)
        if line is None:
            return _REPEATED
        self._message(group, is_requested(record)).add(line, message)
        for index, call in enumerate(blocks_of(message, "tool_use")):
            provider, tool = tool_of(call.get("name"))
            self._calls[clean_text(call.get("id"), "")] = provider, tool
            producer = Producer("tool", provider, line.version)
            self._add(EventKind.TOOL_CALL, producer, line, f"tool_call {index}")
        if not self._is_inline(record):
            self.turns.answered(record, message)
        return None

    def _message(self, group: str, requested: bool) -> MessageDraft:
        draft = self._messages.get(group)
        if draft is None:
            draft = self._messages[group] = MessageDraft(group, requested)
            self.drafts.append(draft)
        return draft

    def _attachment(self, source: SourceObject) -> str | None:
        attachment = source.value.get("attachment")
        if not isinstance(attachment, dict):
            return _NO_KIND
        sort = attachment.get("type")
        if not isinstance(sort, str) or sort not in _CONTEXT_ATTACHMENTS | _HOOK_FAILURES:
            return _NO_KIND
        line = self._line(source, "attachment")
        if line is None:
            return _REPEATED
        if sort in _CONTEXT_ATTACHMENTS:
            self._context(line)
        else:
            self._hook_error(line, attachment.get("hookName"))
        return None

    def _system(self, source: SourceObject) -> str | None:
        record = source.value
        if not self._is_inline(record):
            self.turns.closed(record)
        if not record.get("hookErrors"):
            return _NO_KIND
        line = self._line(source, "system")
        if line is None:
            return _REPEATED
        self._hook_error(line, "Stop")
        return None

    def _context(self, line: Line) -> None:
        producer = Producer("context", "claude-code", line.version)
        self._add(EventKind.CONTEXT_CONTRIBUTION, producer, line, "context")

    def _hook_error(self, line: Line, name: object) -> None:
        # No category fits a hook of the client; most of them guard tools.
        producer = Producer("tool", clean_text(name, "hook"), line.version)
        self._add(EventKind.HOOK_ERROR, producer, line, "hook_error")

    def _add(
        self,
        kind: EventKind,
        producer: Producer,
        line: Line,
        part: str,
        item: PlanItem | None = None,
    ) -> None:
        self.drafts.append(Draft(kind, producer, line, part, item))


def _is_context(record: Json) -> bool:
    return record.get("isMeta") is True or record.get("isCompactSummary") is True


def _sort_of(record: Json) -> tuple[str, str]:
    """Return the record's type and subtype, as far as it has them."""
    subtype = record.get("subtype")
    for inner in (record.get("data"), record.get("attachment")):
        if not isinstance(subtype, str) and isinstance(inner, dict):
            subtype = inner.get("type")
    return clean_text(record.get("type"), ""), clean_text(subtype, "")
