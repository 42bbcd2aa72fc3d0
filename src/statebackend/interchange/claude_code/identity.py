"""Who is who in Claude Code transcripts: the session of a file, and the identity of a record.

Nothing here depends on where a copy of a transcript lies or how long it is, so that every copy
leads to the same session and the same event ids.
"""

from __future__ import annotations

import hashlib
import marshal
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from statebackend.interchange.claude_code.fields import (
    Json,
    is_conversation,
    is_requested,
    message_of,
    time_of,
)
from statebackend.interchange.jsonl import SourceObject, read_objects
from statebackend.values.ids import session_id_from

FORMAT = "claude-code"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _hash(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()


def random_part(session_id: str) -> str:
    """Return the part of a session id that is not its time."""
    return session_id[10:]


def session_id_for(source_id: str, started_at: datetime) -> str:
    """Return the id of a session made from this source."""
    return session_id_from(started_at, _hash(FORMAT, source_id)[:10])


def random_part_for(source_id: str) -> str:
    """Return what every session id made from this source ends in."""
    return random_part(session_id_for(source_id, _EPOCH))


def event_id(source_id: str, key: str, part: str) -> str:
    """Return the id of the event that is *part* of the record with this *key*."""
    return _hash(FORMAT, source_id, key, part).hex()[:32]


def is_agent_file(path: Path) -> bool:
    """Tell whether the file's name is that of a sub-agent's transcript."""
    return path.name.startswith("agent-")


@dataclass(slots=True)
class Origin:
    """Which session a file is a copy of, learned from its first records.

    ``started_at`` is the first timestamp in the file. ``session`` is the ``sessionId`` of the
    first user or assistant record, which in a sub-agent's file is its parent's; ``agent`` is the
    sub-agent's own id, None in a main file. ``path`` is absolute: its folders tell the parent.
    """

    path: Path
    started_at: datetime | None = None
    conversation: bool = False
    session: str | None = None
    agent: str | None = None

    def take(self, record: Json) -> None:
        """Learn from the next record of the file."""
        if self.started_at is None:
            self.started_at = time_of(record)
        if not self.conversation and is_conversation(record):
            self.conversation = True
            session, agent = record.get("sessionId"), record.get("agentId")
            self.session = session if isinstance(session, str) else None
            marked = isinstance(agent, str) or record.get("isSidechain") is True
            if marked and is_agent_file(self.path):
                name = self.path.stem.removeprefix("agent-")
                self.agent = agent if isinstance(agent, str) else name

    @property
    def complete(self) -> bool:
        """Tell whether later records cannot add anything."""
        return self.conversation and self.started_at is not None

    @property
    def source_id(self) -> str:
        """Return the source's own name of the session.

        A main file that is named by a UUID is that session: after a resume, records can still
        carry the id of an earlier one.
        """
        if self.agent is not None:
            return f"{self.parent_source_id}/{self.agent}"
        if _UUID.fullmatch(self.path.stem):
            return self.path.stem
        return self.session or self.path.stem

    @property
    def parent_source_id(self) -> str | None:
        """Return the source's name of the session that started this sub-agent, if it is one."""
        if self.agent is None:
            return None
        return self.session or self.path.parent.parent.name

    def parent_paths(self) -> Iterable[Path]:
        """Iterate over the places where the client writes the parent's transcript."""
        beside = self.path.parent.parent
        yield beside.parent / f"{beside.name}.jsonl"
        parent = self.parent_source_id
        if parent is not None and _UUID.fullmatch(parent):  # free text must not make a path
            yield beside.parent / f"{parent}.jsonl"
            yield self.path.parent / f"{parent}.jsonl"


def read_origin(path: Path) -> Origin:
    """Read as much of a file as tells which session it is a copy of."""
    origin = Origin(path)
    with path.open("rb") as lines:
        for found in read_objects(lines):
            if isinstance(found, SourceObject):
                origin.take(found.value)
            if origin.complete:
                break
    return origin


class RecordKeys:
    """Gives each record a key that is the same in every copy of the transcript.

    The key is made from the record's ``uuid``, or from its bytes where it has none, and from a
    count, since different records can share a uuid. The same uuid with the same content and usage
    is one record written twice, and has no second key: an updated client repeats a record with
    other fields around them.
    """

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def key(self, record: Json, data: bytes, group: str) -> str | None:
        """Return the record's key among those of its *group*, or None for a repetition."""
        uuid = record.get("uuid")
        if isinstance(uuid, str):
            name = ("uuid", group, uuid)
            seen = hashlib.sha256(_hash(repr(name)) + _essence(record, data)).digest()
            if seen in self._seen:
                return None
            self._seen.add(seen)
        else:
            name = ("bytes", group, hashlib.sha256(data).hexdigest())
        self._counts[name] += 1
        return repr((*name, self._counts[name]))  # unlike joined text, never ambiguous


def _essence(record: Json, data: bytes) -> bytes:
    message = message_of(record)
    if message is None:
        return hashlib.sha256(data).digest()
    said = message.get("content"), message.get("usage")
    try:
        # Compared within one run only, so a faster form than JSON will do. Version 2, unlike later
        # ones, writes the same values always in the same way.
        return hashlib.sha256(marshal.dumps(said, 2)).digest()
    except ValueError:  # nested too deeply
        return hashlib.sha256(data).digest()


def message_group(record: Json, data: bytes) -> str:
    """Return what an assistant line has in common with the other lines of its message.

    A line without a message id is a message by itself. What the client wrote in the model's name
    is never one message with what a model wrote.
    """
    name = (message_of(record) or {}).get("id")
    if not isinstance(name, str):
        name = hashlib.sha256(data).hexdigest()
    return f"{'message' if is_requested(record) else 'note'} {name}"
