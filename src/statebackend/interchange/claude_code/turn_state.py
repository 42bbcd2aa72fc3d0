"""Tracks the turns of a transcript, to know whether the last one finished."""

from __future__ import annotations

from statebackend.interchange.claude_code.record_fields import (
    Json,
    blocks_of,
    is_interruption,
    is_requested,
    text_of,
)
from statebackend.values.recorded import SessionStatus

_END_OF_TURN = ("end_turn", "stop_sequence")  # a tuple, since a foreign value may not be hashable
_LOCAL_OUTPUT = ("<local-command-stdout>", "<local-command-stderr>")


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
        if text_of(message.get("content")).startswith(_LOCAL_OUTPUT):
            # The client itself executed the command before it; that was not a turn.
            self._ended, self._broken = self._before_command
            return
        self._before_command = (self._ended, self._broken)
        self._ended, self._broken = False, is_interruption(message)
        self._open_calls.clear()

    def add_answer(self, record: Json, message: Json) -> None:
        """Add an assistant line."""
        if record.get("isApiErrorMessage") is True:
            self._ended, self._broken = False, True
        if not is_requested(record):
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
        self._ended, self._broken = False, is_interruption(message)

    def add_system(self, record: Json) -> None:
        """Add a system record; two of its subtypes mark the end of a turn."""
        if record.get("subtype") not in ("stop_hook_summary", "turn_duration"):
            return
        # A stop hook that fails sends the model back to work.
        self._ended = not self._broken and not record.get("hookErrors")
