"""Session ids and event ids derived from Claude Code transcripts.

They do not depend on the place or the length of a copy of a transcript, so every copy gives the
same session and the same event ids.
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

from statebackend.interchange.claude_code import record_fields
from statebackend.interchange.claude_code.record_fields import Json, is_requested, message_of
from statebackend.interchange.jsonl import SourceObject, read_objects
from statebackend.values.ids import session_id_from

FORMAT = "claude-code"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _hash(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()


def random_part(session_id: str) -> str:
    """Return the part of a session id after its time."""
    return session_id[10:]


def session_id_for(source_id: str, started_at: datetime) -> str:
    """Return the id of the session imported from this source."""
    return session_id_from(started_at, _hash(FORMAT, source_id)[:10])


def random_part_for(source_id: str) -> str:
    """Return the end that all session ids of this source share: all but the time."""
    return random_part(session_id_for(source_id, _EPOCH))


def event_id(source_id: str, key: str, part: str) -> str:
    """Return the id of the event that is *part* of the record with this *key*."""
    return _hash(FORMAT, source_id, key, part).hex()[:32]


def is_agent_file(path: Path) -> bool:
    """Return whether *path* is named like a sub-agent's transcript."""
    return path.name.startswith("agent-")


@dataclass(slots=True)
class Origin:
    """The session that a file is a copy of, from its first records.

    ``started_at`` is the first timestamp in the file. ``session`` is the ``sessionId`` of the
    first user or assistant record, which in a sub-agent's file is its parent's; ``agent`` is the
    sub-agent's own id, None in a main file. ``path`` is absolute: its folders name the parent.
    """

    path: Path
    started_at: datetime | None = None
    conversation: bool = False
    session: str | None = None
    agent: str | None = None

    def add(self, record: Json) -> None:
        """Add the next record of the file."""
        if self.started_at is None:
            self.started_at = record_fields.time_of(record)
        if not self.conversation and record_fields.is_conversation(record):
            self.conversation = True
            session, agent = record.get("sessionId"), record.get("agentId")
            self.session = session if isinstance(session, str) else None
            marked = isinstance(agent, str) or record.get("isSidechain") is True
            if marked and is_agent_file(self.path):
                name = self.path.stem.removeprefix("agent-")
                self.agent = agent if isinstance(agent, str) else name

    @property
    def source_id(self) -> str:
        """Return the client's id of the session.

        A main file named by a UUID is that session: after a resume, its records can still have the
        id of an earlier session.
        """
        if self.agent is not None:
            return f"{self.parent_source_id}/{self.agent}"
        if _UUID.fullmatch(self.path.stem):
            return self.path.stem
        return self.session or self.path.stem

    @property
    def parent_source_id(self) -> str | None:
        """Return the client's id of the sub-agent's parent session; None in a main file."""
        if self.agent is None:
            return None
        return self.session or self.path.parent.parent.name

    def parent_paths(self) -> Iterable[Path]:
        """Return the paths where the client may have written the parent's transcript."""
        beside = self.path.parent.parent
        yield beside.parent / f"{beside.name}.jsonl"
        parent = self.parent_source_id
        # Other text must not become part of a path.
        if parent is not None and _UUID.fullmatch(parent):
            yield beside.parent / f"{parent}.jsonl"
            yield self.path.parent / f"{parent}.jsonl"


def read_origin(path: Path) -> Origin:
    """Read the beginning of a file, up to the records that identify its session."""
    origin = Origin(path)
    with path.open("rb") as lines:
        for piece in read_objects(lines):
            if isinstance(piece, SourceObject):
                origin.add(piece.value)
            if origin.conversation and origin.started_at is not None:
                break  # later records make no difference
    return origin


class RecordKeys:
    """Derives a key for each record that is the same in every copy of the transcript.

    A key has the record's ``uuid``, or a hash of its bytes if it has none, and a count, since
    different records can share a uuid. A record with the same uuid, content and usage as an earlier
    one gets no key: a newer client repeats records with other fields added.
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
        # Faster than JSON, and compared within one run only. Version 2, unlike later ones, always
        # gives the same bytes for the same values.
        return hashlib.sha256(marshal.dumps(said, 2)).digest()
    except ValueError:  # nested too deeply
        return hashlib.sha256(data).digest()


def message_group(record: Json, data: bytes) -> str:
    """Return the key that an assistant line shares with the other lines of its message.

    A line without a message id is a message of its own. Lines that the client wrote in the model's
    name never share a key with lines of the model.
    """
    name = (message_of(record) or {}).get("id")
    if not isinstance(name, str):
        name = hashlib.sha256(data).hexdigest()
    return f"{'message' if is_requested(record) else 'note'} {name}"
