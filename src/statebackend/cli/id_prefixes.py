"""Session ids shortened to any unique beginning or end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from statebackend.errors import InvalidValue, SessionNotFound
from statebackend.values.ids import is_session_id

if TYPE_CHECKING:
    from statebackend import StateBackend

_SUFFIX = ".sqlite"
_NAMED = 10


def resolve(backend: StateBackend, text: str) -> str:
    """Return *text* if it is a whole id, else the only id that begins or ends with it.

    A whole id is returned even if there is no such session. Raises :class:`SessionNotFound` when
    no id matches, and :class:`InvalidValue` when several do or *text* is in lower case.
    """
    if is_session_id(text):
        return text
    if not text:
        raise InvalidValue("ID", "must not be empty")
    names = list(backend.ids())
    if text in names:  # a bad file is listed by its stem, so it can be named by it
        return text
    _refuse_file_name(text)
    ids = [name for name in names if is_session_id(name)]
    matches = _matches(ids, text)
    if not matches:
        _refuse_lower_case(ids, text)
        raise SessionNotFound(text, backend.directory)
    if len(matches) > 1:
        raise InvalidValue("ID", _ambiguous(text, matches))
    return matches[0]


def resolve_all(backend: StateBackend, texts: Iterable[str]) -> list[str]:
    """Resolve each of *texts* and return the ids without duplicates."""
    return list(dict.fromkeys(resolve(backend, text) for text in texts))


def resolve_or_all(backend: StateBackend, texts: Sequence[str], *, every: bool) -> list[str]:
    """Resolve *texts*, or return all ids; anything but exactly one of them is a usage error."""
    if bool(texts) == every:
        raise click.UsageError("Name sessions, or give --all.")
    return list(backend.ids()) if every else resolve_all(backend, texts)


def _matches(ids: list[str], text: str) -> list[str]:
    return [name for name in ids if name.startswith(text) or name.endswith(text)]


def _refuse_file_name(text: str) -> None:
    name = text.rpartition("/")[2].removesuffix(_SUFFIX)
    if text.endswith(_SUFFIX) and name:
        raise InvalidValue("ID", f"give the id without folder and {_SUFFIX}: {name}")


def _refuse_lower_case(ids: list[str], text: str) -> None:
    """Refuse the lower-case spelling of a valid id: ids are upper case (SB-02)."""
    upper = text.upper()
    if upper != text and (is_session_id(upper) or _matches(ids, upper)):
        raise InvalidValue("ID", f"session ids are upper case: write {upper} instead of {text}")


def _ambiguous(text: str, matches: list[str]) -> str:
    more = f" and {len(matches) - _NAMED} more" if len(matches) > _NAMED else ""
    return f"{text} is ambiguous, it matches {', '.join(matches[:_NAMED])}{more}"
