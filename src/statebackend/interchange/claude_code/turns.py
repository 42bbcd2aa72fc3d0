"""Follows a transcript's turns, to tell in the end whether the last one was finished."""

from __future__ import annotations

from statebackend.interchange.claude_code.fields import (
    Json,
    blocks_of,
    is_interruption,
    is_requested,
    text_of,
)
from statebackend.values.recorded import SessionStatus

_END_OF_TURN = ("end_turn", "stop_sequence")  # no set: a foreign value need not be hashable
_LOCAL_OUTPUT = ("<local-command-stdout>", "<local-command-stderr>")


class TurnState:
    """Whether the turn that the records told of last came to its end.

    A turn ends with a stop reason that says so, or with the client's record of its duration or of
    its stop hooks; an interruption or an API error in place of the answer takes that back.
    """

    def __init__(self) -> None:
        self._ended = False
        self._broken = False
        self._before_command = (False, False)
        self._open_calls: set[str] = set()

    @property
    def status(self) -> SessionStatus:
        """Return what the session's status is if nothing follows.

        Never ``failed``, also after an API error: that could not be re-opened when a longer copy
        of the same transcript shows how the session went on.
        """
        finished = self._ended and not self._open_calls
        return SessionStatus.COMPLETED if finished else SessionStatus.CANCELLED

    def prompted(self, message: Json) -> None:
        """Take a prompt: a new turn begins, and calls of an earlier one get no result any more."""
        if text_of(message.get("content")).startswith(_LOCAL_OUTPUT):
            # The command before it was carried out by the client; no turn came of it.
            self._ended, self._broken = self._before_command
            return
        self._before_command = (self._ended, self._broken)
        self._ended, self._broken = False, is_interruption(message)
        self._open_calls.clear()

    def answered(self, record: Json, message: Json) -> None:
        """Take an assistant line."""
        if record.get("isApiErrorMessage") is True:
            self._ended, self._broken = False, True
        if not is_requested(record):
            return
        calls = [call.get("id") for call in blocks_of(message, "tool_use")]
        self._open_calls.update(call for call in calls if isinstance(call, str))
        self._ended, self._broken = message.get("stop_reason") in _END_OF_TURN, False

    def got_results(self, message: Json) -> None:
        """Take a line with tool results."""
        for result in blocks_of(message, "tool_result"):
            call = result.get("tool_use_id")
            if isinstance(call, str):
                self._open_calls.discard(call)
        self._ended, self._broken = False, is_interruption(message)

    def closed(self, record: Json) -> None:
        """Take a system record, of which two subtypes are written at the end of a turn."""
        if record.get("subtype") not in ("stop_hook_summary", "turn_duration"):
            return
        # A stop hook that fails sends the model back to work.
        self._ended = not self._broken and not record.get("hookErrors")
