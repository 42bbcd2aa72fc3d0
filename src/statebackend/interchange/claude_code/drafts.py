"""Drafts events from the records of a Claude Code transcript."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from statebackend.interchange.claude_code import record_fields
from statebackend.interchange.claude_code.record_fields import Counters, Json, blocks_of, clean_text
from statebackend.interchange.claude_code.source_ids import RecordKeys, message_group
from statebackend.interchange.jsonl import BadText, SourceObject
from statebackend.values.recorded import (
    EventKind,
    PlanDecision,
    PlanItem,
    Producer,
    SessionStatus,
    kernel_user,
)

_END_OF_TURN = ("end_turn", "stop_sequence")  # a tuple, since a foreign value may not be hashable
_LOCAL_OUTPUT = ("<local-command-stdout>", "<local-command-stderr>")
_NO_KIND = "no matching event kind"
_NO_MESSAGE = "no message"
_NOTHING_SAID = "no text, image or tool result"
_REPEATED = "repeated record"
_KERNEL = Producer("kernel", "kernel", "1")
_CONTEXT_ATTACHMENT = re.compile(
    "directory|edited_text_file|file|hook_additional_context|invoked_skills|mcp_instructions_delta|"
    "mcp_resource|nested_memory|plan_file_reference|queued_command|relevant_memories|"
    "selected_lines_in_ide|skill_listing"
)
_HOOK_FAILURE = re.compile("hook_(blocking_error|error_during_execution|non_blocking_error)")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One record that becomes an event, or several.

    ``key`` identifies it in every copy of the transcript; ``start`` and ``size`` are the place of
    its bytes in the file. ``timestamp`` is None before the first record that has a usable one.
    """

    key: str
    start: int
    size: int
    timestamp: datetime | None
    version: str


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event to append for one record; ``part`` distinguishes the events of the same record."""

    kind: EventKind
    producer: Producer
    line: SourceLine
    part: str
    item: PlanItem | None = None


@dataclass(slots=True)
class MessageDraft:
    """A model's message to append: all lines with one message id, at the place of the first.

    ``usage`` is that of the last line that has one; None if there is none or the client wrote the
    message itself.
    """

    group: str
    requested: bool
    model: str = "unknown"
    lines: list[SourceLine] = field(default_factory=list)
    usage: Counters | None = None
    odd_counters: int = 0

    def add(self, line: SourceLine, message: Json) -> None:
        """Add the next line of the message."""
        self.lines.append(line)
        self.model = clean_text(message.get("model"))
        usage = record_fields.usage_of(message) if self.requested else None
        if usage is not None:
            self.usage, self.odd_counters = usage


class TurnState:
    """Whether the latest turn has ended.

    A turn ends with an end-of-turn stop reason, or with the client's record of its duration or its
    stop hooks, unless an interruption or an API error replaced the answer.
    """

    def __init__(self) -> None:
        self._ended = False
        self._broken = False
        self._before_command = (False, False)
        self._open_calls: set[str] = set()

    @property
    def status(self) -> SessionStatus:
        """Return the session's status if no record follows.

        Never ``failed``, not even after an API error: a failed session could not be re-opened when
        a longer copy of the transcript is imported.
        """
        finished = self._ended and not self._open_calls
        return SessionStatus.COMPLETED if finished else SessionStatus.CANCELLED

    def add_prompt(self, message: Json) -> None:
        """Add a prompt: a new turn begins, and open calls of earlier turns stay without result."""
        if record_fields.text_of(message.get("content")).startswith(_LOCAL_OUTPUT):
            # The client itself executed the command before it; that was not a turn.
            self._ended, self._broken = self._before_command
            return
        self._before_command = (self._ended, self._broken)
        self._ended, self._broken = False, record_fields.is_interruption(message)
        self._open_calls.clear()

    def add_answer(self, record: Json, message: Json) -> None:
        """Add an assistant line."""
        if record.get("isApiErrorMessage") is True:
            self._ended, self._broken = False, True
        if not record_fields.is_requested(record):
            return
        calls = [call.get("id") for call in blocks_of(message, "tool_use")]
        self._open_calls.update(call for call in calls if isinstance(call, str))
        self._ended, self._broken = message.get("stop_reason") in _END_OF_TURN, False

    def add_results(self, message: Json) -> None:
        """Add a line with tool results."""
        for result in blocks_of(message, "tool_result"):
            call = result.get("tool_use_id")
            if isinstance(call, str):
                self._open_calls.discard(call)
        self._ended, self._broken = False, record_fields.is_interruption(message)

    def add_system(self, record: Json) -> None:
        """Add a system record; two of its subtypes mark the end of a turn."""
        if record.get("subtype") not in ("stop_hook_summary", "turn_duration"):
            return
        # A stop hook that fails sends the model back to work.
        self._ended = not self._broken and not record.get("hookErrors")


class Transcript:
    """The content of one file: drafts in file order, skipped records by reason, the turn's state.

    With ``inline_sidechains``, records marked as a side chain belong to sub-agents inside this
    file's session, so their prompts come from the main agent and not from the user.
    """

    def __init__(self, *, inline_sidechains: bool) -> None:
        self.drafts: list[EventDraft | MessageDraft] = []
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

    def add(self, piece: SourceObject | BadText) -> None:
        """Add the next piece of the file: as drafts, or to the skipped ones."""
        if isinstance(piece, SourceObject):
            self._add_record(piece)
        elif piece.torn:
            self.torn = True
        else:
            self.records += 1
            self.skipped["", "", piece.reason] += 1

    def _add_record(self, source: SourceObject) -> None:
        self.records += 1
        self.shared_lines += source.place == 1
        timestamp = record_fields.time_of(source.value)
        if timestamp is not None:
            self._now = timestamp
            self.latest = max(timestamp, self.latest or timestamp)
        reason = self._draft_events(source)
        if reason is None:
            self.recorded += 1
        else:
            self.skipped[*_type_of(source.value), reason] += 1

    def _draft_events(self, source: SourceObject) -> str | None:
        """Draft the record's events, or return the reason why it has none."""
        match source.value.get("type"):
            case "user":
                return self._draft_user(source)
            case "assistant":
                return self._draft_assistant(source)
            case "attachment":
                return self._draft_attachment(source)
            case "system":
                return self._draft_system(source)
        return _NO_KIND

    def _source_line(self, source: SourceObject, group: str) -> SourceLine | None:
        record = source.value
        key = self._keys.key(record, source.data, group)
        if key is None:
            return None
        return SourceLine(
            key, source.start, len(source.data), self._now, record_fields.version_of(record)
        )

    def _is_inline(self, record: Json) -> bool:
        return self._inline_sidechains and record.get("isSidechain") is True

    def _draft_user(self, source: SourceObject) -> str | None:
        record = source.value
        message = record_fields.message_of(record)
        if message is None:
            return _NO_MESSAGE
        results = blocks_of(message, "tool_result")
        if not results and not record_fields.says_something(message):
            return _NOTHING_SAID
        line = self._source_line(source, "user")
        if line is None:
            return _REPEATED
        if results:
            self._draft_results(record, results, line)
            if not self._is_inline(record):
                self.turns.add_results(message)
        elif _is_context(record) or self._is_inline(record):
            self._draft_context(line)
        else:
            self._turn_id = clean_text(record.get("uuid"), "")
            self._add_draft(EventKind.MESSAGE, kernel_user(), line, "prompt")
            self.turns.add_prompt(message)
        return None

    def _draft_results(self, record: Json, results: list[Json], line: SourceLine) -> None:
        for index, result in enumerate(results):
            call_id = clean_text(result.get("tool_use_id") or record.get("sourceToolUseID"), "")
            provider, tool = self._calls.get(call_id, ("claude-code", "unknown"))
            producer = Producer("tool", provider, line.version)
            self._add_draft(EventKind.TOOL_RESULT, producer, line, f"tool_result {index}")
            if record_fields.is_refusal(result):
                item = PlanItem(
                    turn_id=self._turn_id,
                    tool_call_id=call_id,
                    provider_name=provider,
                    tool_name=tool,
                    decision=PlanDecision.DENY,
                    decided_by="user",
                )
                self._add_draft(EventKind.PLAN, _KERNEL, line, f"plan {index}", item)

    def _draft_assistant(self, source: SourceObject) -> str | None:
        record = source.value
        message = record_fields.message_of(record)
        if message is None:
            return _NO_MESSAGE
        group = message_group(record, source.data)
        line = self._source_line(source, group)
        if line is None:
            return _REPEATED
        self._message_draft(group, record_fields.is_requested(record)).add(line, message)
        for index, call in enumerate(blocks_of(message, "tool_use")):
            provider, tool = record_fields.tool_of(call.get("name"))
            self._calls[clean_text(call.get("id"), "")] = provider, tool
            producer = Producer("tool", provider, line.version)
            self._add_draft(EventKind.TOOL_CALL, producer, line, f"tool_call {index}")
        if not self._is_inline(record):
            self.turns.add_answer(record, message)
        return None

    def _message_draft(self, group: str, requested: bool) -> MessageDraft:
        draft = self._messages.get(group)
        if draft is None:
            draft = self._messages[group] = MessageDraft(group, requested)
            self.drafts.append(draft)
        return draft

    def _draft_attachment(self, source: SourceObject) -> str | None:
        attachment = source.value.get("attachment")
        if not isinstance(attachment, dict):
            return _NO_KIND
        name = clean_text(attachment.get("type"), "")
        is_context = _CONTEXT_ATTACHMENT.fullmatch(name) is not None
        if not is_context and not _HOOK_FAILURE.fullmatch(name):
            return _NO_KIND
        line = self._source_line(source, "attachment")
        if line is None:
            return _REPEATED
        if is_context:
            self._draft_context(line)
        else:
            self._draft_hook_error(line, attachment.get("hookName"))
        return None

    def _draft_system(self, source: SourceObject) -> str | None:
        record = source.value
        if not self._is_inline(record):
            self.turns.add_system(record)
        if not record.get("hookErrors"):
            return _NO_KIND
        line = self._source_line(source, "system")
        if line is None:
            return _REPEATED
        self._draft_hook_error(line, "Stop")
        return None

    def _add_draft(
        self,
        kind: EventKind,
        producer: Producer,
        line: SourceLine,
        part: str,
        item: PlanItem | None = None,
    ) -> None:
        self.drafts.append(EventDraft(kind, producer, line, part, item))

    def _draft_context(self, line: SourceLine) -> None:
        producer = Producer("context", "claude-code", line.version)
        self._add_draft(EventKind.CONTEXT_CONTRIBUTION, producer, line, "context")

    def _draft_hook_error(self, line: SourceLine, name: object) -> None:
        # No producer category fits a hook of the client; most hooks guard tools.
        producer = Producer("tool", clean_text(name, "hook"), line.version)
        self._add_draft(EventKind.HOOK_ERROR, producer, line, "hook_error")


def _is_context(record: Json) -> bool:
    return record.get("isMeta") is True or record.get("isCompactSummary") is True


def _type_of(record: Json) -> tuple[str, str]:
    """Return the record's type and subtype, empty where it has none."""
    subtype = record.get("subtype")
    for inner in (record.get("data"), record.get("attachment")):
        if not isinstance(subtype, str) and isinstance(inner, dict):
            subtype = inner.get("type")
    return clean_text(record.get("type"), ""), clean_text(subtype, "")
