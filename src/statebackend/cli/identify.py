"""Which session a shortened id means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from statebackend.errors import InvalidValue, SessionNotFound
from statebackend.files.paths import SUFFIX
from statebackend.values.ids import is_session_id

if TYPE_CHECKING:
    from statebackend import StateBackend

_SHOWN = 10


def session_id(backend: StateBackend, text: str) -> str:
    """Return the id that *text* is, or the only one that begins or ends with it.

    A whole id is returned as it is, whether or not there is such a session. No match is
    :class:`SessionNotFound`; several, or an id in lower case, are :class:`InvalidValue`.
    """
    if is_session_id(text):
        return text
    if not text:
        raise InvalidValue("ID", "must not be empty")
    names = list(backend.ids())
    if text in names:  # a bad file's: listed, so it can be named
        return text
    _refuse_file_name(text)
    ids = [each for each in names if is_session_id(each)]
    matches = _matches(ids, text)
    if not matches:
        _refuse_lower_case(ids, text)
        raise SessionNotFound(text, backend.directory)
    if len(matches) > 1:
        raise InvalidValue("ID", _ambiguous(text, matches))
    return matches[0]


def session_ids(backend: StateBackend, texts: Iterable[str]) -> list[str]:
    """Return the ids that *texts* are, as :func:`session_id` does, each once."""
    return list(dict.fromkeys(session_id(backend, each) for each in texts))


def _matches(ids: list[str], text: str) -> list[str]:
    return [each for each in ids if each.startswith(text) or each.endswith(text)]


def _refuse_file_name(text: str) -> None:
    name = text.rpartition("/")[2].removesuffix(SUFFIX)
    if text.endswith(SUFFIX) and name:
        raise InvalidValue("ID", f"a session is named without its folder and {SUFFIX}: {name}")


def _refuse_lower_case(ids: list[str], text: str) -> None:
    """Refuse another spelling of an id that exists or could: an id has one (SB-02)."""
    upper = text.upper()
    if upper != text and (is_session_id(upper) or _matches(ids, upper)):
        raise InvalidValue("ID", f"session ids are upper case: write {upper} instead of {text}")


def _ambiguous(text: str, matches: list[str]) -> str:
    more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
    return f"{text} is ambiguous, it fits {', '.join(matches[:_SHOWN])}{more}"
