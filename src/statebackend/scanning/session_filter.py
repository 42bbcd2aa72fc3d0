"""Which sessions a listing shows."""

from __future__ import annotations

from dataclasses import dataclass

from statebackend.values.recorded import SessionInfo
from statebackend.values.results import BadSession


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """What a session must be to be listed; None and False accept all."""

    status: str | None = None
    profile: str | None = None
    parent_session_id: str | None = None
    roots: bool = False

    @property
    def accepts_all(self) -> bool:
        """Tell whether every session matches."""
        return self == SessionFilter()

    def matches(self, answer: object) -> bool:
        """Tell whether a summary matches; a file that cannot be read may, so it does."""
        if isinstance(answer, BadSession):
            return True
        assert isinstance(answer, SessionInfo)
        return (
            (self.status is None or answer.status == self.status)
            and (self.profile is None or answer.profile == self.profile)
            and self.parent_session_id in (None, answer.parent_session_id)
            and not (self.roots and answer.parent_session_id is not None)
        )
